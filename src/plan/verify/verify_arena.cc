#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "plan/align.h"
#include "plan/verify/verify_parts.h"

namespace commsched {
namespace {

// What lies in the arena: an owned buffer, or the staging memory of a launch.
struct Occupant {
  BufferId buffer;  // or else
  LaunchId launch;
  uint64_t begin = 0;
  uint64_t end = 0;
};

// One node's accesses to one occupant.
struct Visit {
  uint32_t position = 0;
  uint32_t occupant = 0;
  bool fresh = false;  // writes all of it and reads nothing
  // A piece of a split collective other than the first. It writes the rest of
  // what the first one has taken over.
  bool later_piece = false;
};

// A node that used an occupant since it was last written as a whole.
struct User {
  uint32_t position = 0;
  uint32_t step = 0;
};

class ArenaVerifier {
 public:
  ArenaVerifier(const Plan& plan, const Witness& witness, HappensBefore* order)
      : plan_(plan), graph_(*plan.graph), witness_(witness), order_(*order) {}

  absl::Status Run() {
    RETURN_IF_ERROR(CollectOccupants());
    RETURN_IF_ERROR(CheckPlaceGroups());
    if (!AnyOverlap()) return CheckStagingAlone();
    CollectVisits();
    users_.resize(occupants_.size());
    for (uint32_t step = 0; step < 2; ++step) {
      for (const Visit& visit : visits_) {
        RETURN_IF_ERROR(Play(visit, step));
      }
    }
    return absl::OkStatus();
  }

 private:
  // Names are long and seldom asked for.
  std::string NameOf(const Occupant& occupant) const {
    return occupant.buffer.valid()
               ? absl::StrCat("buffer '", graph_.buffer(occupant.buffer).name,
                              "'")
               : absl::StrCat("packing memory of launch ",
                              occupant.launch.value());
  }

  // `occupant` but for where it lies.
  absl::Status AddOccupant(Occupant occupant, uint64_t offset, uint64_t bytes) {
    if (offset % kArenaAlignment != 0 || bytes > plan_.arena_bytes ||
        offset > plan_.arena_bytes - bytes) {
      return absl::InternalError(absl::StrCat(
          "plan: ", NameOf(occupant), " at ", offset, " of ", bytes,
          " bytes does not lie in an arena of ", plan_.arena_bytes, " bytes"));
    }
    occupant.begin = offset;
    occupant.end = offset + bytes;
    occupants_.push_back(occupant);
    return absl::OkStatus();
  }

  absl::Status CollectOccupants() {
    const uint64_t limit = plan_.options.arena_bytes;
    if (limit != 0 && plan_.arena_bytes > limit) {
      return absl::InternalError(absl::StrCat("plan: the arena has ",
                                              plan_.arena_bytes,
                                              " bytes; the limit is ", limit));
    }
    occupants_.reserve(plan_.placements.size() + plan_.launches.size());
    occupant_of_buffer_.assign(graph_.buffers().size(), Plan::kNone);
    for (const Placement& place : plan_.placements) {
      occupant_of_buffer_[place.buffer.value()] =
          static_cast<uint32_t>(occupants_.size());
      RETURN_IF_ERROR(AddOccupant({.buffer = place.buffer, .launch = {}},
                                  place.offset,
                                  graph_.buffer(place.buffer).bytes()));
    }
    for (uint32_t b = 0; b < graph_.buffers().size(); ++b) {
      const bool owned = graph_.buffers()[b].ownership == Ownership::kOwned;
      if (owned == (occupant_of_buffer_[b] != Plan::kNone)) continue;
      return absl::InternalError(
          absl::StrCat("plan: buffer '", graph_.buffers()[b].name,
                       owned ? "' has no place" : "' must not have a place"));
    }
    occupant_of_launch_.assign(plan_.launches.size(), Plan::kNone);
    for (uint32_t k = 0; k < plan_.launches.size(); ++k) {
      const Launch& launch = plan_.launches[k];
      if (launch.way != Way::kPack) continue;
      occupant_of_launch_[k] = static_cast<uint32_t>(occupants_.size());
      RETURN_IF_ERROR(AddOccupant({.buffer = {}, .launch = LaunchId(k)},
                                  launch.staging_offset, launch.staging_bytes));
    }
    return absl::OkStatus();
  }

  // All buffers of a group lie at one offset. That they do not overlap in time
  // follows from Play(): they overlap in space.
  absl::Status CheckPlaceGroups() const {
    if (!graph_.has_place_groups()) return absl::OkStatus();
    absl::flat_hash_map<uint32_t, const Placement*> first_of_group;
    for (const Placement& place : plan_.placements) {
      const uint32_t group = graph_.buffer(place.buffer).place_group;
      if (group == 0) continue;
      const Placement& first =
          *first_of_group.try_emplace(group, &place).first->second;
      if (first.offset == place.offset) continue;
      return absl::InternalError(
          absl::StrCat("plan: buffers '", graph_.buffer(first.buffer).name,
                       "' and '", graph_.buffer(place.buffer).name,
                       "' of place group ", group, " lie at ", first.offset,
                       " and ", place.offset, ", not at one offset"));
    }
    return absl::OkStatus();
  }

  bool AnyOverlap() const {
    std::vector<uint32_t> order(occupants_.size());
    std::iota(order.begin(), order.end(), 0);
    const auto before = [&](uint32_t a, uint32_t b) {
      return occupants_[a].begin < occupants_[b].begin;
    };
    // Most arenas are laid out in this order.
    if (!std::is_sorted(order.begin(), order.end(), before)) {
      std::sort(order.begin(), order.end(), before);
    }
    uint64_t end = 0;
    for (uint32_t i : order) {
      if (occupants_[i].begin < end) return true;
      end = std::max(end, occupants_[i].end);
    }
    return false;
  }

  absl::Status CheckStagingAlone() {
    for (uint32_t k = 0; k < plan_.launches.size(); ++k) {
      if (occupant_of_launch_[k] == Plan::kNone) continue;
      const uint32_t p = witness_.of_launch[k];
      RETURN_IF_ERROR(CheckHandOver(occupant_of_launch_[k], {p, 0},
                                    occupant_of_launch_[k], {p, 1}));
    }
    return absl::OkStatus();
  }

  bool IsFresh(const Access& access) const {
    const Region& region = access.region;
    const bool whole = region.kind == RegionKind::kWhole ||
                       (region.kind == RegionKind::kRange &&
                        region.count == graph_.buffer(access.buffer).count);
    return whole && access.mode == AccessMode::kWrite;
  }

  void AddVisits(OpId op, uint32_t position, size_t first_of_node) {
    for (const Access& access : graph_.op(op).accesses) {
      const uint32_t occupant = occupant_of_buffer_[access.buffer.value()];
      if (occupant == Plan::kNone) continue;
      const bool fresh = IsFresh(access);
      auto same = std::find_if(
          visits_.begin() + first_of_node, visits_.end(),
          [&](const Visit& visit) { return visit.occupant == occupant; });
      if (same != visits_.end()) {
        same->fresh = same->fresh && fresh;
      } else {
        visits_.push_back({position, occupant, fresh, IsLaterPiece(position)});
      }
    }
  }

  bool IsLaterPiece(uint32_t position) const {
    const std::vector<uint32_t> pieces = PiecesAt(position);
    return pieces.front() != position;
  }

  // Positions of the pieces that the node at `position` is one of; else its
  // own. Ascending.
  std::vector<uint32_t> PiecesAt(uint32_t position) const {
    const NodeRef node = witness_.nodes[position];
    if (node.kind == NodeRef::Kind::kOp ||
        plan_.launches[node.index].piece.of == 1) {
      return {position};
    }
    std::vector<uint32_t> positions;
    for (LaunchId launch :
         plan_.LaunchesOf(plan_.launches[node.index].members.front())) {
      positions.push_back(witness_.of_launch[launch.value()]);
    }
    return positions;
  }

  void CollectVisits() {
    for (uint32_t p = 0; p < witness_.nodes.size(); ++p) {
      const size_t first = visits_.size();
      const NodeRef node = witness_.nodes[p];
      if (node.kind == NodeRef::Kind::kOp) {
        AddVisits(OpId(node.index), p, first);
        continue;
      }
      for (OpId op : plan_.launches[node.index].members) {
        AddVisits(op, p, first);
      }
      const uint32_t staging = occupant_of_launch_[node.index];
      if (staging != Plan::kNone) {
        visits_.push_back({p, staging, true, false});
      }
    }
  }

  struct Held {
    uint64_t end = 0;
    uint32_t occupant = 0;
  };

  absl::Status Play(const Visit& visit, uint32_t step) {
    const Occupant& self = occupants_[visit.occupant];
    const User user{visit.position, step};
    auto it = held_.upper_bound(self.begin);
    if (it != held_.begin()) --it;
    std::vector<std::pair<uint64_t, Held>> cut;
    while (it != held_.end() && it->first < self.end) {
      const auto [begin, was] = *it;
      const bool staging = !IsBuffer(visit.occupant);
      if (was.end <= self.begin ||
          (was.occupant == visit.occupant && !staging)) {
        ++it;
        continue;
      }
      if (!visit.fresh) return Foreign(visit, was.occupant);
      for (const User& last : users_[was.occupant]) {
        for (uint32_t first : PiecesAt(visit.position)) {
          RETURN_IF_ERROR(
              CheckHandOver(was.occupant, last, visit.occupant, {first, step}));
        }
      }
      if (begin < self.begin)
        cut.push_back({begin, {self.begin, was.occupant}});
      if (was.end > self.end) cut.push_back({self.end, was});
      it = held_.erase(it);
    }
    for (const auto& piece : cut) held_.insert(piece);
    held_[self.begin] = {self.end, visit.occupant};
    if (visit.fresh && !visit.later_piece) users_[visit.occupant].clear();
    users_[visit.occupant].push_back(user);
    return absl::OkStatus();
  }

  bool IsBuffer(uint32_t occupant) const {
    return occupant < plan_.placements.size();
  }

  const std::string Op(uint32_t position) const {
    return DescribeNode(plan_, witness_.nodes[position]);
  }

  absl::Status Foreign(const Visit& visit, uint32_t other) const {
    return absl::InternalError(
        absl::StrCat("plan: arena overlap: when ", Op(visit.position), " uses ",
                     NameOf(occupants_[visit.occupant]), ", its memory holds ",
                     NameOf(occupants_[other])));
  }

  absl::Status CheckHandOver(uint32_t from, User last, uint32_t to,
                             User first) {
    const int distance = static_cast<int>(first.step - last.step);
    if (order_.Ordered(last.position, first.position, distance)) {
      return absl::OkStatus();
    }
    return absl::InternalError(absl::StrCat(
        "plan: race in the arena: ", Op(first.position), " may write ",
        NameOf(occupants_[to]), " while ", Op(last.position),
        distance == 1 ? " of the step before" : "", " still uses ",
        NameOf(occupants_[from]), " in the same memory; the edge ",
        Op(last.position), " -> ", Op(first.position), " of distance ",
        distance, " is missing"));
  }

  const Plan& plan_;
  const Graph& graph_;
  const Witness& witness_;
  HappensBefore& order_;
  std::vector<Occupant> occupants_;  // placements, then staging by launch
  std::vector<uint32_t> occupant_of_buffer_;
  std::vector<uint32_t> occupant_of_launch_;
  std::vector<Visit> visits_;             // in witness order
  std::vector<std::vector<User>> users_;  // by occupant
  absl::btree_map<uint64_t, Held> held_;  // by first byte
};

}  // namespace

absl::Status VerifyArena(const Plan& plan, const Witness& witness,
                         HappensBefore* order) {
  return ArenaVerifier(plan, witness, order).Run();
}

}  // namespace commsched
