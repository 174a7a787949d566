#include "engine/step_plan/step_plan.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "engine/step_plan/accumulation.h"
#include "engine/step_plan/joint_plan.h"

namespace commsched::engine {
namespace {

// What 0 means in a commsched_cost_profile_t.
constexpr double kDefaultLinkBytesPerS = 10e9;
constexpr int64_t kDefaultLaunchNs = 20'000;

constexpr uint64_t kMaxBucketElements = uint64_t{1} << 40;

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

// What passes through memory on its way to a pool and back.
struct Staged {
  const char* option;
  const char* what;
  uint64_t budget_bytes;
  uint64_t element_bytes;
};

// Slots for the largest bucket each, as many as the budget holds; 0: two.
// `count_of` gives the elements of a bucket, 0 if it has none.
template <typename CountOf>
Status PlanSlots(const Staged& staged, const std::vector<Bucket>& buckets,
                 const CountOf& count_of, uint32_t* out_slots,
                 uint64_t* out_count) {
  uint64_t largest = 0;
  uint64_t num_staged = 0;
  for (const Bucket& bucket : buckets) {
    largest = std::max(largest, count_of(bucket));
    if (count_of(bucket) > 0) ++num_staged;
  }
  if (largest == 0) return Status();
  const uint64_t slot_bytes = largest * staged.element_bytes;
  const uint64_t slots =
      staged.budget_bytes == 0 ? 2 : staged.budget_bytes / slot_bytes;
  if (slots == 0) {
    return Status(COMMSCHED_RESOURCE_EXHAUSTED,
                  std::string("engine: ") + staged.option + " is " +
                      std::to_string(staged.budget_bytes) + "; " + staged.what +
                      " of the largest bucket takes " +
                      std::to_string(slot_bytes));
  }
  *out_slots = static_cast<uint32_t>(std::min(slots, num_staged));
  *out_count = largest;
  return Status();
}

Status PlanStaging(const StepSpec& spec, const StepPlan::Options& options,
                   Layout* layout) {
  if (spec.offloads) {
    ENGINE_RETURN_IF_ERROR(PlanSlots(
        {"offload_staging_bytes", "the optimizer's state",
         options.offload_staging_bytes, sizeof(float)},
        layout->buckets,
        [&](const Bucket& bucket) { return spec.state_count(bucket); },
        &layout->staging_slots, &layout->staging_count));
  }
  return PlanSlots(
      {"gradient_staging_bytes", "the shard of the gradients",
       options.gradient_staging_bytes, SizeOf(spec.precision.reduced)},
      layout->buckets,
      [&](const Bucket& bucket) {
        return spec.offloads_gradients_of(bucket) ? spec.slot_count(bucket)
                                                  : uint64_t{0};
      },
      &layout->gradient_slots, &layout->gradient_slot_count);
}

Status CheckTrains(const Layout& layout) {
  for (const Bucket& bucket : layout.buckets) {
    if (!bucket.frozen) return Status();
  }
  return FailedPrecondition(
      "engine: all parameters of the model are frozen: there is none to train");
}

// The bucket of an atomic parameter has as many elements for each rank.
Status CheckAtomic(const StepSpec& spec, const Model& model) {
  const uint64_t most = kMaxBucketElements / spec.num_shards();
  for (const Parameter& parameter : model.parameters()) {
    if (!parameter.atomic || parameter.count <= most) continue;
    return Status(COMMSCHED_OUT_OF_RANGE,
                  "engine: parameter '" + parameter.name +
                      "' is atomic and has " + std::to_string(parameter.count) +
                      " elements: on each of " +
                      std::to_string(spec.num_shards()) +
                      " ranks its bucket would have as many for every rank; at "
                      "most 2^40 can be laid out");
  }
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
  LayoutOptions layout_options = options.layout;
  layout_options.dtype = spec.precision.parameters;
  layout_options.sharded = spec.zero_stage > 0;
  ENGINE_RETURN_IF_ERROR(CheckAtomic(spec, model));
  Layout layout =
      BuildLayout(model.modules(), model.parameters(), layout_options);
  ENGINE_RETURN_IF_ERROR(CheckTrains(layout));
  ChooseAccumulating(spec, options, &layout);
  if (!model.passes().empty()) {
    std::vector<Pass> passes;
    ENGINE_RETURN_IF_ERROR(model.StepPasses({}, spec.micro_batches, &passes));
    FindInterleaved(spec, passes, &layout);
  }
  ENGINE_RETURN_IF_ERROR(PlanStaging(spec, options, &layout));
  *out_layout = std::move(layout);
  return Status();
}

Status StepPlan::Build(const StepSpec& spec, const Model& model,
                       const Options& options, Layout layout, Sequence sequence,
                       std::unique_ptr<const StepPlan>* out_plan) {
  ENGINE_RETURN_IF_ERROR(CheckNumPasses(spec, model, sequence));
  std::unique_ptr<StepPlan> plan(
      new StepPlan(spec, std::move(layout), std::move(sequence)));
  ENGINE_RETURN_IF_ERROR(plan->PlanStep(model, model.modules(), options));
  ENGINE_RETURN_IF_ERROR(plan->PlanEvaluation(model, options));
  *out_plan = std::move(plan);
  return Status();
}

Status StepPlan::PlanStep(const Model& model,
                          const std::vector<Module>& modules,
                          const Options& options) {
  const LastErrorKeeper keeper;  // A plan that is too large is tried again.
  std::vector<Pass> passes;
  ENGINE_RETURN_IF_ERROR(
      model.StepPasses(sequence_, spec_.micro_batches, &passes));
  one_forward_ = OneForward(passes, model.modules().size());
  const PlanAttempt attempt = [&](const std::vector<Stay>& stays,
                                  uint64_t arena_bytes) {
    ENGINE_RETURN_IF_ERROR(BuildStepGraph(spec_, modules, model.exchanges(),
                                          layout_, passes, stays, &graph_));
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
  ENGINE_RETURN_IF_ERROR(
      SearchArena(spec_, model, layout_, passes, options.limits(), attempt));
  return ReadPlan();
}

Status StepPlan::ReadPlan() {
  num_ops_ = commsched_graph_num_ops(graph_.graph.get());
  commsched_plan_info_t info = commsched_plan_info_init();
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_plan_get_info(plan_.get(), &info), "reading the plan"));
  arena_bytes_ = info.arena_bytes;
  return Status();
}

// Builds what an evaluation gathers and exchanges, or its passes alone.
Status StepPlan::BuildForward(const Model& model) {
  if (!ForwardExchanges(spec_, model)) {
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
  return BuildForwardGraph(spec_, model.modules(), model.exchanges(), layout_,
                           one_forward_, graph_, offsets, &forward_);
}

Status StepPlan::PlanEvaluation(const Model& model, const Options& options) {
  ENGINE_RETURN_IF_ERROR(BuildForward(model));
  if (!ForwardExchanges(spec_, model)) return Status();
  const commsched_plan_options_t without_memory =
      OptionsOfEvaluation(options.plan);
  commsched_plan_t* plan = nullptr;
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_plan_build(forward_.graph.get(), &without_memory,
                           &options.profile, &plan),
      "planning the evaluation"));
  forward_plan_.reset(plan);
  return Status();
}

// ---- Several roles ----------------------------------------------------------

Status StepPlan::BuildStepOf(const Role& role) {
  ENGINE_RETURN_IF_ERROR(
      PlanStep(*role.model, ModulesAlone(role), *role.options));
  std::vector<Stay> stays;
  for (const Gathered& each : graph_.gathered) stays.push_back(each.stay);
  const std::vector<Pass> passes = graph_.passes;
  return BuildStepGraph(spec_, role.model->modules(), role.model->exchanges(),
                        layout_, passes, stays, &graph_);
}

Status StepPlan::BuildTogether(
    const std::vector<Role>& roles,
    std::vector<std::unique_ptr<const StepPlan>>* out_plans) {
  std::vector<std::unique_ptr<StepPlan>> plans;
  std::vector<const commsched_graph_t*> graphs;
  uint64_t arena_bytes = 0;
  for (const Role& role : roles) {
    Layout layout;
    ENGINE_RETURN_IF_ERROR(
        LayOut(*role.spec, *role.model, *role.options, &layout));
    Sequence sequence = RegisteredSequence(role.model->modules().size());
    ENGINE_RETURN_IF_ERROR(CheckNumPasses(*role.spec, *role.model, sequence));
    StepPlan& plan = *plans.emplace_back(
        new StepPlan(*role.spec, std::move(layout), std::move(sequence)));
    ENGINE_RETURN_IF_ERROR(plan.BuildStepOf(role));
    arena_bytes = std::max(arena_bytes, plan.arena_bytes_);
    graphs.push_back(plan.graph_.graph.get());
  }
  std::vector<PlanHandle> joint;
  ENGINE_RETURN_IF_ERROR(PlanJointSteps(roles, graphs, arena_bytes, &joint));
  bool exchange = false;
  for (size_t i = 0; i < roles.size(); ++i) {
    plans[i]->plan_ = std::move(joint[i]);
    ENGINE_RETURN_IF_ERROR(plans[i]->ReadPlan());
    ENGINE_RETURN_IF_ERROR(plans[i]->BuildForward(*roles[i].model));
    graphs[i] = plans[i]->forward_.graph.get();
    exchange = exchange || graphs[i] != nullptr;
  }
  if (exchange) {
    ENGINE_RETURN_IF_ERROR(PlanJointEvaluations(roles, graphs, &joint));
    for (size_t i = 0; i < roles.size(); ++i) {
      if (graphs[i] != nullptr) plans[i]->forward_plan_ = std::move(joint[i]);
    }
  }
  out_plans->assign(std::make_move_iterator(plans.begin()),
                    std::make_move_iterator(plans.end()));
  return Status();
}

}  // namespace commsched::engine
