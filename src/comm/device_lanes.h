// The streams of a device that launches go out on.
#ifndef COMMSCHED_SRC_COMM_DEVICE_LANES_H_
#define COMMSCHED_SRC_COMM_DEVICE_LANES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "comm/lane_order.h"
#include "comm/turn.h"
#include "device/device.h"

namespace commsched {

// What a lane is asked for by. Who asks by an equal key gets the same lane.
struct LaneKey {
  const void* world = nullptr;
  std::string axes;        // Those whose launches go out on it.
  uint32_t plan_lane = 0;  // Which of the plan's it is.
  friend bool operator==(const LaneKey&, const LaneKey&) = default;
};

// How the lanes of a device are borrowed as somebody asks for some.
struct LanesInUse {
  uint32_t most = 0;             // So many there may be.
  std::vector<uint32_t> others;  // By number: how many borrow it.
  // By key that is asked for: the number that others borrow by it, or -1.
  std::vector<int32_t> numbers;
};

// A stream of a device of this process. Whoever borrows it launches on it, one
// launch at a time: a launch is what is enqueued within one turn.
//
// Thread-safe.
class DeviceLane {
 public:
  // `device` has made `stream`.
  DeviceLane(int number, std::shared_ptr<Device> device,
             std::unique_ptr<Stream> stream)
      : number_(number),
        device_(std::move(device)),
        stream_(std::move(stream)),
        order_(std::make_shared<LaneOrder>(number)) {}

  int number() const { return number_; }
  // Of the device that has made it. What goes wrong on it is that device's
  // failure: others adopt its handle.
  Stream* stream() { return stream_.get(); }
  Turn* turn() { return &turn_; }
  LaneOrder* order() { return order_.get(); }

  // What was enqueued here may never end: nobody who comes later gets it.
  void Lose() { is_lost_.store(true, std::memory_order_relaxed); }
  bool is_lost() const { return is_lost_.load(std::memory_order_relaxed); }

 private:
  const int number_;
  const std::shared_ptr<Device> device_;
  const std::unique_ptr<Stream> stream_;
  const std::shared_ptr<LaneOrder> order_;
  Turn turn_;
  std::atomic<bool> is_lost_{false};
};

// All lanes of one device. They are made when they are first asked for, and
// stay until the last world that has a rank there ends: sessions borrow them.
//
// Launches on different lanes need no order as long as all of them fit on the
// device together, so that there are so many lanes at most. Those who share one
// have the order in which they take its turn.
//
// Thread-safe.
class DeviceLanes {
 public:
  // As many communicators of 32 thread blocks, which is NCCL's limit unless it
  // is told otherwise, ran to their end on an H200 in opposite orders
  // (docs/devices.md, What an H200 does).
  static constexpr size_t kMostLanes = 8;

  // Those of the device of this process that `device` is. Ranks of one world
  // that share a device are told apart by `seat`: one would have its launches
  // behind those of another, which wait for it.
  static std::shared_ptr<DeviceLanes> Of(const Device& device, int seat);

  DeviceLanes() = default;
  DeviceLanes(const DeviceLanes&) = delete;
  DeviceLanes& operator=(const DeviceLanes&) = delete;

  // A lane per key, in their order, borrowed until the handle goes. Of a key
  // that is new: one that nobody borrows; else one that `device` makes, while
  // there are fewer than kMostLanes, or than keys; else the one that the fewest
  // borrow. Fails as the device does.
  // `in_use`, unless it is null, is how it was before.
  absl::StatusOr<std::vector<std::shared_ptr<DeviceLane>>> Borrow(
      const std::shared_ptr<Device>& device, absl::Span<const LaneKey> keys,
      LanesInUse* in_use = nullptr);
  // The lanes of these numbers, whoever borrows them: from now on those of the
  // keys.
  absl::StatusOr<std::vector<std::shared_ptr<DeviceLane>>> BorrowAt(
      const std::shared_ptr<Device>& device, absl::Span<const LaneKey> keys,
      absl::Span<const uint32_t> numbers);

 private:
  struct Entry {
    std::shared_ptr<DeviceLane> lane;  // Null: not made yet, or lost.
    std::vector<LaneKey> keys;

    // Borrowers may return it at any time, but nobody else borrows it.
    int64_t num_borrowed() const {
      return lane == nullptr ? 0 : lane.use_count() - 1;
    }
    bool Has(const LaneKey& key) const;
  };

  absl::StatusOr<std::shared_ptr<DeviceLane>> BorrowOne(
      const std::shared_ptr<Device>& device, const LaneKey& key,
      size_t most_lanes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Entry* FewestBorrowed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<std::shared_ptr<DeviceLane>> Make(
      const std::shared_ptr<Device>& device, size_t number)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropLost() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  LanesInUse InUse(absl::Span<const LaneKey> keys)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mu_);  // By number.
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_DEVICE_LANES_H_
