#include "graph/place_groups.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace commsched {
namespace {

constexpr uint32_t kNone = ~uint32_t{0};

// When a buffer is alive, in declared order.
struct Stay {
  uint32_t group = 0;
  BufferId buffer;
  uint32_t first = kNone;  // ops
  uint32_t last = 0;
  bool begins_whole = true;  // its first op writes all and reads nothing
};

bool WritesAllOnly(const Graph& graph, const Access& access) {
  const Region& region = access.region;
  return access.mode == AccessMode::kWrite &&
         (region.kind == RegionKind::kWhole ||
          (region.kind == RegionKind::kRange &&
           region.count == graph.buffer(access.buffer).count));
}

// Returns the stays of grouped buffers that an op accesses, by group and time.
std::vector<Stay> StaysOf(const Graph& graph) {
  std::vector<Stay> of_buffer(graph.buffers().size());
  for (uint32_t i = 0; i < graph.ops().size(); ++i) {
    for (const Access& access : graph.ops()[i].accesses) {
      Stay& stay = of_buffer[access.buffer.value()];
      if (stay.first == kNone) stay.first = i;
      stay.last = i;
      if (stay.first != i) continue;
      stay.begins_whole = stay.begins_whole && WritesAllOnly(graph, access);
    }
  }
  std::vector<Stay> stays;
  for (uint32_t b = 0; b < of_buffer.size(); ++b) {
    const uint32_t group = graph.buffers()[b].place_group;
    if (group == 0 || of_buffer[b].first == kNone) continue;
    stays.push_back(of_buffer[b]);
    stays.back().group = group;
    stays.back().buffer = BufferId(b);
  }
  std::sort(stays.begin(), stays.end(), [](const Stay& a, const Stay& b) {
    return std::tie(a.group, a.first, a.buffer) <
           std::tie(b.group, b.first, b.buffer);
  });
  return stays;
}

class PlaceGroupCheck {
 public:
  explicit PlaceGroupCheck(const Graph& graph) : graph_(graph) {}

  // `b` follows `a` in their group.
  absl::Status CheckNeighbours(const Stay& a, const Stay& b) const {
    for (const Stay& stay : {a, b}) {
      if (stay.begins_whole) continue;
      return Overlap(a, b,
                     absl::StrCat(Name(stay), " keeps its contents from step ",
                                  "to step, as op ", Op(stay.first),
                                  ", the first to access it, does not write "
                                  "the whole of it unread"));
    }
    if (b.first > a.last) return absl::OkStatus();
    return Overlap(
        a, b,
        absl::StrCat("op ", Op(b.first), " begins ", Name(b), " before op ",
                     Op(a.last), " has used ", Name(a), " for the last time"));
  }

 private:
  std::string Name(const Stay& stay) const {
    return absl::StrCat("'", graph_.buffer(stay.buffer).name, "'");
  }
  std::string Op(uint32_t op) const {
    return absl::StrCat("'", graph_.ops()[op].name, "'");
  }

  absl::Status Overlap(const Stay& a, const Stay& b,
                       const std::string& why) const {
    return absl::InvalidArgumentError(
        absl::StrCat("buffers ", Name(a), " and ", Name(b), " of place group ",
                     a.group, " are alive at the same time: ", why));
  }

  const Graph& graph_;
};

}  // namespace

absl::Status CheckPlaceGroups(const Graph& graph) {
  if (!graph.has_place_groups()) return absl::OkStatus();
  const std::vector<Stay> stays = StaysOf(graph);
  const PlaceGroupCheck check(graph);
  for (size_t i = 1; i < stays.size(); ++i) {
    if (stays[i - 1].group != stays[i].group) continue;
    RETURN_IF_ERROR(check.CheckNeighbours(stays[i - 1], stays[i]));
  }
  return absl::OkStatus();
}

PlaceHistory::PlaceHistory(const Graph& graph) {
  absl::flat_hash_map<uint32_t, uint32_t> place_of_group;
  for (const Buffer& buffer : graph.buffers()) {
    if (buffer.place_group == 0) {
      place_of_buffer_.push_back(kNone);
      continue;
    }
    const auto added = place_of_group.try_emplace(
        buffer.place_group, static_cast<uint32_t>(place_of_group.size()));
    place_of_buffer_.push_back(added.first->second);
  }
  places_.resize(place_of_group.size());
}

absl::Span<const PlaceHistory::Time> PlaceHistory::Use(BufferId buffer,
                                                       Time now,
                                                       bool rewrites) {
  left_.clear();
  const uint32_t index = place_of_buffer_[buffer.value()];
  if (index == kNone) return left_;
  Place& place = places_[index];
  if (place.holder != buffer) {
    place.holder = buffer;
    place.rewritten = false;
    std::swap(left_, place.users);
  }
  // What follows a rewriting use comes after it, too.
  const bool again = !place.users.empty() && place.users.back() == now;
  if (rewrites || (place.rewritten && !again)) place.users.clear();
  place.rewritten = rewrites || (place.rewritten && again);
  if (rewrites || !again) place.users.push_back(now);
  return left_;
}

}  // namespace commsched
