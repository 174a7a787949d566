#ifndef COMMSCHED_SRC_ENGINE_STEP_PLAN_OPTIONS_H_
#define COMMSCHED_SRC_ENGINE_STEP_PLAN_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/status.h"
#include "commsched/step_plan.h"
#include "engine/step_plan/spec.h"
#include "engine/step_plan/step_plan.h"

namespace commsched::engine {

// The options of a step plan, with what 0 means put in, and copies of all that
// they point to.
//
// Immutable.
class StepOptions {
 public:
  // INVALID_ARGUMENT, with the option and its value, unless each is in its
  // range. The structs that `given` points to are of this version.
  static Status Check(const commsched_step_plan_options_t& given);

  // Puts the number that the axes of a mean come to into `options`, which has
  // passed Check() and whose groups are those of `model`; `num_ranks` share its
  // parameters. INVALID_ARGUMENT if there is no such group.
  static Status FindDivisor(const Model& model, int32_t num_ranks,
                            commsched_step_plan_options_t* options);

  // `given` has passed Check(), and has no groups. `num_ranks` share the
  // parameters.
  StepOptions(const commsched_step_plan_options_t& given, int32_t num_ranks);
  StepOptions(const StepOptions&) = delete;
  StepOptions& operator=(const StepOptions&) = delete;

  const StepSpec& spec() const { return spec_; }
  // The options without what they pointed to.
  const commsched_step_plan_options_t& given() const { return given_; }
  const commsched_plan_options_t& plan() const { return plan_; }
  const commsched_cost_profile_t& profile() const { return profile_; }
  bool merges_buckets() const {
    return given_.bucket_merge == COMMSCHED_BUCKET_MERGE_ON;
  }
  // What names in it point to lives as long as this.
  StepPlan::Options OfPlan() const;

 private:
  const commsched_step_plan_options_t given_;
  const bool whole_tensors_;
  // Empty: not given, but for that of a policy, a codec or a backend.
  const std::string policy_, codec_, backend_;
  const std::string optimizer_, optimizer_state_;
  const std::vector<int32_t> host_of_rank_;
  const commsched_plan_options_t plan_;
  const commsched_cost_profile_t profile_;
  const StepSpec spec_;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STEP_PLAN_OPTIONS_H_
