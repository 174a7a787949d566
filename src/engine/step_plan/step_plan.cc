#include "engine/step_plan/step_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/step_plan/accumulation.h"

namespace commsched::engine {
namespace {

// What 0 means in a commsched_cost_profile_t.
constexpr double kDefaultLinkBytesPerS = 10e9;
constexpr int64_t kDefaultLaunchNs = 20'000;

// Forwards and backwards of a step.
constexpr uint64_t kMaxPasses = uint64_t{1} << 20;

void ChooseAccumulating(const StepSpec& spec, const StepPlan::Options& options,
                        Layout* layout) {
  if (spec.micro_batches == 1) return;
  const commsched_cost_profile_t& profile = options.profile;
  AccumulationCosts costs;
  costs.budget_bytes = options.accumulate_bytes;
  costs.element_bytes = SizeOf(kSumDType);
  costs.sent_element_bytes = SizeOf(spec.precision.reduced);
  costs.bytes_per_s = profile.link_bytes_per_s > 0 ? profile.link_bytes_per_s
                                                   : kDefaultLinkBytesPerS;
  costs.latency_ns =
      profile.link_latency_ns +
      (profile.launch_ns > 0 ? profile.launch_ns : kDefaultLaunchNs);
  ChooseAccumulation(costs, layout);
}

// How the state of buckets passes through memory: slots for the largest bucket
// each, as many as `budget_bytes` holds; 0: two.
Status PlanStaging(const StepSpec& spec, uint64_t budget_bytes,
                   Layout* layout) {
  uint64_t largest = 0;
  for (const Bucket& bucket : layout->buckets) {
    largest = std::max(largest, spec.state_count(bucket));
  }
  const uint64_t slot_bytes = largest * sizeof(float);
  const uint64_t slots = budget_bytes == 0 ? 2 : budget_bytes / slot_bytes;
  if (slots == 0) {
    return Status(COMMSCHED_RESOURCE_EXHAUSTED,
                  "engine: offload_staging_bytes is " +
                      std::to_string(budget_bytes) +
                      "; the optimizer's state of the largest bucket takes " +
                      std::to_string(slot_bytes));
  }
  layout->staging_slots =
      static_cast<uint32_t>(std::min<uint64_t>(slots, layout->buckets.size()));
  layout->staging_count = largest;
  return Status();
}

// Planning takes about 1 KiB for each.
Status CheckNumPasses(const StepSpec& spec, const Model& model,
                      const Sequence& sequence) {
  const uint64_t passes =
      model.passes().empty()
          ? uint64_t{2} * spec.micro_batches * sequence.size()
          : model.passes().size();
  if (passes <= kMaxPasses) return Status();
  return Status(
      COMMSCHED_OUT_OF_RANGE,
      "engine: micro_batches is " + std::to_string(spec.micro_batches) +
          ": with " + std::to_string(sequence.size()) + " modules a step has " +
          std::to_string(passes) + " forwards and backwards; at most " +
          std::to_string(kMaxPasses) + " are planned");
}

}  // namespace

Status StepPlan::LayOut(const StepSpec& spec, const Model& model,
                        const Options& options, Layout* out_layout) {
  Layout layout =
      BuildLayout(model.modules(), model.parameters(), options.layout);
  ChooseAccumulating(spec, options, &layout);
  if (!model.passes().empty()) {
    std::vector<Pass> passes;
    ENGINE_RETURN_IF_ERROR(model.StepPasses({}, spec.micro_batches, &passes));
    FindInterleaved(spec, passes, &layout);
  }
  if (spec.offloads) {
    ENGINE_RETURN_IF_ERROR(
        PlanStaging(spec, options.offload_staging_bytes, &layout));
  }
  *out_layout = std::move(layout);
  return Status();
}

Status StepPlan::Build(const StepSpec& spec, const Model& model,
                       const Options& options, Layout layout, Sequence sequence,
                       std::unique_ptr<const StepPlan>* out_plan) {
  ENGINE_RETURN_IF_ERROR(CheckNumPasses(spec, model, sequence));
  std::unique_ptr<StepPlan> plan(
      new StepPlan(spec, std::move(layout), std::move(sequence)));
  ENGINE_RETURN_IF_ERROR(plan->PlanStep(model, options));
  ENGINE_RETURN_IF_ERROR(plan->PlanEvaluation(model, options));
  *out_plan = std::move(plan);
  return Status();
}

Status StepPlan::PlanStep(const Model& model, const Options& options) {
  const LastErrorKeeper keeper;  // A plan that is too large is tried again.
  std::vector<Pass> passes;
  ENGINE_RETURN_IF_ERROR(
      model.StepPasses(sequence_, spec_.micro_batches, &passes));
  one_forward_ = OneForward(passes, model.modules().size());
  const PlanAttempt attempt = [&](const std::vector<Stay>& stays,
                                  uint64_t arena_bytes) {
    ENGINE_RETURN_IF_ERROR(BuildStepGraph(spec_, model.modules(),
                                          model.exchanges(), layout_, passes,
                                          stays, &graph_));
    commsched_plan_options_t with_arena = options.plan;
    with_arena.arena_bytes = arena_bytes;
    commsched_plan_t* plan = nullptr;
    ENGINE_RETURN_IF_ERROR(
        Status::FromCall(commsched_plan_build(graph_.graph.get(), &with_arena,
                                              &options.profile, &plan),
                         "planning the step"));
    plan_.reset(plan);
    return Status();
  };
  ENGINE_RETURN_IF_ERROR(SearchArena(spec_, model, layout_, passes,
                                     {.arena_bytes = options.plan.arena_bytes,
                                      .max_live_bytes = options.max_live_bytes,
                                      .prefetch_bytes = options.prefetch_bytes},
                                     attempt));
  num_ops_ = commsched_graph_num_ops(graph_.graph.get());
  commsched_plan_info_t info = commsched_plan_info_init();
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_plan_get_info(plan_.get(), &info), "reading the plan"));
  arena_bytes_ = info.arena_bytes;
  return Status();
}

Status StepPlan::PlanEvaluation(const Model& model, const Options& options) {
  if (spec_.zero_stage != 3 && model.ops().empty() &&
      model.exchanges().empty()) {
    for (uint32_t i : one_forward_) {
      Pass& pass = forward_.passes.emplace_back(graph_.passes[i]);
      pass.kind = PassKind::kForward;
      pass.forward = static_cast<uint32_t>(forward_.passes.size() - 1);
    }
    forward_.pass_ops.assign(forward_.passes.size(), PassOps());
    return Status();
  }
  std::vector<uint64_t> offsets;
  for (const Gathered& each : graph_.gathered) {
    uint64_t bytes = 0;
    ENGINE_RETURN_IF_ERROR(
        Status::FromCall(commsched_plan_place(plan_.get(), each.buffer,
                                              &offsets.emplace_back(), &bytes),
                         "finding a bucket in the arena"));
  }
  ENGINE_RETURN_IF_ERROR(
      BuildForwardGraph(spec_, model.modules(), model.exchanges(), layout_,
                        one_forward_, graph_, offsets, &forward_));
  commsched_plan_options_t without_memory = options.plan;
  without_memory.arena_bytes = 0;
  // Packing would take some.
  without_memory.coalesce_bytes = 0;
  without_memory.policy = nullptr;
  commsched_plan_t* plan = nullptr;
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_plan_build(forward_.graph.get(), &without_memory,
                           &options.profile, &plan),
      "planning the evaluation"));
  forward_plan_.reset(plan);
  return Status();
}

}  // namespace commsched::engine
