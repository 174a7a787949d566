#ifndef COMMSCHED_SRC_ENGINE_STEP_PLAN_SEARCH_BUCKET_SEARCH_H_
#define COMMSCHED_SRC_ENGINE_STEP_PLAN_SEARCH_BUCKET_SEARCH_H_

#include <cstdint>
#include <memory>

#include "checkpoint/status.h"
#include "engine/model/model.h"
#include "engine/model/passes.h"
#include "engine/step_plan/layout.h"
#include "engine/step_plan/spec.h"
#include "engine/step_plan/step_plan.h"

namespace commsched::engine {

// What was gained by other buckets than those of the bytes that were given.
struct BucketChoice {
  uint64_t given_buckets = 0;
  int64_t given_step_ns = 0;  // Predicted.
  int64_t step_ns = 0;        // Predicted, of the plan that was taken.
};

// A step of more forwards and backwards is planned with the buckets given.
inline constexpr uint64_t kMostPassesToSearch = 8192;

// Merges or cuts buckets: plans a step with buckets of the bytes that are
// given, of half of them and of multiples, and takes the fewest buckets of
// those with which a step is predicted to be shortest, but for a
// five-thousandth of it. A launch less saves its cost and a latency; of a
// larger bucket those wait for all that need a part only. What is not given may
// take a thirty-second more memory, and more buckets than are given have to
// save a thirty-second of the step.
//
// `given`: the layout of what is given. Fails as StepPlan::Build() does for
// that. A pure function.
Status SearchBuckets(const StepSpec& spec, const Model& model,
                     const StepPlan::Options& options, Layout given,
                     const Sequence& sequence,
                     std::unique_ptr<const StepPlan>* out_plan,
                     BucketChoice* out_choice);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STEP_PLAN_SEARCH_BUCKET_SEARCH_H_
