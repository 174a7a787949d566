#include "comm/lane_agreement.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "control/claims.h"
#include "control/wire.h"

namespace commsched {
namespace {

// Of what a rank may show.
constexpr uint32_t kMostLanes = 1024;

std::vector<std::string> NamesOf(const LaneKey& key) {
  std::vector<std::string> names;
  for (const absl::string_view axis : absl::StrSplit(key.axes, '\n')) {
    names.push_back(absl::StrCat(key.plan_lane, " ", axis));
  }
  return names;
}

// Keys that have one number: which of whose.
struct Asked {
  int32_t number = -1;  // That it has to be.
  std::vector<std::pair<size_t, size_t>>
      places;  // Rank, and which of its keys.
};

// Joins names that keys have in common.
class Names {
 public:
  const std::string& FirstOf(const std::string& name) {
    std::string& parent = parents_.try_emplace(name, name).first->second;
    if (parent != name) parent = FirstOf(parent);
    return parent;
  }
  void Join(const std::string& one, const std::string& other) {
    const std::string first = std::min(FirstOf(one), FirstOf(other));
    for (const std::string* each : {&one, &other}) {
      parents_[FirstOf(*each)] = first;
    }
  }

 private:
  std::map<std::string, std::string> parents_;
};

// In the order of their first names.
std::map<std::string, Asked> KeysOf(absl::Span<const ShownLanes> ranks) {
  Names names;
  for (const ShownLanes& rank : ranks) {
    for (const ShownLanes::Key& key : rank.keys) {
      for (const std::string& name : key.names) names.Join(key.names[0], name);
    }
  }
  std::map<std::string, Asked> keys;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (size_t i = 0; i < ranks[rank].keys.size(); ++i) {
      const ShownLanes::Key& key = ranks[rank].keys[i];
      if (key.names.empty()) continue;
      Asked& asked = keys[names.FirstOf(key.names[0])];
      asked.places.emplace_back(rank, i);
      asked.number = std::max(asked.number, key.number);
    }
  }
  return keys;
}

uint32_t NumLanes(absl::Span<const ShownLanes> ranks) {
  uint32_t least = kMostLanes;
  uint32_t most_keys = 1;
  for (const ShownLanes& rank : ranks) {
    least = std::min(least, rank.most);
    most_keys = std::max(most_keys, static_cast<uint32_t>(rank.keys.size()));
  }
  return std::max(least, most_keys);
}

// What is borrowed, by rank and number, as keys are assigned.
class Uses {
 public:
  explicit Uses(absl::Span<const ShownLanes> ranks)
      : num_lanes_(NumLanes(ranks)), own_(ranks.size()) {
    for (const ShownLanes& rank : ranks) others_.push_back(rank.others);
  }

  // One more than there may be, if else two keys of one rank had one.
  uint32_t Choose(const Asked& asked) const {
    uint32_t chosen = 0;
    for (uint32_t number = 1; number < num_lanes_; ++number) {
      if (CostOf(asked, number) < CostOf(asked, chosen)) chosen = number;
    }
    while (std::get<0>(CostOf(asked, chosen)) != 0) ++chosen;
    return chosen;
  }
  void Take(const Asked& asked, uint32_t number) {
    for (const auto& [rank, key] : asked.places) {
      own_[rank].resize(std::max<size_t>(own_[rank].size(), number + 1));
      ++own_[rank][number];
    }
  }

 private:
  static uint32_t At(const std::vector<uint32_t>& by_number, uint32_t number) {
    return number < by_number.size() ? by_number[number] : 0;
  }
  // Keys of one rank there; of others, the most on any rank, and all of them.
  std::tuple<uint32_t, uint32_t, uint64_t> CostOf(const Asked& asked,
                                                  uint32_t number) const {
    uint32_t own = 0;
    uint32_t most = 0;
    uint64_t sum = 0;
    for (const auto& [rank, key] : asked.places) {
      own = std::max(own, At(own_[rank], number));
      most = std::max(most, At(others_[rank], number));
      sum += At(others_[rank], number);
    }
    return {own, most, sum};
  }

  const uint32_t num_lanes_;
  std::vector<std::vector<uint32_t>> others_;
  std::vector<std::vector<uint32_t>> own_;
};

ShownLanes ShownOf(const LanesInUse& in_use, absl::Span<const LaneKey> keys) {
  ShownLanes shown = {.most = in_use.most, .others = in_use.others, .keys = {}};
  for (size_t i = 0; i < keys.size(); ++i) {
    shown.keys.push_back({NamesOf(keys[i]), in_use.numbers[i]});
  }
  return shown;
}

// Numbers for the keys of the one that is `index` among those that have shown
// `all`.
absl::StatusOr<std::vector<uint32_t>> Assigned(
    absl::Span<const std::string> all, size_t index) {
  std::vector<ShownLanes> ranks;
  for (const std::string& each : all) {
    ASSIGN_OR_RETURN(ShownLanes of_rank, ShownLanes::Decode(each));
    ranks.push_back(std::move(of_rank));
  }
  return AssignLanes(ranks)[index];
}

}  // namespace

std::string ShownLanes::Encode() const {
  WireWriter writer;
  writer(most, static_cast<uint32_t>(others.size()));
  for (const uint32_t each : others) writer(each);
  writer(static_cast<uint32_t>(keys.size()));
  for (const Key& key : keys) writer(key.names, key.number);
  return writer.Take();
}

absl::StatusOr<ShownLanes> ShownLanes::Decode(absl::string_view bytes) {
  ShownLanes shown;
  WireReader reader(bytes);
  uint32_t num = 0;
  reader(shown.most, num);
  shown.others.resize(std::min(num, kMostLanes));
  for (uint32_t& each : shown.others) reader(each);
  reader(num);
  shown.keys.resize(std::min(num, kMostLanes));
  for (Key& key : shown.keys) {
    reader(key.names, key.number);
    if (key.number >= static_cast<int32_t>(kMostLanes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a rank shows a lane of number ", key.number));
    }
  }
  RETURN_IF_ERROR(reader.Finish());
  return shown;
}

std::vector<std::vector<uint32_t>> AssignLanes(
    absl::Span<const ShownLanes> ranks) {
  std::vector<std::vector<uint32_t>> numbers;
  for (const ShownLanes& rank : ranks) numbers.emplace_back(rank.keys.size());
  Uses uses(ranks);
  const std::map<std::string, Asked> keys = KeysOf(ranks);
  // Those that have theirs come first, so that the others keep off it.
  for (const bool is_borrowed : {true, false}) {
    for (const auto& [name, asked] : keys) {
      if ((asked.number >= 0) != is_borrowed) continue;
      const uint32_t number = is_borrowed ? static_cast<uint32_t>(asked.number)
                                          : uses.Choose(asked);
      uses.Take(asked, number);
      for (const auto& [rank, key] : asked.places) numbers[rank][key] = number;
    }
  }
  return numbers;
}

absl::StatusOr<std::vector<std::shared_ptr<DeviceLane>>> BorrowSameLanes(
    World* world, int rank, const std::string& meeting,
    absl::Span<const LaneKey> keys, int64_t timeout_ns) {
  LanesInUse in_use;
  auto borrowed = world->BorrowLanes(rank, keys, &in_use);
  if (world->spec().size == 1) return borrowed;
  if (!borrowed.ok()) {
    world->meeting()->Decline(meeting, rank, borrowed.status());
    return borrowed.status();
  }
  std::vector<std::shared_ptr<DeviceLane>> lanes = *std::move(borrowed);
  const ShownLanes shown = ShownOf(in_use, keys);
  std::vector<Claim> claims;
  for (size_t i = 0; i < keys.size(); ++i) {
    for (const std::string& name : shown.keys[i].names) {
      claims.push_back(Claim::Of(name, absl::StrCat(lanes[i]->number())));
    }
  }
  ASSIGN_OR_RETURN(const bool is_same,
                   world->meeting()->Match(meeting, rank, claims, timeout_ns));
  if (is_same) return lanes;
  ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      world->meeting()->AllGather(absl::StrCat(meeting, " of all"), rank,
                                  shown.Encode(), timeout_ns));
  ASSIGN_OR_RETURN(const std::vector<uint32_t> numbers,
                   Assigned(all, static_cast<size_t>(rank)));
  return world->BorrowLanesAt(rank, keys, numbers);
}

absl::StatusOr<std::vector<std::shared_ptr<DeviceLane>>> BorrowSameLanesAmong(
    World* world, int rank, const std::vector<int>& members,
    const std::string& meeting, absl::Span<const LaneKey> keys,
    int64_t timeout_ns) {
  LanesInUse in_use;
  // Held until all members have theirs, so that nobody else is given it.
  const auto borrowed = world->BorrowLanes(rank, keys, &in_use);
  if (members.size() == 1) return borrowed;
  if (!borrowed.ok()) {
    world->meeting()->DeclineAmong(members, meeting, rank, borrowed.status());
    return borrowed.status();
  }
  ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      world->meeting()->AllGatherAmong(
          members, meeting, rank, ShownOf(in_use, keys).Encode(), timeout_ns));
  const auto own = std::find(members.begin(), members.end(), rank);
  ASSIGN_OR_RETURN(const std::vector<uint32_t> numbers,
                   Assigned(all, static_cast<size_t>(own - members.begin())));
  return world->BorrowLanesAt(rank, keys, numbers);
}

}  // namespace commsched
