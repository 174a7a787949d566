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

bool DeviceLanes::Entry::Has(const LaneKey& key) const {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

absl::StatusOr<std::vector<std::shared_ptr<DeviceLane>>> DeviceLanes::Borrow(
    const std::shared_ptr<Device>& device, const LaneBudget& budget,
    absl::Span<const LaneKey> keys, LanesInUse* in_use) {
  const Maker maker = MakerOf(device, budget, keys.size());
  std::vector<std::shared_ptr<DeviceLane>> borrowed;
  MutexLock lock(&mu_);
  DropLost();
  if (in_use != nullptr) *in_use = InUse(maker, keys);
  for (const LaneKey& key : keys) {
    ASSIGN_OR_RETURN(std::shared_ptr<DeviceLane> lane,
                     BorrowOne(maker, key, borrowed));
    borrowed.push_back(std::move(lane));
  }
  return borrowed;
}

absl::StatusOr<std::vector<std::shared_ptr<DeviceLane>>> DeviceLanes::BorrowAt(
    const std::shared_ptr<Device>& device, const LaneBudget& budget,
    absl::Span<const LaneKey> keys, absl::Span<const uint32_t> numbers) {
  const Maker maker = MakerOf(device, budget, keys.size());
  std::vector<std::shared_ptr<DeviceLane>> borrowed;
  MutexLock lock(&mu_);
  DropLost();
  for (size_t i = 0; i < keys.size(); ++i) {
    for (Entry& entry : entries_) std::erase(entry.keys, keys[i]);
    ASSIGN_OR_RETURN(std::shared_ptr<DeviceLane> lane, Make(maker, numbers[i]));
    entries_[numbers[i]].keys.push_back(keys[i]);
    borrowed.push_back(std::move(lane));
  }
  return borrowed;
}

absl::StatusOr<std::shared_ptr<DeviceLane>> DeviceLanes::BorrowOne(
    const Maker& maker, const LaneKey& key,
    absl::Span<const std::shared_ptr<DeviceLane>> others) {
  for (const Entry& entry : entries_) {
    if (entry.lane != nullptr && entry.Has(key)) return entry.lane;
  }
  Entry* const fewest = FewestBorrowed(others);
  if (fewest != nullptr && fewest->num_borrowed() == 0) {
    fewest->keys = {key};
    return fewest->lane;
  }
  const auto room =
      std::find_if(entries_.begin(), entries_.end(),
                   [](const Entry& entry) { return entry.lane == nullptr; });
  const auto number = static_cast<size_t>(room - entries_.begin());
  if (fewest != nullptr && number >= Most(maker)) {
    fewest->keys.push_back(key);
    return fewest->lane;
  }
  ASSIGN_OR_RETURN(std::shared_ptr<DeviceLane> lane, Make(maker, number));
  entries_[number].keys = {key};
  return lane;
}

// Unless it is there.
absl::StatusOr<std::shared_ptr<DeviceLane>> DeviceLanes::Make(
    const Maker& maker, size_t number) {
  if (number >= entries_.size()) entries_.resize(number + 1);
  Entry& entry = entries_[number];
  if (entry.lane != nullptr) return entry.lane;
  ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream,
                   maker.device->CreateSideStream());
  entry.lane = std::make_shared<DeviceLane>(static_cast<int>(number),
                                            maker.share, maker.num_lanes,
                                            maker.device, std::move(stream));
  return entry.lane;
}

DeviceLanes::Maker DeviceLanes::MakerOf(const std::shared_ptr<Device>& device,
                                        const LaneBudget& budget,
                                        size_t num_keys) {
  return {.device = device,
          .share = budget.Share(num_keys),
          .num_lanes = budget.NumLanes(num_keys),
          .num_keys = static_cast<uint32_t>(num_keys),
          .total = budget.total};
}

uint32_t DeviceLanes::Most(const Maker& maker) {
  uint32_t used = 0;
  uint32_t num_made = 0;
  for (const Entry& entry : entries_) {
    if (entry.lane == nullptr) continue;
    used += entry.lane->share();
    ++num_made;
  }
  const uint32_t room = maker.total - std::min(used, maker.total);
  return std::max({num_made + room / maker.share, maker.num_keys, 1u});
}

void DeviceLanes::DropLost() {
  for (Entry& entry : entries_) {
    if (entry.lane != nullptr && entry.lane->is_lost()) entry = {};
  }
}

// Of all but `others`; null: there is none.
DeviceLanes::Entry* DeviceLanes::FewestBorrowed(
    absl::Span<const std::shared_ptr<DeviceLane>> others) {
  Entry* fewest = nullptr;
  for (Entry& entry : entries_) {
    if (entry.lane == nullptr ||
        std::find(others.begin(), others.end(), entry.lane) != others.end()) {
      continue;
    }
    if (fewest == nullptr || entry.num_borrowed() < fewest->num_borrowed()) {
      fewest = &entry;
    }
  }
  return fewest;
}

LanesInUse DeviceLanes::InUse(const Maker& maker,
                              absl::Span<const LaneKey> keys) {
  LanesInUse in_use;
  in_use.most = Most(maker);
  for (const Entry& entry : entries_) {
    in_use.others.push_back(static_cast<uint32_t>(entry.num_borrowed()));
  }
  for (const LaneKey& key : keys) {
    in_use.numbers.push_back(-1);
    for (size_t number = 0; number < entries_.size(); ++number) {
      const Entry& entry = entries_[number];
      if (!entry.Has(key) || entry.num_borrowed() == 0) continue;
      in_use.numbers.back() = static_cast<int32_t>(number);
    }
  }
  return in_use;
}

}  // namespace commsched
