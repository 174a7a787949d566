#include "plan/role_coalescer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "graph/collective_shape.h"
#include "plan/explain/launch_reason_text.h"
#include "plan/launch_reason.h"
#include "plan/predict/cost_model.h"

namespace commsched {
namespace {

// No more than partition would leave whole.
uint64_t LimitOf(const PlanOptions& options) {
  return options.partition_bytes == 0
             ? options.coalesce_bytes
             : std::min(options.coalesce_bytes, options.partition_bytes);
}

}  // namespace

RoleCoalescer::RoleCoalescer(const Graph& graph,
                             const Dependencies& dependencies,
                             const PlannedOrder& order,
                             const PlanOptions& options,
                             const CostProfile& profile, End off)
    : graph_(graph),
      dependencies_(dependencies),
      order_(order),
      options_(options),
      profile_(profile),
      limit_(LimitOf(options)),
      off_(off),
      ways_(graph, options, profile),
      launch_of_op_(graph.ops().size(), Plan::kNone) {}

RoleCoalescer::Obstacle RoleCoalescer::Illegal(OpId op) const {
  if (launches_.empty()) return {End::kLast, OpId()};
  const CollectiveSpec& next = graph_.op(op).collective;
  const End difference = Difference(launches_.back(), next);
  if (difference != End::kNone) return {difference, OpId()};
  if (!ways_.MayTravelTogether(launches_.back().members.back(), op)) {
    return {End::kTile, OpId()};
  }
  if (WouldBeList(op)) return {End::kNoLists, OpId()};
  if (order_.ready[op.value()] > first_need_) {
    return {End::kNeeded, order_.host[first_need_]};
  }
  if (DependsOnOpen(op)) return {End::kDependent, OpId()};
  return {};
}

// That the backend does not take. Sends and receives are lists anyway.
bool RoleCoalescer::WouldBeList(OpId op) const {
  const Launch& open = launches_.back();
  if (ways_.backend_takes_lists() || IsPointToPoint(open.kind)) return false;
  return ways_.NeedsList(op) || ways_.NeedsList(open.members.back());
}

absl::StatusOr<RoleCoalescer::Obstacle> RoleCoalescer::Decide(
    OpId op, const Obstacle& illegal, const Obstacle* by_cost) const {
  if (launches_.empty()) return illegal;
  if (limit_ == 0 && off_ == End::kMergingOff && options_.policy == nullptr) {
    return Obstacle{End::kMergingOff, OpId()};
  }
  Obstacle ours = illegal;
  if (ours.end == End::kNone) ours.end = TooMuch(op);
  if (ours.end == End::kNone && by_cost != nullptr) ours = *by_cost;
  return options_.policy == nullptr ? ours : AskPolicy(op, illegal, ours);
}

RoleCoalescer::Obstacle RoleCoalescer::NotOfTick(
    absl::Span<const RoleOp> event) const {
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

void RoleCoalescer::Close(const Obstacle& obstacle, OpId next) {
  if (launches_.empty()) return;
  Launch& launch = launches_.back();
  launch.reason.end = obstacle.end;
  launch.reason.next = next;
  launch.reason.needer = obstacle.needer;
  launch.reason.limit_bytes = limit_;
  launch.reason.next_saved_ns = obstacle.saved_ns;
  launch.reason.next_late_ns = obstacle.late_ns;
  launch.reason.next_merged_ns = obstacle.merged_ns;
  ways_.Choose(&launch);
}

void RoleCoalescer::Open(OpId op, uint64_t key) {
  const CollectiveSpec& spec = graph_.op(op).collective;
  Launch& launch = launches_.emplace_back();
  launch.kind = IsPointToPoint(spec.kind) ? CollectiveKind::kSend : spec.kind;
  launch.group = spec.group;
  launch.dtype = DTypeOf(spec);
  launch.reduce_op = spec.reduce_op;
  launch.root = spec.root;
  launch.coded = ways_.IsCoded(spec);
  launch.key = key;
  first_need_ = PlannedOrder::kNone;
  ready_ = 0;
  priority_ = graph_.op(op).priority;
}

void RoleCoalescer::Join(OpId op) {
  Launch& launch = launches_.back();
  launch.members.push_back(op);
  launch.payload_bytes += ways_.PayloadOf(graph_.op(op).collective);
  launch_of_op_[op.value()] = static_cast<uint32_t>(launches_.size()) - 1;
  first_need_ = std::min(first_need_, order_.first_need[op.value()]);
  ready_ = std::max(ready_, order_.ready[op.value()]);
  priority_ = std::max(priority_, graph_.op(op).priority);
}

void RoleCoalescer::Explain(const Obstacle& by_cost) {
  LaunchReason& reason = launches_.back().reason;
  reason.by_cost = true;
  reason.saved_ns += by_cost.saved_ns;
  reason.late_ns += by_cost.late_ns;
}

void RoleCoalescer::TakeApart(absl::Span<Launch* const> launches) const {
  std::vector<uint32_t> position(graph_.ops().size(), 0);
  for (uint32_t i = 0; i < order_.collectives.size(); ++i) {
    position[order_.collectives[i].value()] = i;
  }
  const auto before = [&](OpId a, OpId b) {
    return position[a.value()] < position[b.value()];
  };
  for (Launch* launch : launches) {
    std::sort(launch->members.begin(), launch->members.end(), before);
    ways_.ChooseListOrPack(launch);
  }
}

// The limits.
LaunchReason::End RoleCoalescer::TooMuch(OpId op) const {
  if (limit_ == 0) return off_;
  const uint64_t payload = ways_.PayloadOf(graph_.op(op).collective);
  const bool fits =
      payload <= limit_ && launches_.back().payload_bytes <= limit_ - payload;
  return fits ? End::kNone : End::kLimit;
}

absl::StatusOr<RoleCoalescer::Obstacle> RoleCoalescer::AskPolicy(
    OpId op, const Obstacle& illegal, const Obstacle& ours) const {
  const Launch& open = launches_.back();
  MergeQuestion question;
  question.open = ItemOf(open.members.front());
  question.open.num_members = static_cast<uint32_t>(open.members.size());
  question.open.bytes = open.payload_bytes;
  question.open.link_ns = LinkNs(graph_, open, profile_);
  question.open.priority = priority_;
  question.open.ready = ready_;
  question.open.first_need = first_need_;
  question.next = ItemOf(op);
  const bool by_cost = off_ != End::kMergingOff;
  question.limit_bytes = by_cost ? 0 : options_.coalesce_bytes;
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

PolicyItem RoleCoalescer::ItemOf(OpId id) const {
  const Op& op = graph_.op(id);
  const Group& group = graph_.group(op.collective.group);
  PolicyItem item;
  item.op = id;
  item.name = op.name;
  item.kind = op.collective.kind;
  item.dtype = DTypeOf(op.collective);
  item.group = group.name;
  item.group_size = static_cast<uint32_t>(group.size);
  item.bytes = ways_.PayloadOf(op.collective);
  item.link_ns = LinkNs(item.kind, group.size, item.bytes, profile_);
  item.priority = op.priority;
  item.ready = order_.ready[id.value()];
  item.first_need = order_.first_need[id.value()];
  return item;
}

DType RoleCoalescer::DTypeOf(const CollectiveSpec& spec) const {
  if (spec.kind == CollectiveKind::kBarrier) return DType::kF32;
  return graph_.buffer(AnySide(spec).buffer).dtype;
}

LaunchReason::End RoleCoalescer::Difference(const Launch& launch,
                                            const CollectiveSpec& next) const {
  const bool tick = IsPointToPoint(launch.kind) && IsPointToPoint(next.kind);
  if (launch.kind != next.kind && !tick) return End::kKind;
  if (launch.kind == CollectiveKind::kBarrier) return End::kKind;
  if (launch.group != next.group) return End::kGroup;
  if (launch.dtype != DTypeOf(next)) return End::kDType;
  if (IsReducing(next.kind) && launch.reduce_op != next.reduce_op) {
    return End::kReduction;
  }
  if (IsRooted(next.kind) && launch.root != next.root) return End::kRoot;
  if (launch.coded != ways_.IsCoded(next)) {
    return End::kCodec;
  }
  return End::kNone;
}

bool RoleCoalescer::DependsOnOpen(OpId op) const {
  const uint32_t open = static_cast<uint32_t>(launches_.size()) - 1;
  for (const Dependency& edge : dependencies_.Into(op)) {
    if (edge.distance == 0 && launch_of_op_[edge.from.value()] == open) {
      return true;
    }
  }
  return false;
}

}  // namespace commsched
