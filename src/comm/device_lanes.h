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
#include "comm/lane_budget.h"
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
  DeviceLane(int number, uint32_t share, uint32_t num_lanes,
             std::shared_ptr<Device> device, std::unique_ptr<Stream> stream)
      : number_(number),
        share_(share),
        num_lanes_(num_lanes),
        device_(std::move(device)),
        stream_(std::move(stream)),
        order_(std::make_shared<LaneOrder>(number)) {}

  int number() const { return number_; }
  // CTAs that it may take of the device, fixed when it was made; and of how
  // many lanes of that share.
  uint32_t share() const { return share_; }
  uint32_t num_lanes() const { return num_lanes_; }
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
  const uint32_t share_;
  const uint32_t num_lanes_;
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
// device together, so that their shares are within a budget. Those who share a
// lane have the order in which they take its turn.
//
// Thread-safe.
class DeviceLanes {
 public:
  // Those of the device of this process that `device` is. Ranks of one world
  // that share a device are told apart by `seat`: one would have its launches
  // behind those of another, which wait for it.
  static std::shared_ptr<DeviceLanes> Of(const Device& device, int seat);

  DeviceLanes() = default;
  DeviceLanes(const DeviceLanes&) = delete;
  DeviceLanes& operator=(const DeviceLanes&) = delete;

  // A lane per key, in their order, borrowed until the handle goes. Of a key
  // that is new: one that nobody borrows; else one that `device` makes, while
  // `budget` has room for it, or there are fewer than keys; else the one that
  // the fewest borrow. Fails as the device does.
  // `in_use`, unless it is null, is how it was before.
  absl::StatusOr<std::vector<std::shared_ptr<DeviceLane>>> Borrow(
      const std::shared_ptr<Device>& device, const LaneBudget& budget,
      absl::Span<const LaneKey> keys, LanesInUse* in_use = nullptr);
  // The lanes of these numbers, whoever borrows them: from now on those of the
  // keys.
  absl::StatusOr<std::vector<std::shared_ptr<DeviceLane>>> BorrowAt(
      const std::shared_ptr<Device>& device, const LaneBudget& budget,
      absl::Span<const LaneKey> keys, absl::Span<const uint32_t> numbers);

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

  // What makes lanes for somebody who asks for some.
  struct Maker {
    const std::shared_ptr<Device>& device;
    uint32_t share = 0;
    uint32_t num_lanes = 0;  // Of that share, whatever others have.
    uint32_t num_keys = 0;
    uint32_t total = 0;
  };

  static Maker MakerOf(const std::shared_ptr<Device>& device,
                       const LaneBudget& budget, size_t num_keys);
  // `others` are those of the same caller.
  absl::StatusOr<std::shared_ptr<DeviceLane>> BorrowOne(
      const Maker& maker, const LaneKey& key,
      absl::Span<const std::shared_ptr<DeviceLane>> others)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Entry* FewestBorrowed(absl::Span<const std::shared_ptr<DeviceLane>> others)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<std::shared_ptr<DeviceLane>> Make(const Maker& maker,
                                                   size_t number)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // How many there may be, with those that are there.
  uint32_t Most(const Maker& maker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropLost() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  LanesInUse InUse(const Maker& maker, absl::Span<const LaneKey> keys)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mu_);  // By number.
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_DEVICE_LANES_H_
