#include "engine/step_plan/joint_plan.h"

#include <algorithm>
#include <string>

#include "engine/model/graph_writer.h"

namespace commsched::engine {
namespace {

// The roles of the groups of a graph, by group; NULL: all members are of the
// graph's own role.
using RolesOfGroups = std::vector<const uint32_t*>;

// A graph has the engine's group first, and then those of the model.
RolesOfGroups RolesOfModelGroups(const StepPlan::Role& role) {
  RolesOfGroups roles(1 + role.model->exchanges().groups.size());
  std::copy_n(role.role_of_member, role.num_groups, roles.begin());
  return roles;
}

// That of the norm is behind them (NormBuilder::Group()).
RolesOfGroups RolesOfStepGroups(const StepPlan::Role& role) {
  RolesOfGroups roles = RolesOfModelGroups(role);
  if (role.spec->uses_norm_group()) roles.push_back(role.role_of_norm_member);
  return roles;
}

Status PlanGraphs(const std::vector<StepPlan::Role>& roles,
                  const std::vector<const commsched_graph_t*>& graphs,
                  const std::vector<RolesOfGroups>& groups,
                  const commsched_plan_options_t& options,
                  std::vector<PlanHandle>* out_plans) {
  std::vector<commsched_role_desc_t> descs;
  for (size_t i = 0; i < roles.size(); ++i) {
    commsched_role_desc_t& desc =
        descs.emplace_back(commsched_role_desc_init());
    desc.graph = graphs[i];
    desc.profile = &roles[i].options->profile;
    desc.role_of_member = groups[i].data();
    desc.num_groups = static_cast<uint32_t>(groups[i].size());
  }
  std::vector<commsched_plan_t*> plans(roles.size());
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_plan_build_roles(descs.data(),
                                 static_cast<uint32_t>(descs.size()), &options,
                                 plans.data()),
      "planning the roles"));
  out_plans->clear();
  for (commsched_plan_t* plan : plans) out_plans->emplace_back(plan);
  return Status();
}

}  // namespace

commsched_plan_options_t OptionsOfEvaluation(commsched_plan_options_t options) {
  options.arena_bytes = 0;
  options.coalesce_bytes = 0;
  options.policy = nullptr;
  return options;
}

std::vector<Module> ModulesAlone(const StepPlan::Role& role) {
  std::vector<Module> modules = role.model->modules();
  for (Module& module : modules) {
    for (std::vector<ModuleStep>& steps : module.steps) {
      std::erase_if(steps, [&](const ModuleStep& step) {
        const uint32_t group = step.collective.group;
        return step.is_collective && group < role.num_groups &&
               role.role_of_member[group] != nullptr;
      });
    }
  }
  return modules;
}

Status PlanJointSteps(const std::vector<StepPlan::Role>& roles,
                      const std::vector<const commsched_graph_t*>& graphs,
                      uint64_t arena_bytes,
                      std::vector<PlanHandle>* out_plans) {
  std::vector<RolesOfGroups> groups;
  for (const StepPlan::Role& role : roles) {
    groups.push_back(RolesOfStepGroups(role));
  }
  const LastErrorKeeper keeper;  // A plan that is too large is tried again.
  const ArenaLimits limits = roles.front().options->limits();
  commsched_plan_options_t options = roles.front().options->plan;
  options.arena_bytes = limits.least();
  if (limits.least() != 0) {
    const Status planned =
        PlanGraphs(roles, graphs, groups, options, out_plans);
    if (planned.code() != COMMSCHED_RESOURCE_EXHAUSTED) return planned;
    return Status(planned.code(), "engine: with " + limits.NameOfLeast() +
                                      ": " + planned.message());
  }
  if (arena_bytes == 0) {
    return PlanGraphs(roles, graphs, groups, options, out_plans);
  }
  for (const uint64_t more : {0, 1, 2, 4, 8, 16}) {
    options.arena_bytes = arena_bytes + arena_bytes / 16 * more;
    const Status planned =
        PlanGraphs(roles, graphs, groups, options, out_plans);
    if (planned.code() != COMMSCHED_RESOURCE_EXHAUSTED) return planned;
  }
  options.arena_bytes = 0;
  return PlanGraphs(roles, graphs, groups, options, out_plans);
}

// Those without a graph have nothing to exchange, and so no other has it with
// them; an empty one keeps their place.
Status PlanJointEvaluations(const std::vector<StepPlan::Role>& roles,
                            std::vector<const commsched_graph_t*> graphs,
                            std::vector<PlanHandle>* out_plans) {
  std::vector<GraphWriter> empty(roles.size());
  std::vector<RolesOfGroups> groups;
  for (size_t i = 0; i < roles.size(); ++i) {
    if (graphs[i] != nullptr) {
      groups.push_back(RolesOfModelGroups(roles[i]));
      continue;
    }
    ENGINE_RETURN_IF_ERROR(empty[i].Create(roles[i].spec->world));
    graphs[i] = empty[i].graph();
    groups.push_back({nullptr});
  }
  return PlanGraphs(roles, graphs, groups,
                    OptionsOfEvaluation(roles.front().options->plan),
                    out_plans);
}

}  // namespace commsched::engine
