#ifndef COMMSCHED_SRC_RECORDING_DEVIATION_FLAG_H_
#define COMMSCHED_SRC_RECORDING_DEVIATION_FLAG_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "device/device.h"
#include "exec/program.h"

namespace commsched {

// The word by which ranks tell each other of deviations: each writes its own at
// the end of a step, the last launch of the step makes the greatest of them,
// and a later step reads that. Nobody waits for it.
//
// On memory of the host the next step reads it, since it waits for the launch.
// On a device a stream copies it to the host behind the launch, and steps read
// it as late as the host may be ahead of the device: then it is there.
//
// Thread-compatible: the thread that ends steps.
class DeviationFlag {
 public:
  // `device` outlives the flag. `enqueues`: launches go out on its streams.
  static absl::StatusOr<std::unique_ptr<DeviationFlag>> Create(Device* device,
                                                               bool enqueues);
  // Nothing is under way on stream().
  ~DeviationFlag();
  DeviationFlag(const DeviationFlag&) = delete;
  DeviationFlag& operator=(const DeviationFlag&) = delete;

  // Nothing was told in steps before. Between plans, whose launches are
  // complete.
  void Reset();

  // Where the launch reads and writes: one i32 each.
  void* in() const { return in_; }
  void* out() const { return out_; }
  static constexpr uint64_t kBytes = sizeof(int32_t);
  // What the exchange is made on: the calling thread, or a stream of its own,
  // which no work of the caller's is behind.
  Stream* stream() const;

  // After so many steps Exchange() tells what was told in one.
  uint64_t distance() const { return side_ == nullptr ? 1 : kRing; }
  // In `step`, which counts from 0, between `before` and `after` on stream():
  // tells `mine`. Returns the greatest of what was told distance() steps ago,
  // 0 in the first of them.
  int32_t Exchange(uint64_t step, int32_t mine);

 private:
  // The copy of a step is complete kRunAhead steps later.
  static constexpr uint64_t kRing = Program::kRunAhead + 1;

  explicit DeviationFlag(Device* device) : device_(device) {}
  absl::Status MakeOnDevice();

  Device* const device_;
  int32_t own_in_ = 0, own_out_ = 0;
  int32_t* in_ = &own_in_;
  int32_t* out_ = &own_out_;

  // Of a device.
  std::unique_ptr<Stream> side_;
  void* memory_ = nullptr;   // in_ and out_
  int32_t* told_ = nullptr;  // on the host: kRing words, by step
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_RECORDING_DEVIATION_FLAG_H_
