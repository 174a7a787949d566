// Where what a rank launches has its memory.
#ifndef COMMSCHED_TEST_CONFORMANCE_RANK_MEMORY_H_
#define COMMSCHED_TEST_CONFORMANCE_RANK_MEMORY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/device.h"
#include "test/conformance/reference.h"

namespace commsched {

// Twins of memory of the host, where backends launch on a device that takes its
// own memory only. On the host memory is its own twin. Of one thread.
class RankMemory {
 public:
  // Of a device all that twins will take, at once: an allocation while launches
  // run might wait for them. `device` must outlive it; null: the host.
  static absl::StatusOr<std::unique_ptr<RankMemory>> Create(Device* device);
  ~RankMemory();
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;

  // Has a twin of `bytes`, with what is in them, which must not move until they
  // are forgotten. kResourceExhausted if there is no room.
  absl::Status Add(Bytes* bytes);
  // Where launches find `address`, which is in memory that was added; null of
  // null.
  void* TwinOf(const void* address) const;
  // Brings what the twin of `bytes` has to the host.
  absl::Status Fetch(Bytes* bytes);
  // There is room again. While nothing is under way.
  void ForgetAll();

 private:
  static constexpr uint64_t kRoomBytes = uint64_t{32} << 20;

  struct Twin {
    Bytes* bytes = nullptr;
    std::byte* twin = nullptr;
  };

  explicit RankMemory(Device* device) : device_(device) {}
  absl::Status Copy(void* to, const void* from, uint64_t bytes);

  Device* const device_;  // null: the host
  std::unique_ptr<Stream> stream_;
  std::byte* room_ = nullptr;
  uint64_t used_ = 0;
  std::vector<Twin> twins_;
};

}  // namespace commsched

#endif  // COMMSCHED_TEST_CONFORMANCE_RANK_MEMORY_H_
