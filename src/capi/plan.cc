#include "commsched/plan.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "capi/boundary.h"
#include "capi/convert.h"
#include "capi/handles.h"
#include "capi/structs.h"
#include "plan/describe.h"
#include "plan/dot.h"
#include "plan/explain.h"
#include "plan/planner.h"
#include "plan/predict.h"

using commsched::AtBoundary;
using commsched::AtVoidBoundary;
using commsched::RequireNonNull;

namespace commsched {
namespace {

absl::StatusOr<PlanOptions> ReadOptions(
    const commsched_plan_options_t* options) {
  if (options == nullptr) return PlanOptions();
  ASSIGN_OR_RETURN(const commsched_plan_options_t ours,
                   ReadStruct(options, "commsched_plan_options_t"));
  return ToPlanOptions(ours);
}

absl::StatusOr<CostProfile> ReadProfile(
    const commsched_cost_profile_t* profile) {
  if (profile == nullptr) return CostProfile();
  ASSIGN_OR_RETURN(const commsched_cost_profile_t ours,
                   ReadStruct(profile, "commsched_cost_profile_t"));
  return ToCostProfile(ours);
}

commsched_plan_info_t ToPlanInfo(const Plan& plan) {
  commsched_plan_info_t info = commsched_plan_info_init();
  info.num_ops = plan.graph->ops().size();
  info.num_launches = plan.launches.size();
  for (const ComputeNode& node : plan.nodes) {
    info.num_waits += node.waits.size();
  }
  for (const Launch& launch : plan.launches) {
    info.num_waits += launch.waits.size();
    info.num_collectives += launch.members.size();
    info.max_launch_bytes =
        std::max(info.max_launch_bytes, launch.weight_bytes);
  }
  info.num_waits_implied = plan.num_waits_implied;
  info.arena_bytes = plan.arena_bytes;
  static_assert(sizeof(info.fingerprint) == sizeof(plan.fingerprint));
  std::memcpy(info.fingerprint, plan.fingerprint.data(),
              sizeof(info.fingerprint));
  return info;
}

commsched_prediction_t ToPublic(const Prediction& prediction) {
  commsched_prediction_t result = commsched_prediction_init();
  result.step_ns = prediction.step_ns;
  result.compute_ns = prediction.compute_ns;
  result.comm_ns = prediction.comm_ns;
  result.exposed_ns = prediction.exposed_ns;
  result.lower_bound_ns = prediction.lower_bound_ns;
  result.bound_compute_ns = prediction.bound_compute_ns;
  result.bound_link_ns = prediction.bound_link_ns;
  result.bound_cycle_ns = prediction.bound_cycle_ns;
  result.bound_phases_ns = prediction.bound_phases_ns;
  result.peak_bytes_in_flight = prediction.peak_bytes_in_flight;
  result.exposed_cap_ns = prediction.exposed_by.cap_ns;
  result.exposed_dependency_ns = prediction.exposed_by.dependency_ns;
  result.exposed_order_ns = prediction.exposed_by.order_ns;
  result.exposed_link_ns = prediction.exposed_by.link_ns;
  result.exposed_straggler_ns = prediction.exposed_by.straggler_ns;
  return result;
}

absl::Status BadFormat(commsched_format_t format, commsched_format_t last) {
  return absl::InvalidArgumentError(absl::StrCat(
      "format is ", format, ", outside ", int{COMMSCHED_TEXT}, "..", last));
}

absl::StatusOr<std::string> Explain(const Plan& plan,
                                    commsched_format_t format) {
  switch (format) {
    case COMMSCHED_TEXT:
      return ExplainText(plan);
    case COMMSCHED_JSON:
      return ExplainJson(plan);
    case COMMSCHED_DOT:
      return ExplainDot(plan);
    default:
      return BadFormat(format, COMMSCHED_DOT);
  }
}

absl::StatusOr<std::string> Describe(const commsched_plan_t* const* plans,
                                     uint32_t num_plans,
                                     commsched_format_t format) {
  RETURN_IF_ERROR(RequireArray("plans", plans, num_plans));
  std::vector<const Plan*> ours;
  for (uint32_t i = 0; i < num_plans; ++i) {
    if (plans[i] == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("plans[", i, "] is NULL"));
    }
    ours.push_back(plans[i]->plan.get());
  }
  switch (format) {
    case COMMSCHED_TEXT:
      return DescribeText(ours);
    case COMMSCHED_JSON:
      return DescribeJson(ours);
    default:
      return BadFormat(format, COMMSCHED_JSON);
  }
}

}  // namespace
}  // namespace commsched

commsched_status_t commsched_plan_build(const commsched_graph_t* graph,
                                        const commsched_plan_options_t* options,
                                        const commsched_cost_profile_t* profile,
                                        commsched_plan_t** out_plan) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"graph", graph}, {"out_plan", out_plan}}));
    ASSIGN_OR_RETURN(const auto our_options, commsched::ReadOptions(options));
    ASSIGN_OR_RETURN(const auto our_profile, commsched::ReadProfile(profile));
    ASSIGN_OR_RETURN(auto plan, commsched::BuildPlan(graph->graph, our_options,
                                                     our_profile));
    *out_plan = new commsched_plan{std::move(plan)};
    return absl::OkStatus();
  });
}

void commsched_plan_destroy(commsched_plan_t* plan) {
  AtVoidBoundary([&] { delete plan; });
}

commsched_status_t commsched_plan_get_info(const commsched_plan_t* plan,
                                           commsched_plan_info_t* out_info) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"plan", plan}, {"out_info", out_info}}));
    return commsched::WriteStruct(commsched::ToPlanInfo(*plan->plan), out_info,
                                  "commsched_plan_info_t");
  });
}

commsched_status_t commsched_plan_predict(
    const commsched_plan_t* plan, const commsched_cost_profile_t* profile,
    commsched_prediction_t* out_prediction) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"plan", plan}, {"out_prediction", out_prediction}}));
    commsched::CostProfile ours = plan->plan->profile;
    if (profile != nullptr) {
      ASSIGN_OR_RETURN(ours, commsched::ReadProfile(profile));
    }
    ASSIGN_OR_RETURN(const auto prediction,
                     commsched::Predict(*plan->plan, ours));
    return commsched::WriteStruct(commsched::ToPublic(prediction),
                                  out_prediction, "commsched_prediction_t");
  });
}

commsched_status_t commsched_plan_explain(const commsched_plan_t* plan,
                                          commsched_format_t format,
                                          char** out_text) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"plan", plan}, {"out_text", out_text}}));
    ASSIGN_OR_RETURN(const auto text, commsched::Explain(*plan->plan, format));
    ASSIGN_OR_RETURN(*out_text, commsched::DuplicateString(text));
    return absl::OkStatus();
  });
}

commsched_status_t commsched_plan_describe(const commsched_plan_t* const* plans,
                                           uint32_t num_plans,
                                           commsched_format_t format,
                                           char** out_text) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"out_text", out_text}}));
    ASSIGN_OR_RETURN(const auto text,
                     commsched::Describe(plans, num_plans, format));
    ASSIGN_OR_RETURN(*out_text, commsched::DuplicateString(text));
    return absl::OkStatus();
  });
}
