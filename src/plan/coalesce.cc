#include "plan/coalesce.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "plan/align.h"
#include "plan/coding.h"
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

// Whether no collective's memory demands anything.
bool DemandsNothing(const Graph& graph) {
  return !graph.has_tiles() &&
         std::none_of(graph.buffers().begin(), graph.buffers().end(),
                      [](const Buffer& buffer) {
                        return buffer.ownership == Ownership::kLateBound;
                      });
}

// What the memory of a collective's sides demands.
enum class Demand : uint8_t {
  kNone,
  kCopies,   // a side is a tile: its rows are put side by side
  kNoCopies  // a side is late-bound: its address is not known yet
};

// No more than partition would leave whole.
uint64_t LimitOf(const PlanOptions& options) {
  return options.partition_bytes == 0
             ? options.coalesce_bytes
             : std::min(options.coalesce_bytes, options.partition_bytes);
}

// The launches of one role.
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
        demands_nothing_(DemandsNothing(graph)),
        launch_of_op_(graph.ops().size(), Plan::kNone),
        first_edge_(graph.ops().size() + 1, 0),
        edges_(dependencies.edges) {
    for (const Dependency& edge : edges_) ++first_edge_[edge.to.value() + 1];
    for (size_t i = 1; i < first_edge_.size(); ++i) {
      first_edge_[i] += first_edge_[i - 1];
    }
  }

  // Why the open launch grows no further; kNone: it does.
  struct Obstacle {
    LaunchReason::End end = LaunchReason::End::kNone;
    OpId needer;
  };

  // What no policy can overrule.
  Obstacle Illegal(OpId op) const {
    if (launches_.empty()) return {End::kLast, OpId()};
    const CollectiveSpec& next = graph_.op(op).collective;
    const End difference = Difference(launches_.back(), next);
    if (difference != End::kNone) return {difference, OpId()};
    if (!MayTravelTogether(launches_.back(), graph_.op(op))) {
      return {End::kTile, OpId()};
    }
    if (order_.ready[op.value()] > first_need_) {
      return {End::kNeeded, order_.host[first_need_]};
    }
    if (DependsOnOpen(op)) return {End::kDependent, OpId()};
    return {};
  }

  // Whether `op`, which may join, shall.
  absl::StatusOr<Obstacle> Decide(OpId op, const Obstacle& illegal) const {
    if (launches_.empty()) return illegal;
    if (limit_ == 0 && options_.policy == nullptr) {
      return Obstacle{End::kMergingOff, OpId()};
    }
    const Obstacle ours =
        illegal.end == End::kNone ? Obstacle{TooMuch(op), OpId()} : illegal;
    return options_.policy == nullptr ? ours : AskPolicy(op, illegal, ours);
  }

  // Of the sends and receives of this role in one event.
  Obstacle NotOfTick(absl::Span<const RoleOp> event) const {
    uint32_t due = 0;
    uint32_t need = PlannedOrder::kNone;
    for (const RoleOp& each : event) {
      const Obstacle illegal = Illegal(each.op);
      if (illegal.end != End::kNone) return illegal;
      due = std::max(due, order_.ready[each.op.value()]);
      need = std::min(need, order_.first_need[each.op.value()]);
    }
    if (due > ready_) return {End::kLater, OpId()};
    if (need > first_need_) return {End::kWanted, OpId()};
    return {};
  }

  // Decides the way of the open launch, which `next` does not join.
  void Close(const Obstacle& obstacle, OpId next) {
    if (launches_.empty()) return;
    Launch& launch = launches_.back();
    launch.reason.end = obstacle.end;
    launch.reason.next = next;
    launch.reason.needer = obstacle.needer;
    launch.reason.limit_bytes = limit_;
    if (launch.coded) {
      launch.reason.how = How::kCoded;
      SetCoded(&launch);
    } else if (HasTile(launch)) {
      launch.reason.how = How::kTile;
      SetPacked(&launch);
    } else if (IsPointToPoint(launch.kind)) {
      SetWayOfTick(&launch);
    } else if (launch.members.size() == 1) {
      launch.way = Way::kSingle;
      launch.reason.how = How::kAlone;
    } else if (SortIfContiguous(&launch)) {
      launch.way = Way::kInPlace;
      launch.reason.how = How::kOneRange;
    } else {
      ChooseListOrPack(&launch);
    }
  }

  void Open(OpId op, uint64_t key) {
    const CollectiveSpec& spec = graph_.op(op).collective;
    Launch& launch = launches_.emplace_back();
    launch.kind = IsPointToPoint(spec.kind) ? CollectiveKind::kSend : spec.kind;
    launch.group = spec.group;
    launch.dtype = DTypeOf(spec);
    launch.reduce_op = spec.reduce_op;
    launch.root = spec.root;
    launch.coded = IsCoded(graph_, spec, options_.codec);
    launch.key = key;
    first_need_ = PlannedOrder::kNone;
    ready_ = 0;
    priority_ = graph_.op(op).priority;
  }

  void Join(OpId op) {
    Launch& launch = launches_.back();
    launch.members.push_back(op);
    launch.weight_bytes += WeightOf(graph_.op(op).collective);
    launch_of_op_[op.value()] = static_cast<uint32_t>(launches_.size()) - 1;
    first_need_ = std::min(first_need_, order_.first_need[op.value()]);
    ready_ = std::max(ready_, order_.ready[op.value()]);
    priority_ = std::max(priority_, graph_.op(op).priority);
  }

  // Whether all members leave every way open.
  bool LeavesChoice(OpId op) const {
    return DemandOf(graph_.op(op)) == Demand::kNone &&
           !IsCoded(graph_, graph_.op(op).collective, options_.codec);
  }

  // For a launch that another role cannot send in place: members in key order,
  // as a list or packed.
  void TakeApart(Launch* launch) const {
    std::vector<uint32_t> position(graph_.ops().size(), 0);
    for (uint32_t i = 0; i < order_.collectives.size(); ++i) {
      position[order_.collectives[i].value()] = i;
    }
    std::sort(launch->members.begin(), launch->members.end(),
              [&](OpId a, OpId b) {
                return position[a.value()] < position[b.value()];
              });
    ChooseListOrPack(launch);
  }

  std::vector<Launch>& launches() { return launches_; }
  const Graph& graph() const { return graph_; }

 private:
  using End = LaunchReason::End;
  using How = LaunchReason::How;

  // The limits.
  End TooMuch(OpId op) const {
    if (limit_ == 0) return End::kMergingOff;
    const uint64_t weight = WeightOf(graph_.op(op).collective);
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
    item.bytes = WeightOf(op.collective);
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
    const bool tick = IsPointToPoint(launch.kind) && IsPointToPoint(next.kind);
    if (launch.kind != next.kind && !tick) return End::kKind;
    if (launch.kind == CollectiveKind::kBarrier) return End::kKind;
    if (launch.group != next.group) return End::kGroup;
    if (launch.dtype != DTypeOf(next)) return End::kDType;
    if (IsReducing(next.kind) && launch.reduce_op != next.reduce_op) {
      return End::kReduction;
    }
    if (IsRooted(next.kind) && launch.root != next.root) return End::kRoot;
    if (launch.coded != IsCoded(graph_, next, options_.codec)) {
      return End::kCodec;
    }
    return End::kNone;
  }

  // What travels, for the window (I3).
  uint64_t WeightOf(const CollectiveSpec& spec) const {
    if (!IsCoded(graph_, spec, options_.codec)) {
      return WeightBytes(graph_, spec);
    }
    const CodedSides sides = CodedSidesOf(graph_, spec, options_.codec);
    return std::max(sides.input, sides.output);
  }

  Demand DemandOf(const Op& op) const {
    if (demands_nothing_) return Demand::kNone;
    for (const Access& access : op.accesses) {
      if (access.region.kind == RegionKind::kTile) return Demand::kCopies;
      if (graph_.buffer(access.buffer).ownership == Ownership::kLateBound) {
        return Demand::kNoCopies;
      }
    }
    return Demand::kNone;
  }

  // Copies only for who needs them, and parts of uneven size only alone.
  bool MayTravelTogether(const Launch& launch, const Op& next) const {
    const Op& last = graph_.op(launch.members.back());
    const bool copies = DemandOf(next) == Demand::kCopies;
    if (copies != (DemandOf(last) == Demand::kCopies)) return false;
    return !copies ||
           (last.collective.counts.empty() && next.collective.counts.empty());
  }

  bool HasTile(const Launch& launch) const {
    return std::any_of(
        launch.members.begin(), launch.members.end(),
        [&](OpId op) { return DemandOf(graph_.op(op)) == Demand::kCopies; });
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

  // Each member progresses on its own, so it needs no common memory.
  void SetWayOfTick(Launch* launch) const {
    const bool single = launch->members.size() == 1;
    launch->way = single ? Way::kSingle : Way::kGroup;
    launch->reason.how = single ? How::kAlone : How::kTick;
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
    const int64_t list_ns =
        kMemberOverheadNs * static_cast<int64_t>(launch->members.size() - 1);
    const int64_t pack_ns = CopyNs(bytes, profile_);
    launch->reason.how =
        pack_ns < list_ns ? How::kPackIsLess : How::kListIsLess;
    launch->reason.pack_ns = pack_ns;
    launch->reason.list_ns = list_ns;
    if (pack_ns < list_ns) SetPacked(launch);
  }

  void SetCoded(Launch* launch) const {
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

  void SetPacked(Launch* launch) const {
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

  const Graph& graph_;
  const PlannedOrder& order_;
  const PlanOptions& options_;
  const CostProfile& profile_;
  const uint64_t limit_;
  const bool demands_nothing_;  // any collective, of its memory
  std::vector<uint32_t> launch_of_op_;
  std::vector<uint32_t> first_edge_;  // by target op, in edges_
  const std::vector<Dependency>& edges_;

  std::vector<Launch> launches_;  // the last one is open; of that one:
  uint32_t first_need_ = PlannedOrder::kNone;
  uint32_t ready_ = 0;
  int priority_ = 0;
};

// All roles along the one order.
class JobCoalescer {
 public:
  JobCoalescer(absl::Span<const RoleSpec> roles,
               absl::Span<const Dependencies* const> dependencies,
               const JobOrder& job, const PlanOptions& options)
      : job_(job) {
    roles_.reserve(roles.size());
    for (size_t r = 0; r < roles.size(); ++r) {
      roles_.emplace_back(*roles[r].graph, *dependencies[r], job.roles[r],
                          options, roles[r].profile);
    }
  }

  absl::StatusOr<std::vector<std::vector<Launch>>> Run() {
    for (uint32_t e = 0; e < job_.num_events(); ++e) {
      const absl::Span<const RoleOp> event = job_.Event(e);
      if (IsPointToPoint(KindOf(event.front()))) {
        AddPair(event, e * kKeyStride);
      } else {
        RETURN_IF_ERROR(AddCollective(event, e * kKeyStride));
      }
    }
    std::vector<std::vector<Launch>> launches;
    for (Coalescer& role : roles_) role.Close({End::kLast, OpId()}, OpId());
    if (roles_.size() > 1) AgreeOnWays();
    for (Coalescer& role : roles_) {
      launches.push_back(std::move(role.launches()));
    }
    return launches;
  }

 private:
  using End = LaunchReason::End;
  using Obstacle = Coalescer::Obstacle;

  CollectiveKind KindOf(RoleOp which) const {
    return roles_[which.role].graph().op(which.op).collective.kind;
  }

  absl::Status AddCollective(absl::Span<const RoleOp> event, uint64_t key) {
    // What the others say counts for the first, who decides.
    Obstacle illegal = roles_[event[0].role].Illegal(event[0].op);
    for (size_t i = 1; i < event.size() && illegal.end == End::kNone; ++i) {
      const Coalescer& role = roles_[event[i].role];
      if (role.Illegal(event[i].op).end != End::kNone ||
          !role.LeavesChoice(event[i].op)) {
        illegal.end = End::kOtherRole;
      }
    }
    if (event.size() > 1 && illegal.end == End::kNone &&
        !roles_[event[0].role].LeavesChoice(event[0].op)) {
      illegal.end = End::kOtherRole;
    }
    ASSIGN_OR_RETURN(const Obstacle obstacle,
                     roles_[event[0].role].Decide(event[0].op, illegal));
    for (const RoleOp& each : event) {
      Coalescer& role = roles_[each.role];
      if (obstacle.end != End::kNone) {
        // Another role's ops mean nothing here.
        Obstacle own = obstacle;
        if (!(each == event[0])) {
          own = role.Illegal(each.op);
          if (own.end == End::kNone) own.end = End::kOtherRole;
        }
        role.Close(own, each.op);
        role.Open(each.op, key);
      }
      role.Join(each.op);
    }
    return absl::OkStatus();
  }

  // Each role decides for itself.
  void AddPair(absl::Span<const RoleOp> event, uint64_t key) {
    while (!event.empty()) {
      size_t own = 1;
      while (own < event.size() && event[own].role == event[0].role) ++own;
      Coalescer& role = roles_[event[0].role];
      const absl::Span<const RoleOp> ops = event.first(own);
      const Obstacle obstacle = role.NotOfTick(ops);
      if (obstacle.end != End::kNone) {
        role.Close(obstacle, ops[0].op);
        role.Open(ops[0].op, key);
      }
      for (const RoleOp& each : ops) role.Join(each.op);
      event.remove_prefix(own);
    }
  }

  // A launch of several roles, which have it at the same key, travels in place
  // only if it can in all of them, else as it would in the first.
  void AgreeOnWays() {
    std::map<uint64_t, std::vector<std::pair<size_t, Launch*>>> shared;
    for (size_t r = 0; r < roles_.size(); ++r) {
      for (Launch& launch : roles_[r].launches()) {
        if (launch.members.size() == 1 || IsPointToPoint(launch.kind)) continue;
        shared[launch.key].push_back({r, &launch});
      }
    }
    for (auto& [key, launches] : shared) {
      if (launches.size() == 1 || AllInOneOrder(launches)) continue;
      for (auto& [role, launch] : launches) roles_[role].TakeApart(launch);
      const Launch& first = *launches.front().second;
      for (auto& [role, launch] : launches) {
        launch->way = first.way;
        launch->staging_bytes = first.staging_bytes;
        launch->staging_output = first.staging_output;
        launch->reason.how = first.reason.how;
        launch->reason.pack_ns = first.reason.pack_ns;
        launch->reason.list_ns = first.reason.list_ns;
      }
    }
  }

  bool AllInOneOrder(
      const std::vector<std::pair<size_t, Launch*>>& launches) const {
    auto names = [&](const std::pair<size_t, Launch*>& which) {
      std::vector<absl::string_view> result;
      for (OpId op : which.second->members) {
        result.push_back(roles_[which.first].graph().op(op).name);
      }
      return result;
    };
    return std::all_of(launches.begin(), launches.end(), [&](const auto& each) {
      return each.second->way == Way::kInPlace &&
             names(each) == names(launches.front());
    });
  }

  const JobOrder& job_;
  std::vector<Coalescer> roles_;
};

}  // namespace

absl::StatusOr<std::vector<std::vector<Launch>>> Coalesce(
    absl::Span<const RoleSpec> roles,
    absl::Span<const Dependencies* const> dependencies, const JobOrder& job,
    const PlanOptions& options) {
  return JobCoalescer(roles, dependencies, job, options).Run();
}

}  // namespace commsched
