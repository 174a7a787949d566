// Graphs of several roles that are planned together.
#ifndef COMMSCHED_SRC_ENGINE_STEP_PLAN_JOINT_PLAN_H_
#define COMMSCHED_SRC_ENGINE_STEP_PLAN_JOINT_PLAN_H_

#include <cstdint>
#include <vector>

#include "checkpoint/status.h"
#include "commsched/plan.h"
#include "engine/model/model.h"
#include "engine/step_plan/step_plan.h"

namespace commsched::engine {

// The options of an evaluation, which takes no memory beside the step's;
// packing would.
commsched_plan_options_t OptionsOfEvaluation(commsched_plan_options_t options);

// The modules of `role` without exchanges with other roles: a send that nobody
// receives cannot be planned.
std::vector<Module> ModulesAlone(const StepPlan::Role& role);

// Plans the graphs of the roles' steps, within the limit that was given. With
// none, within `arena_bytes`, as much as the role that needs most takes by
// itself, or else a little more, as what one waits for of another lives longer.
// Fails as the planner does; RESOURCE_EXHAUSTED names the limit and the bytes
// that are needed.
Status PlanJointSteps(const std::vector<StepPlan::Role>& roles,
                      const std::vector<const commsched_graph_t*>& graphs,
                      uint64_t arena_bytes, std::vector<PlanHandle>* out_plans);

// Plans those of their evaluations; NULL for a role that exchanges nothing.
// Fails as the planner does.
Status PlanJointEvaluations(const std::vector<StepPlan::Role>& roles,
                            std::vector<const commsched_graph_t*> graphs,
                            std::vector<PlanHandle>* out_plans);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STEP_PLAN_JOINT_PLAN_H_
