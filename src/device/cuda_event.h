#ifndef COMMSCHED_SRC_DEVICE_CUDA_EVENT_H_
#define COMMSCHED_SRC_DEVICE_CUDA_EVENT_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "device/cuda_runtime.h"
#include "device/device.h"

namespace commsched {

// What the parts of a CUDA device share: which one it is, and its first
// failure. Thread-safe.
class CudaPlace {
 public:
  CudaPlace(const CudaRuntime* cuda, int ordinal)
      : cuda_(*cuda), ordinal_(ordinal) {}

  const CudaRuntime& cuda() const { return cuda_; }
  int ordinal() const { return ordinal_; }

  // Makes it the calling thread's device, and the one before when it goes: the
  // caller's code has a current device of its own.
  class Current {
   public:
    explicit Current(CudaPlace* place);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    CudaPlace* const place_;
    int before_ = 0;
  };

  // While it lives the calling thread may look at events although a capture is
  // under way, its own or another thread's.
  class Unrestricted {
   public:
    explicit Unrestricted(CudaPlace* place);
    ~Unrestricted();
    Unrestricted(const Unrestricted&) = delete;
    Unrestricted& operator=(const Unrestricted&) = delete;

   private:
    CudaPlace* const place_;
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  };

  // The first failure stays.
  void Check(const char* call, cudaError_t code) {
    if (code != cudaSuccess) Fail(cuda_.Check(call, code));
  }
  void Check(const char* call, CUresult code) {
    if (code != CUDA_SUCCESS) Fail(cuda_.Check(call, code));
  }
  void Fail(const absl::Status& why);
  // What `call` has returned, which fails nothing but the caller.
  template <typename Code>
  absl::Status StatusOf(const char* call, Code code) const {
    return Named(cuda_.Check(call, code));
  }
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  absl::Status status() const;

 private:
  // With the device in front.
  absl::Status Named(const absl::Status& why) const;

  const CudaRuntime& cuda_;
  const int ordinal_;
  std::atomic<bool> failed_{false};
  mutable Mutex mu_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

// A native event knows only its last record, so this is a ring of them, their
// number a power of two. Generation 0 never reaches the device. A slot is
// recorded again only once its generation is complete, which the depth of the
// ring is for.
//
// A graph always records the same native event, which therefore has no ring: it
// tells of the latest launch of the graph only. That an earlier one is complete
// is what Complete() has to say.
//
// Thread-safe; one thread at a time records.
class CudaEvent final : public Event {
 public:
  static absl::StatusOr<std::unique_ptr<Event>> Create(
      std::shared_ptr<CudaPlace> place, uint32_t depth);
  ~CudaEvent() override;

  bool IsComplete(uint64_t generation) const override;
  // Looks again and again: a wait in the runtime could not be ended by
  // Poison().
  void Synchronize(uint64_t generation) override;
  // Nobody tells that a device has got on: does nothing.
  void AddListener(Parker* listener) override;
  void Poison() override;

  void Complete(uint64_t generation) override { RaiseTo(generation); }
  void* ToRecord(uint64_t generation) override;
  void Recorded(uint64_t generation) override;
  void AwaitRecorded() override;
  // Of a generation that was a launch of a graph: null if the event is not
  // watched. Then the end of that launch is what to wait for.
  void* ToWaitFor(uint64_t generation) override;
  // Streams of a session are behind the end of a graph before they get work of
  // the next step.
  bool IsOrdered(uint64_t generation) const override {
    return replayed_.load(std::memory_order_acquire) >= generation ||
           IsComplete(generation);
  }

  absl::Status PrepareCapture(bool watched) override;
  void* InCapture() override { return in_capture_; }
  void* InGraph() override { return in_graph_; }
  void Replayed(uint64_t generation) override {
    replayed_.store(generation, std::memory_order_release);
  }

 private:
  struct Slot {
    cudaEvent_t native = nullptr;
    // Released in Recorded(), acquired by whoever looks at `native`.
    std::atomic<uint64_t> generation{0};
  };

  CudaEvent(std::shared_ptr<CudaPlace> place, uint32_t depth);
  Slot& SlotOf(uint64_t generation) const {
    return slots_[generation & (depth_ - 1)];
  }
  void RaiseTo(uint64_t generation) const;
  // Whether what `native` has last recorded, as `generation`, is complete.
  bool HasPassed(cudaEvent_t native, uint64_t generation) const;
  absl::Status MakeNative(cudaEvent_t* out_native);

  const std::shared_ptr<CudaPlace> place_;
  const uint32_t depth_;
  const std::unique_ptr<Slot[]> slots_;

  // Made by the first capture, before replayed_ is not 0.
  cudaEvent_t in_capture_ = nullptr;
  cudaEvent_t in_graph_ = nullptr;
  // The latest launch of a graph. Released in Replayed(), acquired by whoever
  // looks at in_graph_.
  std::atomic<uint64_t> replayed_{0};

  // The greatest that is known. Away from what those who enqueue read, since
  // the monitor writes it for each generation.
  alignas(64) mutable std::atomic<uint64_t> complete_{0};
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_DEVICE_CUDA_EVENT_H_
