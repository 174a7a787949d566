#include "plan/coalesce.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "plan/align.h"
#include "plan/cost_model.h"
#include "plan/launch_reason.h"
#include "plan/policy.h"

namespace commsched {
namespace {

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

// No more than partition would leave whole.
uint64_t LimitOf(const PlanOptions& options) {
  return options.partition_bytes == 0
             ? options.coalesce_bytes
             : std::min(options.coalesce_bytes, options.partition_bytes);
}

class Coalescer {
 public:
  Coalescer(const Graph& graph, const Dependencies& dependencies,
            const PlannedOrder& order, const PlanOptions& options,
            const CostProfile& profile)
      : graph_(graph),
        order_(order),
        options_(options),
        profile_(profile),
        limit_(LimitOf(options)),
        launch_of_op_(graph.ops().size(), Plan::kNone),
        first_edge_(graph.ops().size() + 1, 0),
        edges_(dependencies.edges) {
    for (const Dependency& edge : edges_) ++first_edge_[edge.to.value() + 1];
    for (size_t i = 1; i < first_edge_.size(); ++i) {
      first_edge_[i] += first_edge_[i - 1];
    }
  }

  absl::StatusOr<std::vector<Launch>> Run() {
    for (OpId op : order_.collectives) {
      Obstacle obstacle{End::kLast, OpId()};
      if (!launches_.empty()) {
        ASSIGN_OR_RETURN(obstacle, Decide(op));
      }
      if (obstacle.end != End::kNone) {
        Close(obstacle, op);
        Open(op);
      }
      Join(op);
    }
    Close({End::kLast, OpId()}, OpId());
    return std::move(launches_);
  }

 private:
  using End = LaunchReason::End;
  using How = LaunchReason::How;

  // Why the open launch grows no further; kNone: it does.
  struct Obstacle {
    End end = End::kNone;
    OpId needer;
  };

  absl::StatusOr<Obstacle> Decide(OpId op) const {
    if (limit_ == 0 && options_.policy == nullptr) {
      return Obstacle{End::kMergingOff, OpId()};
    }
    const Obstacle illegal = Illegal(op);
    const Obstacle ours =
        illegal.end == End::kNone ? Obstacle{TooMuch(op), OpId()} : illegal;
    return options_.policy == nullptr ? ours : AskPolicy(op, illegal, ours);
  }

  // What no policy can overrule.
  Obstacle Illegal(OpId op) const {
    const CollectiveSpec& next = graph_.op(op).collective;
    const End difference = Difference(launches_.back(), next);
    if (difference != End::kNone) return {difference, OpId()};
    if (order_.ready[op.value()] > first_need_) {
      return {End::kNeeded, order_.host[first_need_]};
    }
    if (DependsOnOpen(op)) return {End::kDependent, OpId()};
    return {};
  }

  // The limits.
  End TooMuch(OpId op) const {
    if (limit_ == 0) return End::kMergingOff;
    const uint64_t weight = WeightBytes(graph_, graph_.op(op).collective);
    const bool fits =
        weight <= limit_ && launches_.back().weight_bytes <= limit_ - weight;
    return fits ? End::kNone : End::kLimit;
  }

  absl::StatusOr<Obstacle> AskPolicy(OpId op, const Obstacle& illegal,
                                     const Obstacle& ours) const {
    const Launch& open = launches_.back();
    MergeQuestion question;
    question.open = ItemOf(open.members.front());
    question.open.num_members = static_cast<uint32_t>(open.members.size());
    question.open.bytes = open.weight_bytes;
    question.open.link_ns = LinkNs(graph_, open, profile_);
    question.open.priority = priority_;
    question.open.ready = ready_;
    question.open.first_need = first_need_;
    question.next = ItemOf(op);
    question.limit_bytes = options_.coalesce_bytes;
    question.legal = illegal.end == End::kNone;
    question.ours = ours.end == End::kNone;
    const absl::StatusOr<MergeAnswer> answer = options_.policy->Merge(question);
    if (!answer.ok()) {
      return absl::Status(
          answer.status().code(),
          absl::StrCat("policy '", options_.policy->name(), "' on '",
                       question.open.name, "' and '", question.next.name,
                       "': ", answer.status().message()));
    }
    if (*answer == MergeAnswer::kOurs) return ours;
    if (*answer == MergeAnswer::kSplit) return Obstacle{End::kPolicy, OpId()};
    if (question.legal) return Obstacle{};
    return absl::InvalidArgumentError(absl::StrCat(
        "policy '", options_.policy->name(), "' merges '", question.next.name,
        "' with '", question.open.name, "', which must stay apart: ",
        EndText(graph_, illegal.end, op, illegal.needer, limit_)));
  }

  PolicyItem ItemOf(OpId id) const {
    const Op& op = graph_.op(id);
    const Group& group = graph_.group(op.collective.group);
    PolicyItem item;
    item.op = id;
    item.name = op.name;
    item.kind = op.collective.kind;
    item.dtype = DTypeOf(op.collective);
    item.group = group.name;
    item.group_size = static_cast<uint32_t>(group.size);
    item.bytes = WeightBytes(graph_, op.collective);
    item.link_ns = LinkNs(item.kind, group.size, item.bytes, profile_);
    item.priority = op.priority;
    item.ready = order_.ready[id.value()];
    item.first_need = order_.first_need[id.value()];
    return item;
  }

  DType DTypeOf(const CollectiveSpec& spec) const {
    if (spec.kind == CollectiveKind::kBarrier) return DType::kF32;
    const BufferId buffer = spec.kind == CollectiveKind::kRecv
                                ? spec.output.buffer
                                : spec.input.buffer;
    return graph_.buffer(buffer).dtype;
  }

  End Difference(const Launch& launch, const CollectiveSpec& next) const {
    if (launch.kind != next.kind) return End::kKind;
    if (launch.kind == CollectiveKind::kBarrier) return End::kKind;
    if (launch.group != next.group) return End::kGroup;
    if (launch.dtype != DTypeOf(next)) return End::kDType;
    if (IsReducing(next.kind) && launch.reduce_op != next.reduce_op) {
      return End::kReduction;
    }
    if (IsRooted(next.kind) && launch.root != next.root) return End::kRoot;
    return End::kNone;
  }

  bool DependsOnOpen(OpId op) const {
    const uint32_t open = static_cast<uint32_t>(launches_.size()) - 1;
    for (uint32_t e = first_edge_[op.value()]; e < first_edge_[op.value() + 1];
         ++e) {
      const Dependency& edge = edges_[e];
      if (edge.distance == 0 && launch_of_op_[edge.from.value()] == open) {
        return true;
      }
    }
    return false;
  }

  void Open(OpId op) {
    const CollectiveSpec& spec = graph_.op(op).collective;
    Launch launch;
    launch.kind = spec.kind;
    launch.group = spec.group;
    launch.dtype = DTypeOf(spec);
    launch.reduce_op = spec.reduce_op;
    launch.root = spec.root;
    launches_.push_back(std::move(launch));
    first_need_ = PlannedOrder::kNone;
    ready_ = 0;
    priority_ = graph_.op(op).priority;
  }

  void Join(OpId op) {
    Launch& launch = launches_.back();
    launch.members.push_back(op);
    launch.weight_bytes += WeightBytes(graph_, graph_.op(op).collective);
    launch_of_op_[op.value()] = static_cast<uint32_t>(launches_.size()) - 1;
    first_need_ = std::min(first_need_, order_.first_need[op.value()]);
    ready_ = std::max(ready_, order_.ready[op.value()]);
    priority_ = std::max(priority_, graph_.op(op).priority);
  }

  // Decides the way of the open launch, which `next` does not join.
  void Close(const Obstacle& obstacle, OpId next) {
    if (launches_.empty()) return;
    Launch& launch = launches_.back();
    launch.reason.end = obstacle.end;
    launch.reason.next = next;
    launch.reason.needer = obstacle.needer;
    launch.reason.limit_bytes = limit_;
    if (launch.members.size() == 1) {
      launch.way = Way::kSingle;
      launch.reason.how = How::kAlone;
    } else if (SortIfContiguous(&launch)) {
      launch.way = Way::kInPlace;
      launch.reason.how = How::kOneRange;
    } else {
      ChooseListOrPack(&launch);
    }
  }

  // Whether inputs and outputs each make up one range of one buffer. If so, the
  // members are put in order of address.
  bool SortIfContiguous(Launch* launch) const {
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

  // A list costs the backend an overhead per member, packing two copies.
  void ChooseListOrPack(Launch* launch) const {
    uint64_t input = 0;
    uint64_t output = 0;
    bool uneven = false;
    for (OpId op : launch->members) {
      const CollectiveSpec& spec = graph_.op(op).collective;
      input += InputBytes(graph_, spec);
      output += OutputBytes(graph_, spec);
      uneven = uneven || !spec.counts.empty();
    }
    launch->way = Way::kGroup;
    if (uneven) {
      launch->reason.how = How::kUneven;
      return;
    }
    const int64_t list_ns =
        kMemberOverheadNs * static_cast<int64_t>(launch->members.size() - 1);
    const int64_t pack_ns = CopyNs(input + output, profile_);
    launch->reason.how =
        pack_ns < list_ns ? How::kPackIsLess : How::kListIsLess;
    launch->reason.pack_ns = pack_ns;
    launch->reason.list_ns = list_ns;
    if (pack_ns >= list_ns) return;
    launch->way = Way::kPack;
    launch->staging_output = AlignUp(input);  // relative until placed
    launch->staging_bytes = launch->staging_output + output;
  }

  const Graph& graph_;
  const PlannedOrder& order_;
  const PlanOptions& options_;
  const CostProfile& profile_;
  const uint64_t limit_;
  std::vector<uint32_t> launch_of_op_;
  std::vector<uint32_t> first_edge_;  // by target op, in edges_
  const std::vector<Dependency>& edges_;

  std::vector<Launch> launches_;  // the last one is open; of that one:
  uint32_t first_need_ = PlannedOrder::kNone;
  uint32_t ready_ = 0;
  int priority_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<Launch>> Coalesce(const Graph& graph,
                                             const Dependencies& dependencies,
                                             const PlannedOrder& order,
                                             const PlanOptions& options,
                                             const CostProfile& profile) {
  return Coalescer(graph, dependencies, order, options, profile).Run();
}

}  // namespace commsched
