#include "commsched/plan.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "capi/boundary.h"
#include "capi/convert.h"
#include "capi/handles.h"
#include "capi/structs.h"
#include "plan/explain/describe.h"
#include "plan/explain/dot.h"
#include "plan/explain/explain.h"
#include "plan/planner.h"
#include "plan/predict/predict.h"

using commsched::AtBoundary;
using commsched::AtVoidBoundary;
using commsched::RequireNonNull;

namespace commsched {
namespace {

absl::StatusOr<PlanOptions> ReadOptions(
    const commsched_plan_options_t* options) {
  if (options == nullptr) return ToPlanOptions(commsched_plan_options_init());
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
    // A collective in pieces counts once.
    if (launch.piece.index == 0) {
      info.num_collectives += launch.members.size();
    }
    info.max_launch_bytes =
        std::max(info.max_launch_bytes, launch.payload_bytes);
  }
  info.num_waits_implied = plan.num_waits_implied;
  info.arena_bytes = plan.arena_bytes;
  info.place_group_bytes = plan.place_groups.more();
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

absl::StatusOr<RoleSpec> ReadRole(const commsched_role_desc_t* desc) {
  ASSIGN_OR_RETURN(const commsched_role_desc_t ours,
                   ReadStruct(desc, "commsched_role_desc_t"));
  RETURN_IF_ERROR(RequireNonNull({{"graph", ours.graph}}));
  if (ours.reserved != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("reserved is ", ours.reserved, "; it must be 0"));
  }
  const Graph& graph = ours.graph->graph();
  const size_t num_groups = graph.groups().size();
  RETURN_IF_ERROR(RequireArrayField("role_of_member", ours.role_of_member,
                                    "num_groups", ours.num_groups));
  if (ours.role_of_member != nullptr && ours.num_groups != num_groups) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_groups is ", ours.num_groups, "; the graph has ",
                     num_groups, " groups"));
  }
  RoleSpec role{.graph = &graph,
                .role_of_member = {},
                .profile = {},
                .shared = ours.graph->Share()};
  ASSIGN_OR_RETURN(role.profile, ReadProfile(ours.profile));
  if (ours.role_of_member == nullptr) return role;
  for (size_t g = 0; g < num_groups; ++g) {
    const uint32_t* members = ours.role_of_member[g];
    role.role_of_member.emplace_back();
    if (members == nullptr) continue;
    role.role_of_member.back().assign(members,
                                      members + graph.groups()[g].size);
  }
  return role;
}

// The caller's structs are as far apart as it was compiled with.
absl::StatusOr<std::vector<RoleSpec>> ReadRoles(
    const commsched_role_desc_t* roles, uint32_t num_roles) {
  std::vector<RoleSpec> ours;
  const char* at = reinterpret_cast<const char*>(roles);
  const uint64_t stride = roles->struct_size;
  if (stride % alignof(commsched_role_desc_t) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "roles[0]: struct_size is ", stride, "; it must be a multiple of ",
        alignof(commsched_role_desc_t)));
  }
  for (uint32_t r = 0; r < num_roles; ++r, at += stride) {
    const auto* desc = reinterpret_cast<const commsched_role_desc_t*>(at);
    auto role = desc->struct_size == stride
                    ? ReadRole(desc)
                    : absl::InvalidArgumentError(
                          absl::StrCat("struct_size is ", desc->struct_size,
                                       ", but that of roles[0] is ", stride));
    if (!role.ok()) {
      return absl::Status(
          role.status().code(),
          absl::StrCat("roles[", r, "]: ", role.status().message()));
    }
    ours.push_back(*std::move(role));
  }
  return ours;
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

absl::StatusOr<Placement> PlaceOf(const Plan& plan, uint32_t buffer) {
  if (buffer >= plan.graph->buffers().size()) {
    return absl::NotFoundError(absl::StrCat("place: buffer ", buffer,
                                            " is not in the graph of ",
                                            plan.graph->buffers().size()));
  }
  const BufferId id(buffer);
  for (const Placement& place : plan.placements) {
    if (place.buffer == id) return place;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("place: buffer '", plan.graph->buffer(id).name,
                   "' is not owned: it does not lie in the arena"));
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
    ASSIGN_OR_RETURN(auto plan, commsched::BuildPlan(graph->Share(),
                                                     our_options, our_profile));
    *out_plan = new commsched_plan{std::move(plan)};
    return absl::OkStatus();
  });
}

commsched_status_t commsched_plan_build_roles(
    const commsched_role_desc_t* roles, uint32_t num_roles,
    const commsched_plan_options_t* options, commsched_plan_t** out_plans) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"roles", roles}, {"out_plans", out_plans}}));
    if (num_roles == 0 || num_roles > commsched::kMaxRoles) {
      return absl::InvalidArgumentError(absl::StrCat("num_roles is ", num_roles,
                                                     "; it must be 1 to ",
                                                     commsched::kMaxRoles));
    }
    ASSIGN_OR_RETURN(const auto ours, commsched::ReadRoles(roles, num_roles));
    ASSIGN_OR_RETURN(const auto our_options, commsched::ReadOptions(options));
    ASSIGN_OR_RETURN(auto plans, commsched::BuildPlans(ours, our_options));
    std::vector<std::unique_ptr<commsched_plan>> handles;
    for (auto& plan : plans) {
      handles.push_back(
          std::unique_ptr<commsched_plan>(new commsched_plan{std::move(plan)}));
    }
    for (uint32_t r = 0; r < num_roles; ++r)
      out_plans[r] = handles[r].release();
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

commsched_status_t commsched_plan_place(const commsched_plan_t* plan,
                                        commsched_buffer_id_t buffer,
                                        uint64_t* out_offset,
                                        uint64_t* out_bytes) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"plan", plan},
                                    {"out_offset", out_offset},
                                    {"out_bytes", out_bytes}}));
    ASSIGN_OR_RETURN(const commsched::Placement place,
                     commsched::PlaceOf(*plan->plan, buffer));
    *out_offset = place.offset;
    *out_bytes = place.bytes;
    return absl::OkStatus();
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
