// Part of coalesce.h: the launches of one role.
#ifndef COMMSCHED_SRC_PLAN_ROLE_COALESCER_H_
#define COMMSCHED_SRC_PLAN_ROLE_COALESCER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/dependencies.h"
#include "graph/graph.h"
#include "plan/launch_way.h"
#include "plan/order.h"
#include "plan/plan.h"
#include "plan/policy.h"

namespace commsched {

// Takes the collectives of one role in key order, and tells of each whether it
// may, and shall, join the launch that is open: the last one. Who asks decides.
//
// Thread-compatible. All that it is made of outlives it.
class RoleCoalescer {
 public:
  // Why the open launch grows no further; kNone: it does.
  struct Obstacle {
    LaunchReason::End end = LaunchReason::End::kNone;
    OpId needer;
    // What merging by cost saves and costs, and what it comes to.
    int64_t saved_ns = 0;
    int64_t late_ns = 0;
    int64_t merged_ns = 0;
  };

  // `off`: why a limit of 0 keeps apart what may be merged: by cost anything
  // but kMergingOff.
  RoleCoalescer(const Graph& graph, const Dependencies& dependencies,
                const PlannedOrder& order, const PlanOptions& options,
                const CostProfile& profile, LaunchReason::End off);

  // What no policy can overrule.
  Obstacle Illegal(OpId op) const;
  // Whether `op`, which may join or not, shall. `by_cost`: what the clock says
  // of it; null: only limits count.
  absl::StatusOr<Obstacle> Decide(OpId op, const Obstacle& illegal,
                                  const Obstacle* by_cost) const;
  // Why sends and receives of this role in one event do not go together.
  Obstacle NotOfTick(absl::Span<const RoleOp> event) const;

  // Decides the way of the open launch, which `next` does not join.
  void Close(const Obstacle& obstacle, OpId next);
  void Open(OpId op, uint64_t key);
  void Join(OpId op);
  // `op`, which has joined the open launch, did so by cost.
  void Explain(const Obstacle& by_cost);

  // Whether all members leave every way open.
  bool LeavesChoice(OpId op) const { return ways_.LeavesChoice(op); }
  // Puts the members of launches that another role cannot send in place in key
  // order, as a list or packed.
  void TakeApart(absl::Span<Launch* const> launches) const;

  std::vector<Launch>& launches() { return launches_; }
  const Graph& graph() const { return graph_; }

 private:
  using End = LaunchReason::End;

  End TooMuch(OpId op) const;
  absl::StatusOr<Obstacle> AskPolicy(OpId op, const Obstacle& illegal,
                                     const Obstacle& ours) const;
  PolicyItem ItemOf(OpId id) const;
  DType DTypeOf(const CollectiveSpec& spec) const;
  End Difference(const Launch& launch, const CollectiveSpec& next) const;
  bool DependsOnOpen(OpId op) const;
  bool WouldBeList(OpId op) const;

  const Graph& graph_;
  const Dependencies& dependencies_;
  const PlannedOrder& order_;
  const PlanOptions& options_;
  const CostProfile& profile_;
  const uint64_t limit_;
  const End off_;
  const LaunchWays ways_;
  std::vector<uint32_t> launch_of_op_;

  std::vector<Launch> launches_;  // the last one is open; of that one:
  uint32_t first_need_ = PlannedOrder::kNone;
  uint32_t ready_ = 0;
  int priority_ = 0;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_ROLE_COALESCER_H_
