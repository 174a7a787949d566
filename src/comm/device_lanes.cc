#include "comm/device_lanes.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/status_macros.h"

namespace commsched {

std::shared_ptr<DeviceLanes> DeviceLanes::Of(const Device& device, int seat) {
  using Place = std::tuple<commsched_device_kind_t, int, int>;
  static Mutex mu;
  static auto* const all = new std::map<Place, std::weak_ptr<DeviceLanes>>;
  MutexLock lock(&mu);
  std::weak_ptr<DeviceLanes>& known =
      (*all)[{device.kind(), device.ordinal(), seat}];
  std::shared_ptr<DeviceLanes> lanes = known.lock();
  if (lanes == nullptr) {
    lanes = std::make_shared<DeviceLanes>();
    known = lanes;
  }
  return lanes;
}

absl::StatusOr<std::vector<std::shared_ptr<DeviceLane>>> DeviceLanes::Borrow(
    const std::shared_ptr<Device>& device, absl::Span<const LaneKey> keys) {
  std::vector<std::shared_ptr<DeviceLane>> borrowed;
  MutexLock lock(&mu_);
  std::erase_if(entries_,
                [](const Entry& entry) { return entry.lane->is_lost(); });
  for (const LaneKey& key : keys) {
    ASSIGN_OR_RETURN(std::shared_ptr<DeviceLane> lane,
                     BorrowOne(device, key, std::max(kMostLanes, keys.size())));
    borrowed.push_back(std::move(lane));
  }
  return borrowed;
}

absl::StatusOr<std::shared_ptr<DeviceLane>> DeviceLanes::BorrowOne(
    const std::shared_ptr<Device>& device, const LaneKey& key,
    size_t most_lanes) {
  for (const Entry& entry : entries_) {
    if (std::find(entry.keys.begin(), entry.keys.end(), key) !=
        entry.keys.end()) {
      return entry.lane;
    }
  }
  Entry* const fewest = FewestBorrowed();
  if (fewest != nullptr && fewest->num_borrowed() == 0) {
    fewest->keys = {key};
    return fewest->lane;
  }
  if (entries_.size() >= most_lanes) {
    fewest->keys.push_back(key);
    return fewest->lane;
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device->CreateSideStream());
  auto lane =
      std::make_shared<DeviceLane>(num_made_++, device, std::move(stream));
  entries_.push_back({lane, {key}});
  return lane;
}

// Null: there is no lane.
DeviceLanes::Entry* DeviceLanes::FewestBorrowed() {
  const auto fewest = std::min_element(
      entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
        return a.num_borrowed() < b.num_borrowed();
      });
  return fewest == entries_.end() ? nullptr : &*fewest;
}

}  // namespace commsched
