#include "engine/step_plan/search/bucket_search.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "engine/step_plan/bucket_buffers.h"

namespace commsched::engine {
namespace {

// In halves of the bytes that are given.
constexpr uint64_t kSizesInHalves[] = {1, 4, 8, 16, 32, 64, 128};

constexpr int64_t kAlike = 5000;      // The part of a step.
constexpr uint64_t kMostMemory = 32;  // The part of what the given takes.
// The part of a step that more buckets have to save: their launches take time
// of the processor that no prediction has.
constexpr int64_t kLeastGain = 32;

struct Candidate {
  std::unique_ptr<const StepPlan> plan;
  int64_t step_ns = 0;

  size_t num_buckets() const { return plan->layout().buckets.size(); }
};

uint64_t BytesOf(const StepPlan& plan) {
  uint64_t bytes = plan.arena_bytes();
  for (uint32_t b = 0; b < plan.layout().buckets.size(); ++b) {
    bytes += BoundBytes(plan.BuffersOf(b));
  }
  return bytes;
}

Status Plan(const StepSpec& spec, const Model& model,
            const StepPlan::Options& options, Layout layout,
            const Sequence& sequence, Candidate* out) {
  ENGINE_RETURN_IF_ERROR(StepPlan::Build(
      spec, model, options, std::move(layout), sequence, &out->plan));
  commsched_prediction_t prediction = commsched_prediction_init();
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_plan_predict(out->plan->plan(), nullptr, &prediction),
      "predicting a step"));
  out->step_ns = prediction.step_ns;
  return Status();
}

// The fewest buckets with which a step takes as good as the least time.
Candidate* Best(std::vector<Candidate>& candidates) {
  int64_t least_ns = candidates.front().step_ns;
  for (const Candidate& each : candidates) {
    least_ns = std::min(least_ns, each.step_ns);
  }
  Candidate* best = nullptr;
  for (Candidate& each : candidates) {
    if (each.step_ns > least_ns + least_ns / kAlike) continue;
    if (best == nullptr || each.num_buckets() < best->num_buckets()) {
      best = &each;
    }
  }
  return best;
}

}  // namespace

Status SearchBuckets(const StepSpec& spec, const Model& model,
                     const StepPlan::Options& options, Layout given,
                     const Sequence& sequence,
                     std::unique_ptr<const StepPlan>* out_plan,
                     BucketChoice* out_choice) {
  std::vector<Candidate> candidates(1);
  uint64_t last = given.buckets.size();
  ENGINE_RETURN_IF_ERROR(Plan(spec, model, options, std::move(given), sequence,
                              &candidates.front()));
  BucketChoice choice;
  choice.given_buckets = last;
  choice.given_step_ns = candidates.front().step_ns;
  const uint64_t given_bytes = BytesOf(*candidates.front().plan);
  const uint64_t passes = candidates.front().plan->graph().passes.size();
  const LastErrorKeeper keeper;  // What does not fit is not what is asked.
  for (const uint64_t size : kSizesInHalves) {
    if (passes > kMostPassesToSearch) break;
    StepPlan::Options other = options;
    other.layout.bucket_bytes = options.layout.bucket_bytes / 2 * size;
    Layout layout;
    Candidate candidate;
    Status planned = StepPlan::LayOut(spec, model, other, &layout);
    if (planned.ok()) {
      if (layout.buckets.size() == last) continue;
      last = layout.buckets.size();
      planned =
          Plan(spec, model, other, std::move(layout), sequence, &candidate);
    }
    if (planned.code() == COMMSCHED_RESOURCE_EXHAUSTED) continue;
    ENGINE_RETURN_IF_ERROR(planned);
    if (BytesOf(*candidate.plan) > given_bytes + given_bytes / kMostMemory) {
      continue;
    }
    const bool is_cut = candidate.num_buckets() > choice.given_buckets;
    if (is_cut && candidate.step_ns > choice.given_step_ns -
                                          choice.given_step_ns / kLeastGain) {
      continue;
    }
    candidates.push_back(std::move(candidate));
  }
  Candidate* const best = Best(candidates);
  choice.step_ns = best->step_ns;
  *out_plan = std::move(best->plan);
  *out_choice = choice;
  return Status();
}

}  // namespace commsched::engine
