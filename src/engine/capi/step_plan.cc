// The C side of step plans.

#include "commsched/step_plan.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/capi/boundary.h"
#include "engine/step_plan/planned_role.h"
#include "engine/tables/optimizer_table.h"

using commsched::engine::AtBoundary;
using commsched::engine::CheckReserved;
using commsched::engine::CopyIn;
using commsched::engine::DescribeBucket;
using commsched::engine::DescribePlan;
using commsched::engine::FillInfo;
using commsched::engine::InvalidArgument;
using commsched::engine::NotNull;
using commsched::engine::Optimizer;
using commsched::engine::PlannedRole;
using commsched::engine::RoleToPlan;
using commsched::engine::Status;
using commsched::engine::StepOptions;

namespace {

constexpr uint32_t kMostRoles = 512;

// The options, and copies of the structs that they point to.
struct GivenOptions {
  commsched_step_plan_options_t options;
  commsched_optimizer_table_t optimizer;
  commsched_plan_options_t plan;
  commsched_cost_profile_t profile;
};

Status CopyOptions(const commsched_step_plan_options_t& from,
                   GivenOptions* out) {
  ENGINE_RETURN_IF_ERROR(CopyIn(from, "options", &out->options));
  if (out->options.optimizer != nullptr) {
    ENGINE_RETURN_IF_ERROR(
        CopyIn(*out->options.optimizer, "optimizer", &out->optimizer));
    ENGINE_RETURN_IF_ERROR(
        commsched::engine::CheckOptimizerTable(out->optimizer));
    out->options.optimizer = &out->optimizer;
  }
  if (out->options.plan != nullptr) {
    ENGINE_RETURN_IF_ERROR(CopyIn(*out->options.plan, "plan", &out->plan));
    out->options.plan = &out->plan;
  }
  if (out->options.profile != nullptr) {
    ENGINE_RETURN_IF_ERROR(
        CopyIn(*out->options.profile, "profile", &out->profile));
    out->options.profile = &out->profile;
  }
  return StepOptions::Check(out->options);
}

// "roles[1].num_ranks"
std::string FieldOf(uint32_t role, const char* field) {
  return "roles[" + std::to_string(role) + "]." + field;
}

Status Refuse(const std::string& field, uint64_t value,
              const std::string& why) {
  return InvalidArgument("engine: " + field + " is " + std::to_string(value) +
                         why);
}

// The roles of the groups of the model of `roles[i]`.
Status CheckGroups(uint32_t i, const commsched_step_plan_role_t& role) {
  const std::string field = FieldOf(i, "num_groups");
  if (role.role_of_member == nullptr) {
    if (role.num_groups == 0) return Status();
    return Refuse(field, role.num_groups, "; role_of_member is NULL");
  }
  const size_t groups = 1 + role.model->model->exchanges().groups.size();
  if (role.num_groups == groups) return Status();
  return Refuse(field, role.num_groups,
                "; the model has groups 0 to " + std::to_string(groups - 1) +
                    ", so it must be " + std::to_string(groups));
}

// The roles of the members of its `norm_group`.
Status CheckNormMembers(uint32_t i, uint32_t num_roles, uint32_t norm_members,
                        const commsched_step_plan_role_t& role) {
  const std::string field = FieldOf(i, "role_of_norm_member");
  const std::string length = FieldOf(i, "num_norm_members");
  norm_members = std::max(norm_members, uint32_t{1});
  if (role.role_of_norm_member == nullptr) {
    if (role.num_norm_members != 0) {
      return Refuse(length, role.num_norm_members,
                    "; role_of_norm_member is NULL");
    }
    if (norm_members == 1 || num_roles == 1) return Status();
    return InvalidArgument(
        "engine: " + field + " is NULL; with norm_members " +
        std::to_string(norm_members) + " and " + std::to_string(num_roles) +
        " roles it must say of which role each rank of norm_group is");
  }
  if (role.num_norm_members != norm_members) {
    return Refuse(
        length, role.num_norm_members,
        "; norm_members of the options is " + std::to_string(norm_members));
  }
  bool among_them = false;
  for (uint32_t m = 0; m < norm_members; ++m) {
    const uint32_t of = role.role_of_norm_member[m];
    among_them = among_them || of == i;
    if (of < num_roles) continue;
    return Refuse(field + "[" + std::to_string(m) + "]", of,
                  "; num_roles is " + std::to_string(num_roles));
  }
  if (among_them) return Status();
  return InvalidArgument("engine: " + field + " has no entry that is " +
                         std::to_string(i) +
                         ": the role is not among its own norm_group");
}

// Entry `i` of `roles`, whose entries may be larger or smaller than ours.
Status CopyRole(const commsched_step_plan_role_t* roles, uint32_t i,
                commsched_step_plan_role_t* out) {
  const auto* const at = reinterpret_cast<const commsched_step_plan_role_t*>(
      reinterpret_cast<const std::byte*>(roles) + i * roles->struct_size);
  const std::string name = "roles[" + std::to_string(i) + "]";
  ENGINE_RETURN_IF_ERROR(CopyIn(*at, name.c_str(), out));
  if (at->struct_size != roles->struct_size) {
    return InvalidArgument("engine: struct_size of " + name + " is " +
                           std::to_string(at->struct_size) +
                           "; that of roles[0] is " +
                           std::to_string(roles->struct_size));
  }
  ENGINE_RETURN_IF_ERROR(NotNull(out->model, (name + ".model").c_str()));
  if (out->num_ranks < 1) {
    return InvalidArgument("engine: " + name + ".num_ranks is " +
                           std::to_string(out->num_ranks) +
                           "; it must be 1 or more");
  }
  ENGINE_RETURN_IF_ERROR(CheckReserved(FieldOf(i, "reserved"), out->reserved));
  return CheckGroups(i, *out);
}

Status BuildPlans(const commsched_step_plan_role_t* roles, uint32_t num_roles,
                  const commsched_step_plan_options_t* options,
                  commsched_step_plan_t** out_plans) {
  ENGINE_RETURN_IF_ERROR(NotNull(roles, "roles"));
  ENGINE_RETURN_IF_ERROR(NotNull(options, "options"));
  ENGINE_RETURN_IF_ERROR(NotNull(out_plans, "out_plans"));
  if (num_roles < 1 || num_roles > kMostRoles) {
    return InvalidArgument("engine: num_roles is " + std::to_string(num_roles) +
                           "; it must be 1 to " + std::to_string(kMostRoles));
  }
  GivenOptions given;
  ENGINE_RETURN_IF_ERROR(CopyOptions(*options, &given));
  std::vector<RoleToPlan> to_plan;
  for (uint32_t i = 0; i < num_roles; ++i) {
    commsched_step_plan_role_t role;
    ENGINE_RETURN_IF_ERROR(CopyRole(roles, i, &role));
    ENGINE_RETURN_IF_ERROR(
        CheckNormMembers(i, num_roles, given.options.norm_members, role));
    commsched_step_plan_options_t of_role = given.options;
    ENGINE_RETURN_IF_ERROR(
        StepOptions::FindDivisor(*role.model->model, role.num_ranks, &of_role));
    to_plan.push_back(
        {.model = role.model->model,
         .options = std::make_shared<StepOptions>(of_role, role.num_ranks),
         .role_of_member = role.role_of_member,
         .num_groups = role.num_groups,
         .role_of_norm_member = role.role_of_norm_member});
  }
  std::vector<PlannedRole> planned;
  ENGINE_RETURN_IF_ERROR(commsched::engine::PlanRoles(to_plan, &planned));
  const auto optimizer =
      std::make_shared<const Optimizer>(given.options.optimizer);
  std::vector<std::unique_ptr<commsched_step_plan>> made;
  for (PlannedRole& each : planned) {
    made.push_back(std::make_unique<commsched_step_plan>(
        commsched_step_plan{std::move(each), optimizer}));
  }
  for (uint32_t i = 0; i < num_roles; ++i) out_plans[i] = made[i].release();
  return Status();
}

}  // namespace

commsched_status_t commsched_step_plan_build(
    const commsched_step_plan_role_t* roles, uint32_t num_roles,
    const commsched_step_plan_options_t* options,
    commsched_step_plan_t** out_plans) {
  return AtBoundary(
      [&] { return BuildPlans(roles, num_roles, options, out_plans); });
}

void commsched_step_plan_destroy(commsched_step_plan_t* plan) { delete plan; }

commsched_status_t commsched_step_plan_get_info(
    const commsched_step_plan_t* plan, commsched_step_plan_info_t* out_info) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(plan, "plan"));
    return FillInfo(out_info, [&](commsched_step_plan_info_t* info) {
      *info = commsched_step_plan_info_init();
      return DescribePlan(plan->role, info);
    });
  });
}

commsched_status_t commsched_step_plan_get_bucket_info(
    const commsched_step_plan_t* plan, uint64_t bucket,
    commsched_engine_bucket_info_t* out_info) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(plan, "plan"));
    return FillInfo(out_info, [&](commsched_engine_bucket_info_t* info) {
      *info = commsched_engine_bucket_info_init();
      return DescribeBucket(*plan->role.plan, bucket, info);
    });
  });
}

const commsched_plan_t* commsched_step_plan_core_plan(
    const commsched_step_plan_t* plan) {
  return plan == nullptr ? nullptr : plan->role.plan->plan();
}

const commsched_plan_t* commsched_step_plan_evaluation_plan(
    const commsched_step_plan_t* plan) {
  return plan == nullptr ? nullptr : plan->role.plan->forward_plan();
}
