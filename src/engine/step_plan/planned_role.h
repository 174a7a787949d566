#ifndef COMMSCHED_SRC_ENGINE_STEP_PLAN_PLANNED_ROLE_H_
#define COMMSCHED_SRC_ENGINE_STEP_PLAN_PLANNED_ROLE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "checkpoint/status.h"
#include "commsched/step_plan.h"
#include "engine/model/model.h"
#include "engine/step_plan/options.h"
#include "engine/step_plan/search/bucket_search.h"
#include "engine/step_plan/step_plan.h"

namespace commsched::engine {

// A step plan with what it was made of. Immutable, but for what the model
// refuses from then on.
struct PlannedRole {
  std::shared_ptr<Model> model;
  std::shared_ptr<const StepOptions> options;
  std::shared_ptr<const StepPlan> plan;
  BucketChoice buckets;  // Zeros: they were as given.
};

// What a role is planned from: commsched_step_plan_role_t.
struct RoleToPlan {
  std::shared_ptr<Model> model;
  std::shared_ptr<const StepOptions> options;
  const uint32_t* const* role_of_member = nullptr;
  uint32_t num_groups = 0;
  const uint32_t* role_of_norm_member = nullptr;
};

// The layout that is planned first: that of the buckets that are given.
// FAILED_PRECONDITION if the model has no parameters.
Status LayOutGiven(const RoleToPlan& role, Layout* out_layout);

// Plans all of them. Buckets are merged or cut where there is one role. The
// models are closed. Fails as StepPlan::BuildTogether() does.
Status PlanRoles(const std::vector<RoleToPlan>& roles,
                 std::vector<PlannedRole>* out_roles);

// Whether a rank that has the state of `was` can go on with `next`: of models
// that are the same but for their passes and hints of cost, laid out alike.
// INVALID_ARGUMENT names the first difference.
Status CheckSameState(const PlannedRole& was, const PlannedRole& next);

// Fills in all of `info`.
Status DescribePlan(const PlannedRole& role, commsched_step_plan_info_t* info);
// The same of one bucket of its layout.
Status DescribeBucket(const StepPlan& plan, uint64_t bucket,
                      commsched_engine_bucket_info_t* info);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STEP_PLAN_PLANNED_ROLE_H_
