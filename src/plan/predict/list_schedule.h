#ifndef COMMSCHED_SRC_PLAN_PREDICT_LIST_SCHEDULE_H_
#define COMMSCHED_SRC_PLAN_PREDICT_LIST_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "plan/predict/job_model.h"

namespace commsched {

// One step of the job, all nodes, in an order in which everything comes after
// what it depends on: transfers in key order, each once no lane can go on
// without it. kInternal if there is none. O(n + edges).
absl::StatusOr<std::vector<uint32_t>> SequenceInKeyOrder(const JobModel& model);

// Simulates the job and decides, whenever a link comes free, which of the
// transfers that are ready goes next. Compute lanes run in host order; a link
// carries one transfer at a time (JobModel::Transfer::busy_ns), and the next is
// issued launch_ns before it comes free, one after the other; the window holds;
// all transfers of a step are issued before those of the next one. Returns the
// nodes of one step, in an order in which everything comes after what it
// depends on.
//
// The order of issue is legal as key order: every start follows the completion
// of what it depends on, and no transfer passes one that is needed, in the
// declared host order, before the other is due (order.h).
//
// `out`: OutEdgesOf(model). `urgency`, by transfer: of those that could go, the
// one with the least goes, equal ones in key order. `steps` are simulated, and
// the last one is returned, so that what is carried over from step to step has
// had time to settle. kInternal if the transfers cannot go at all.
absl::StatusOr<std::vector<uint32_t>> ScheduleList(
    const JobModel& model, const OutEdges& out,
    const std::vector<int64_t>& urgency, uint32_t steps);

// What of a link counts when a given sequence is played.
enum class LinkUse : uint8_t {
  kShared,     // one transfer at a time, issued in order, within the window
  kUnlimited,  // each transfer has a link to itself: no order is faster
  kFree,       // transfers take no time
};

struct Played {
  // By node, from the beginning of the last step: when all that it needs was
  // complete, when it started (a transfer: when it was issued), when it ended.
  std::vector<int64_t> ready;
  std::vector<int64_t> start;
  std::vector<int64_t> end;
  int64_t step_ns = 0;  // from step to step, once it has settled
};

// Plays steps in the order of `sequence` until they repeat.
Played PlaySequence(const JobModel& model,
                    const std::vector<uint32_t>& sequence, LinkUse use);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_PREDICT_LIST_SCHEDULE_H_
