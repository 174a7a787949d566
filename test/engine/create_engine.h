// Step plans of tests, and engines that run them.
#ifndef COMMSCHED_TEST_ENGINE_CREATE_ENGINE_H_
#define COMMSCHED_TEST_ENGINE_CREATE_ENGINE_H_

#include <cstdint>
#include <memory>

#include "commsched/engine.h"
#include "test/engine/messages.h"

namespace commsched::engine {

struct StepPlanDelete {
  void operator()(commsched_step_plan_t* plan) const {
    commsched_step_plan_destroy(plan);
  }
};
using StepPlanHandle = std::unique_ptr<commsched_step_plan_t, StepPlanDelete>;

// Of one role, of `num_ranks` ranks.
inline commsched_status_t TryPlan(commsched_model_t* model, int32_t num_ranks,
                                  const commsched_step_plan_options_t& options,
                                  StepPlanHandle* out_plan) {
  commsched_step_plan_role_t role = commsched_step_plan_role_init();
  role.model = model;
  role.num_ranks = num_ranks;
  commsched_step_plan_t* plan = nullptr;
  const commsched_status_t code =
      commsched_step_plan_build(&role, 1, &options, &plan);
  out_plan->reset(plan);
  return code;
}

// Aborts the test process if that fails.
inline StepPlanHandle PlanModel(commsched_model_t* model, int32_t num_ranks,
                                const commsched_step_plan_options_t& options) {
  StepPlanHandle plan;
  Require(TryPlan(model, num_ranks, options, &plan));
  return plan;
}

// `options`, in which what `desc` has is said, too.
inline commsched_step_plan_options_t OptionsFor(
    const commsched_engine_desc_t& desc,
    commsched_step_plan_options_t options) {
  if (desc.clip_norm > 0) options.clips = 1;
  if (desc.loss_scale > 0) options.scales_loss = 1;
  if (desc.optimizer_pool != nullptr) options.offloads = 1;
  if (desc.norm_group != nullptr) {
    options.norm_members =
        static_cast<uint32_t>(commsched_group_size(desc.norm_group));
  }
  return options;
}

// Plans `model` for the group of `desc` and its backend, and creates an engine
// with that plan, whose handle is gone then. `*out_engine` is written on
// success only.
inline commsched_status_t CreateEngine(commsched_engine_desc_t desc,
                                       commsched_model_t* model,
                                       commsched_step_plan_options_t options,
                                       commsched_engine_t** out_engine) {
  commsched_plan_options_t core =
      options.plan == nullptr ? commsched_plan_options_init() : *options.plan;
  if (core.backend == nullptr) {
    core.backend = commsched_context_backend(desc.context);
  }
  options.plan = &core;
  StepPlanHandle plan;
  const commsched_status_t code =
      TryPlan(model, commsched_group_size(desc.group),
              OptionsFor(desc, options), &plan);
  if (code != COMMSCHED_OK) return code;
  desc.step_plan = plan.get();
  return commsched_engine_create(&desc, out_engine);
}

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_CREATE_ENGINE_H_
