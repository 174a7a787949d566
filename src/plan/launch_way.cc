#include "plan/launch_way.h"

#include <algorithm>
#include <vector>

#include "graph/collective_shape.h"
#include "plan/align.h"
#include "plan/coding.h"
#include "plan/launch_reason.h"
#include "plan/predict/cost_model.h"

namespace commsched {
namespace {

using How = LaunchReason::How;

// What an access covers, if it is one range, the same on all ranks.
struct FixedRange {
  BufferId buffer;
  uint64_t offset = 0;
  uint64_t count = 0;
};

bool FixedRangeOf(const Graph& graph, const Access& access, FixedRange* out) {
  switch (access.region.kind) {
    case RegionKind::kShard:
    case RegionKind::kTile:
      return false;
    case RegionKind::kWhole:
      *out = {access.buffer, 0, graph.buffer(access.buffer).count};
      return true;
    case RegionKind::kRange:
      *out = {access.buffer, access.region.offset, access.region.count};
      return true;
  }
  return false;
}

bool HasOneRange(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce ||
         kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce;
}

// Whether no collective's memory demands anything.
bool DemandsNothing(const Graph& graph) {
  return !graph.has_tiles() &&
         std::none_of(graph.buffers().begin(), graph.buffers().end(),
                      [](const Buffer& buffer) {
                        return buffer.ownership == Ownership::kLateBound;
                      });
}

// Each member of a pipeline tick progresses on its own, so it needs no common
// memory.
void SetWayOfTick(Launch* launch) {
  const bool single = launch->members.size() == 1;
  launch->way = single ? Way::kSingle : Way::kGroup;
  launch->reason.how = single ? How::kAlone : How::kTick;
}

}  // namespace

LaunchWays::LaunchWays(const Graph& graph, const PlanOptions& options,
                       const CostProfile& profile)
    : graph_(graph),
      options_(options),
      profile_(profile),
      takes_lists_(options.backend.lists),
      demands_nothing_(DemandsNothing(graph)) {}

bool LaunchWays::IsCoded(const CollectiveSpec& spec) const {
  return commsched::IsCoded(graph_, spec, options_);
}

uint64_t LaunchWays::PayloadOf(const CollectiveSpec& spec) const {
  if (!IsCoded(spec)) {
    return PayloadBytes(graph_, spec);
  }
  const CodedSides sides = CodedSidesOf(graph_, spec, options_.codec);
  return std::max(sides.input, sides.output);
}

bool LaunchWays::LeavesChoice(OpId op) const {
  return DemandOf(graph_.op(op)) == Demand::kNone &&
         !IsCoded(graph_.op(op).collective);
}

bool LaunchWays::NeedsList(OpId op) const {
  return !graph_.op(op).collective.counts.empty() ||
         DemandOf(graph_.op(op)) == Demand::kNoCopies;
}

bool LaunchWays::MayTravelTogether(OpId last, OpId next) const {
  const Op& a = graph_.op(last);
  const Op& b = graph_.op(next);
  const bool copies = DemandOf(b) == Demand::kCopies;
  if (copies != (DemandOf(a) == Demand::kCopies)) return false;
  return !copies ||
         (a.collective.counts.empty() && b.collective.counts.empty());
}

void LaunchWays::Choose(Launch* launch) const {
  if (launch->coded) {
    launch->reason.how = How::kCoded;
    SetCoded(launch);
  } else if (HasTile(*launch)) {
    launch->reason.how = How::kTile;
    SetPacked(launch);
  } else if (IsPointToPoint(launch->kind)) {
    SetWayOfTick(launch);
  } else if (launch->members.size() == 1) {
    launch->way = Way::kSingle;
    launch->reason.how = How::kAlone;
  } else if (SortIfContiguous(launch)) {
    launch->way = Way::kInPlace;
    launch->reason.how = How::kOneRange;
  } else {
    ChooseListOrPack(launch);
  }
}

// A list costs the backend an overhead per member, packing two copies.
void LaunchWays::ChooseListOrPack(Launch* launch) const {
  uint64_t bytes = 0;
  bool uneven = false;
  bool late_bound = false;
  for (OpId op : launch->members) {
    const CollectiveSpec& spec = graph_.op(op).collective;
    bytes += InputBytes(graph_, spec) + OutputBytes(graph_, spec);
    uneven = uneven || !spec.counts.empty();
    late_bound = late_bound || DemandOf(graph_.op(op)) == Demand::kNoCopies;
  }
  launch->way = Way::kGroup;
  if (uneven || late_bound) {
    launch->reason.how = uneven ? How::kUneven : How::kLateBound;
    return;
  }
  if (!takes_lists_) {
    launch->reason.how = How::kNoLists;
    SetPacked(launch);
    return;
  }
  const int64_t list_ns =
      kMemberOverheadNs * static_cast<int64_t>(launch->members.size() - 1);
  const int64_t pack_ns = CopyNs(bytes, profile_);
  launch->reason.how = pack_ns < list_ns ? How::kPackIsLess : How::kListIsLess;
  launch->reason.pack_ns = pack_ns;
  launch->reason.list_ns = list_ns;
  if (pack_ns < list_ns) SetPacked(launch);
}

LaunchWays::Demand LaunchWays::DemandOf(const Op& op) const {
  if (demands_nothing_) return Demand::kNone;
  for (const Access& access : op.accesses) {
    if (access.region.kind == RegionKind::kTile) return Demand::kCopies;
    if (graph_.buffer(access.buffer).ownership == Ownership::kLateBound) {
      return Demand::kNoCopies;
    }
  }
  return Demand::kNone;
}

bool LaunchWays::HasTile(const Launch& launch) const {
  return std::any_of(
      launch.members.begin(), launch.members.end(),
      [&](OpId op) { return DemandOf(graph_.op(op)) == Demand::kCopies; });
}

// Whether inputs and outputs each make up one range of one buffer. If so, the
// members are put in order of address.
bool LaunchWays::SortIfContiguous(Launch* launch) const {
  if (!HasOneRange(launch->kind)) return false;
  struct Member {
    FixedRange input, output;
    OpId op;
  };
  std::vector<Member> members;
  for (OpId op : launch->members) {
    const CollectiveSpec& spec = graph_.op(op).collective;
    Member member;
    member.op = op;
    if (!FixedRangeOf(graph_, spec.input, &member.input) ||
        !FixedRangeOf(graph_, spec.output, &member.output)) {
      return false;
    }
    members.push_back(member);
  }
  std::sort(members.begin(), members.end(),
            [](const Member& a, const Member& b) {
              return a.input.offset < b.input.offset;
            });
  auto follows = [](const FixedRange& next, const FixedRange& range) {
    return next.buffer == range.buffer &&
           next.offset == range.offset + range.count;
  };
  for (size_t i = 1; i < members.size(); ++i) {
    if (!follows(members[i].input, members[i - 1].input) ||
        !follows(members[i].output, members[i - 1].output)) {
      return false;
    }
  }
  for (size_t i = 0; i < members.size(); ++i) {
    launch->members[i] = members[i].op;
  }
  return true;
}

void LaunchWays::SetCoded(Launch* launch) const {
  CodedSides all;
  for (OpId op : launch->members) {
    const CodedSides sides =
        CodedSidesOf(graph_, graph_.op(op).collective, options_.codec);
    all.input += sides.input;
    all.output += sides.output;
  }
  launch->way = Way::kPack;
  launch->staging_output = AlignUp(all.input);  // relative until placed
  launch->staging_bytes = launch->staging_output + all.output;
}

void LaunchWays::SetPacked(Launch* launch) const {
  uint64_t input = 0;
  uint64_t output = 0;
  for (OpId op : launch->members) {
    const CollectiveSpec& spec = graph_.op(op).collective;
    input += InputBytes(graph_, spec);
    output += OutputBytes(graph_, spec);
  }
  launch->way = Way::kPack;
  launch->staging_output = AlignUp(input);  // relative until placed
  launch->staging_bytes = launch->staging_output + output;
}

}  // namespace commsched
