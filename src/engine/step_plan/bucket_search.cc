#include "engine/step_plan/bucket_search.h"

#include <utility>

#include "engine/step_plan/bucket_buffers.h"

namespace commsched::engine {
namespace {

// In halves of the bytes that are given.
constexpr uint64_t kSizesInHalves[] = {1, 4, 8, 16, 32, 64, 128};

constexpr int64_t kLeastGain = 100;   // The part of the step.
constexpr uint64_t kMostMemory = 32;  // The part of what the given takes.

uint64_t BytesOf(const StepPlan& plan) {
  uint64_t bytes = plan.arena_bytes();
  for (uint32_t b = 0; b < plan.layout().buckets.size(); ++b) {
    bytes += BoundBytes(plan.BuffersOf(b));
  }
  return bytes;
}

Status Predict(const StepPlan& plan, int64_t* out_step_ns) {
  commsched_prediction_t prediction = commsched_prediction_init();
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_plan_predict(plan.plan(), nullptr, &prediction),
      "predicting a step"));
  *out_step_ns = prediction.step_ns;
  return Status();
}

}  // namespace

Status SearchBuckets(const StepSpec& spec, const Model& model,
                     const StepPlan::Options& options, Layout given,
                     const Sequence& sequence,
                     std::unique_ptr<const StepPlan>* out_plan,
                     BucketChoice* out_choice) {
  std::unique_ptr<const StepPlan> best;
  BucketChoice choice;
  choice.given_buckets = given.buckets.size();
  ENGINE_RETURN_IF_ERROR(
      StepPlan::Build(spec, model, options, std::move(given), sequence, &best));
  ENGINE_RETURN_IF_ERROR(Predict(*best, &choice.given_step_ns));
  choice.step_ns = choice.given_step_ns;
  const uint64_t given_bytes = BytesOf(*best);
  uint64_t last = choice.given_buckets;
  if (best->graph().passes.size() <= kMostPassesToSearch) {
    const LastErrorKeeper keeper;  // What does not fit is not what is asked.
    for (const uint64_t size : kSizesInHalves) {
      StepPlan::Options other = options;
      other.layout.bucket_bytes = options.layout.bucket_bytes / 2 * size;
      Layout layout;
      ENGINE_RETURN_IF_ERROR(StepPlan::LayOut(spec, model, other, &layout));
      if (layout.buckets.size() == last) continue;
      last = layout.buckets.size();
      std::unique_ptr<const StepPlan> plan;
      const Status planned = StepPlan::Build(
          spec, model, other, std::move(layout), sequence, &plan);
      if (planned.code() == COMMSCHED_RESOURCE_EXHAUSTED) continue;
      ENGINE_RETURN_IF_ERROR(planned);
      int64_t step_ns = 0;
      ENGINE_RETURN_IF_ERROR(Predict(*plan, &step_ns));
      if (step_ns >= choice.step_ns - choice.step_ns / kLeastGain) continue;
      if (BytesOf(*plan) > given_bytes + given_bytes / kMostMemory) continue;
      choice.step_ns = step_ns;
      best = std::move(plan);
    }
  }
  *out_plan = std::move(best);
  *out_choice = choice;
  return Status();
}

}  // namespace commsched::engine
