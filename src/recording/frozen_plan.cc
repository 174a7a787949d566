#include "recording/frozen_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "plan/planner.h"

namespace commsched {
namespace {

constexpr char kWorldGroup[] = "commsched.world";
constexpr char kDeviation[] = "commsched.deviation";

class FrozenPlanner {
 public:
  explicit FrozenPlanner(const FrozenPlanSpec& spec)
      : spec_(spec),
        num_calls_(static_cast<uint32_t>(spec.order->calls.size())),
        held_behind_(num_calls_) {}

  absl::StatusOr<FrozenPlan> Run() {
    while (true) {
      FrozenPlan frozen;
      ASSIGN_OR_RETURN(const Graph graph, MakeGraph(&frozen));
      ASSIGN_OR_RETURN(frozen.plan,
                       BuildPlan(graph, spec_.options, spec_.profile));
      FindDueNeeded(&frozen);
      ASSIGN_OR_RETURN(const bool held, HoldBack(frozen));
      if (!held) return frozen;
    }
  }

 private:
  bool IsGated(uint32_t call) const {
    const uint32_t op = spec_.order->calls[call].op;
    return spec_.recorded.ops->op(OpId(op)).kind == OpKind::kCollective &&
           !(*spec_.early)[op];
  }

  absl::StatusOr<Graph> MakeGraph(FrozenPlan* frozen) const {
    const Graph& ops = *spec_.recorded.ops;
    Graph graph;
    graph.BindLateAtSubmit();
    for (const Group& group : ops.groups()) {
      RETURN_IF_ERROR(graph.AddGroup(group.name, group.size).status());
    }
    ASSIGN_OR_RETURN(const GroupId world,
                     graph.AddGroup(kWorldGroup, spec_.world_size));
    for (uint32_t i = 0; i < ops.buffers().size(); ++i) {
      Buffer buffer = ops.buffer(BufferId(i));
      if (ops.IsClear(BufferId(i))) buffer = Unused(i);
      RETURN_IF_ERROR(graph.AddBuffer(std::move(buffer)).status());
    }
    for (uint32_t call = 0; call < num_calls_; ++call) {
      RETURN_IF_ERROR(graph.AddOp(OpOf(call)).status());
      if (IsGated(call)) frozen->gated.push_back(OpId(call));
    }
    RETURN_IF_ERROR(AddDeviation(world, &graph, frozen));
    return graph;
  }

  // In place of a buffer that has been removed, so that the others keep their
  // ids. Nobody has to bind it.
  static Buffer Unused(uint32_t id) {
    Buffer buffer;
    buffer.name = absl::StrCat("commsched.removed.", id);
    buffer.dtype = DType::kU8;
    buffer.ownership = Ownership::kLateBound;
    buffer.count = 1;
    return buffer;
  }

  Op OpOf(uint32_t call) const {
    const FrozenCall& frozen = spec_.order->calls[call];
    Op op = spec_.recorded.ops->op(OpId(frozen.op));
    if (frozen.occurrence > 0) {
      op.name = absl::StrCat(op.name, "#", frozen.occurrence + 1);
    }
    if (held_behind_[call].valid()) op.after.push_back(held_behind_[call]);
    // What is left out of a step is left out as it is, without a codec.
    if (IsGated(call)) op.collective.lossy = false;
    return op;
  }

  absl::Status AddDeviation(GroupId world, Graph* graph,
                            FrozenPlan* frozen) const {
    Buffer flag;
    flag.dtype = DType::kI32;
    flag.ownership = Ownership::kBound;
    flag.count = 1;
    flag.name = absl::StrCat(kDeviation, ".in");
    ASSIGN_OR_RETURN(frozen->flag_in, graph->AddBuffer(flag));
    flag.name = absl::StrCat(kDeviation, ".out");
    ASSIGN_OR_RETURN(frozen->flag_out, graph->AddBuffer(flag));
    Op exchange;
    exchange.name = kDeviation;
    exchange.compute.lane = spec_.flag_lane;
    exchange.accesses = {{frozen->flag_out, AccessMode::kRead, {}},
                         {frozen->flag_in, AccessMode::kWrite, {}}};
    ASSIGN_OR_RETURN(frozen->deviation, graph->AddOp(exchange));
    Op reduce;
    reduce.name = absl::StrCat(kDeviation, ".max");
    reduce.kind = OpKind::kCollective;
    reduce.collective.kind = CollectiveKind::kAllReduce;
    reduce.collective.reduce_op = ReduceOp::kMax;
    reduce.collective.group = world;
    reduce.collective.input = {frozen->flag_in, AccessMode::kRead, {}};
    reduce.collective.output = {frozen->flag_out, AccessMode::kWrite, {}};
    return graph->AddOp(reduce).status();
  }

  static void FindDueNeeded(FrozenPlan* frozen) {
    const Plan& plan = *frozen->plan;
    frozen->due_needed.assign(plan.graph->ops().size(), 0);
    for (const ComputeNode& node : plan.nodes) {
      frozen->due_needed[node.op.value()] = node.DueNeeded();
    }
  }

  // Whether some collective had to be held back, so that the plan is to be made
  // again. Each time at least one more is, hence this ends.
  absl::StatusOr<bool> HoldBack(const FrozenPlan& frozen) {
    const Plan& plan = *frozen.plan;
    // The last call that submits to one of the first k launches.
    std::vector<uint32_t> latest = {0};
    for (const Launch& launch : plan.launches) {
      latest.push_back(latest.back());
      for (OpId member : launch.members) {
        if (member.value() >= num_calls_ || !IsGated(member.value())) continue;
        latest.back() = std::max(latest.back(), member.value());
      }
    }
    bool held = false;
    held_now_.assign(num_calls_, false);
    for (const ComputeNode& node : plan.nodes) {
      const uint32_t call = node.op.value();
      if (latest[frozen.due_needed[call]] <= call) continue;
      for (uint32_t k = 0; k < frozen.due_needed[call]; ++k) {
        for (OpId member : plan.launches[k].members) {
          if (member.value() <= call || member.value() >= num_calls_ ||
              !IsGated(member.value())) {
            continue;
          }
          if (held_behind_[member.value()].valid()) {
            if (held_now_[member.value()]) continue;
            return absl::InternalError(absl::StrCat(
                "recording: op '", plan.graph->op(node.op).name,
                "' needs collective '", plan.graph->op(member).name,
                "', which the program submits later"));
          }
          held_behind_[member.value()] = ComputeBefore(plan, member);
          held_now_[member.value()] = true;
          held = true;
        }
      }
    }
    return held;
  }

  // There is one: the op that the collective stands in the way of.
  static OpId ComputeBefore(const Plan& plan, OpId collective) {
    uint32_t call = collective.value();
    while (plan.graph->op(OpId(call)).kind != OpKind::kCompute) --call;
    return OpId(call);
  }

  const FrozenPlanSpec& spec_;
  const uint32_t num_calls_;
  std::vector<OpId> held_behind_;  // by call; invalid: not held back
  std::vector<bool> held_now_;     // in this round
};

}  // namespace

absl::StatusOr<FrozenPlan> PlanFrozen(const FrozenPlanSpec& spec) {
  return FrozenPlanner(spec).Run();
}

}  // namespace commsched
