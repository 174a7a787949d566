// When the collectives of a step go if each has a launch of its own.
#ifndef COMMSCHED_SRC_PLAN_MERGE_TIMES_H_
#define COMMSCHED_SRC_PLAN_MERGE_TIMES_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plan/plan.h"
#include "plan/predict/job_model.h"
#include "plan/predict/list_schedule.h"
#include "plan/roles.h"

namespace commsched {

// What merging by cost (merge_clock.h) knows of a transfer: a collective, or
// the sends and receives of one pipeline tick.
struct MergeItem {
  // Nobody waits for it.
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 4;

  int64_t ready_ns = 0;   // all that it needs is complete
  int64_t need_ns = 0;    // completed by then, it keeps no consumer waiting
  int64_t latest_ns = 0;  // nor the transfer that is next on its link
  int64_t launch_ns = 0;
  int64_t busy_ns = 0;      // of the link, for its bytes
  int64_t latency_ns = 0;   // of the link
  int64_t cpu_ns = 0;       // measured copies and reductions
  int64_t copy_ns = 0;      // into staging memory and out of it
  bool serial = false;      // the link is busy for the latency, too
  bool packed = false;      // through staging memory, also alone
  bool list_only = false;   // what it is merged with goes as a list
  uint32_t first_side = 0;  // in JobModel::sides
  uint32_t num_sides = 0;
};

// How many compute ops without a cost come, in the host order of one role,
// before a transfer is due and before its first consumer, in this step or the
// next. With Schedule::kSerial all ops count, and no consumer does.
struct UnknownOps {
  uint32_t before_due = 0;
  uint32_t before_need = 0;
  friend bool operator==(const UnknownOps&, const UnknownOps&) = default;
};

// One simulated step of a job (list_schedule.h) in its steady state, and by
// when each transfer has to be complete for no step to get longer: the latest
// schedule in which lanes and links keep their orders. Delays within it add up
// to nothing, however many there are.
//
// Immutable. O(n + edges).
class MergeTimes {
 public:
  // `drafts` as they are before launches are merged. kInternal if they cannot
  // go in key order.
  static absl::StatusOr<MergeTimes> Create(absl::Span<const RoleDraft> drafts,
                                           const PlanOptions& options);

  int64_t step_ns() const { return step_ns_; }
  const JobModel& model() const { return model_; }
  // The item that the collective, send or receive `op` is in.
  const MergeItem& Of(RoleOp op) const {
    return items_[item_of_op_[op.role][op.op.value()]];
  }
  absl::Span<const JobModel::Side> SidesOf(const MergeItem& item) const {
    return {&model_.sides[item.first_side], item.num_sides};
  }
  // One entry per side of the item.
  absl::Span<const UnknownOps> UnknownOf(const MergeItem& item) const {
    return {&unknown_[item.first_side], item.num_sides};
  }

 private:
  MergeTimes(absl::Span<const RoleDraft> drafts, const PlanOptions& options);

  void AddItems(absl::Span<const RoleDraft> drafts, const PlanOptions& options,
                const Played& played);
  void HideNothing();
  void CountUnknown(absl::Span<const RoleDraft> drafts);

  JobModel model_;
  int64_t step_ns_ = 0;
  std::vector<MergeItem> items_;                   // by transfer
  std::vector<UnknownOps> unknown_;                // by side
  std::vector<std::vector<uint32_t>> item_of_op_;  // by role and OpId
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_MERGE_TIMES_H_
