#ifndef COMMSCHED_SRC_PLAN_PREDICT_PREDICT_H_
#define COMMSCHED_SRC_PLAN_PREDICT_PREDICT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/blame.h"
#include "plan/plan.h"
#include "plan/predict/playback.h"

namespace commsched {

// Why a launch was exposed, for the longest part of it (docs/blame.md).
enum class ExposedCause : uint8_t {
  kNone,
  kCap,
  kDependency,
  kOrder,
  kLink,
  kStraggler
};

struct LaunchPrediction {
  int64_t ready_ns = 0;  // within the step: waits other than limits met
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t exposed_ns = 0;
  Blame exposed_by;  // sums to exposed_ns
  ExposedCause cause = ExposedCause::kNone;
};

// Steady state, per step and rank (include/commsched/plan.h).
struct Prediction {
  int64_t step_ns = 0;
  int64_t compute_ns = 0;
  int64_t comm_ns = 0;
  int64_t exposed_ns = 0;
  Blame exposed_by;  // sums to exposed_ns
  int64_t lower_bound_ns = 0;
  int64_t bound_compute_ns = 0;
  int64_t bound_link_ns = 0;
  int64_t bound_cycle_ns = 0;
  int64_t bound_phases_ns = 0;
  uint64_t peak_bytes_in_flight = 0;
  std::vector<LaunchPrediction> launches;
  std::vector<Interval> ops;  // by node, on the clock of the launches
};

// Of roles that were planned together, in the same order. A launch that several
// share begins when the last of them is there; to the others that is a
// straggler. kInvalidArgument if a profile measured another number of ops.
absl::StatusOr<std::vector<Prediction>> PredictJob(
    absl::Span<const PlayedRole> roles);

// Prediction::step_ns of the same, for less.
absl::StatusOr<int64_t> PredictStep(absl::Span<const PlayedRole> roles);

// Predicts one role as if no other kept it waiting.
absl::StatusOr<Prediction> Predict(const Plan& plan,
                                   const CostProfile& profile);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_PREDICT_PREDICT_H_
