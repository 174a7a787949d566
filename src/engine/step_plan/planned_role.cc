#include "engine/step_plan/planned_role.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "engine/model/registration.h"
#include "engine/step_plan/bucket_buffers.h"
#include "engine/step_plan/search/arena_search.h"

namespace commsched::engine {
namespace {

Status PlanAlone(const RoleToPlan& role, PlannedRole* out) {
  Layout layout;
  ENGINE_RETURN_IF_ERROR(LayOutGiven(role, &layout));
  const StepPlan::Options options = role.options->OfPlan();
  Sequence sequence = RegisteredSequence(role.model->modules().size());
  std::unique_ptr<const StepPlan> plan;
  if (role.options->merges_buckets()) {
    ENGINE_RETURN_IF_ERROR(SearchBuckets(role.options->spec(), *role.model,
                                         options, std::move(layout), sequence,
                                         &plan, &out->buckets));
  } else {
    ENGINE_RETURN_IF_ERROR(StepPlan::Build(role.options->spec(), *role.model,
                                           options, std::move(layout),
                                           std::move(sequence), &plan));
  }
  out->plan = std::move(plan);
  return Status();
}

Status PlanAll(const std::vector<RoleToPlan>& roles,
               std::vector<PlannedRole>* out) {
  std::vector<StepPlan::Options> options(roles.size());
  std::vector<StepPlan::Role> together;
  for (size_t i = 0; i < roles.size(); ++i) {
    Layout layout;
    ENGINE_RETURN_IF_ERROR(LayOutGiven(roles[i], &layout));
    options[i] = roles[i].options->OfPlan();
    together.push_back({.spec = &roles[i].options->spec(),
                        .model = roles[i].model.get(),
                        .options = &options[i],
                        .role_of_member = roles[i].role_of_member,
                        .num_groups = roles[i].num_groups,
                        .role_of_norm_member = roles[i].role_of_norm_member});
  }
  std::vector<std::unique_ptr<const StepPlan>> plans;
  ENGINE_RETURN_IF_ERROR(StepPlan::BuildTogether(together, &plans));
  for (size_t i = 0; i < roles.size(); ++i)
    (*out)[i].plan = std::move(plans[i]);
  return Status();
}

std::string Quoted(const std::string& name) {
  return std::string("'").append(name).append("'");
}

Status Changed(const std::string& what, const std::string& was,
               const std::string& next) {
  return InvalidArgument("engine: replan with " + what + " " + next +
                         "; it is " + was);
}

// All but the passes and hints of cost, so that the rank's calls and memory are
// those of either model.
Status CheckSameModel(const Model& was, const Model& next) {
  if (&was == &next) return Status();
  const std::vector<RegisteredFact> before = FactsOfRank(was);
  const std::vector<RegisteredFact> after = FactsOfRank(next);
  for (size_t i = 0; i < std::min(before.size(), after.size()); ++i) {
    if (before[i] == after[i]) continue;
    return Changed(before[i].subject, before[i].value, after[i].value);
  }
  return Status();
}

// What the state of a rank depends on, and what its calls do.
Status CheckSameSpec(const StepSpec& was, const StepSpec& next) {
  if (was.gradient_divisor != next.gradient_divisor) {
    return Changed("gradient_divisor", std::to_string(was.gradient_divisor),
                   std::to_string(next.gradient_divisor));
  }
  if (std::strcmp(was.optimizer, next.optimizer) != 0) {
    return Changed("optimizer", Quoted(was.optimizer), Quoted(next.optimizer));
  }
  const struct {
    const char* what;
    uint64_t was, next;
  } values[] = {
      {"zero_stage", was.zero_stage, next.zero_stage},
      {"micro_batches", was.micro_batches, next.micro_batches},
      {"num_ranks", static_cast<uint64_t>(was.world),
       static_cast<uint64_t>(next.world)},
      {"clips", was.clip, next.clip},
      {"scales_loss", was.scales_loss, next.scales_loss},
      {"check_finite", was.check_finite, next.check_finite},
      {"norm", was.reads_norm, next.reads_norm},
      {"norm_members", static_cast<uint64_t>(was.norm_members),
       static_cast<uint64_t>(next.norm_members)},
      {"deterministic", was.deterministic, next.deterministic},
      {"values per weight", was.moments, next.moments},
      {"option_sets", was.option_sets, next.option_sets},
      {"gradient_ready", was.gradient_ready, next.gradient_ready},
      {"absent_gradients", was.absent_gradients, next.absent_gradients},
      {"cancel_all", was.cancel_all, next.cancel_all},
      {"uneven_evaluations", was.uneven_evaluations, next.uneven_evaluations},
      {"offloads", was.offloads, next.offloads},
      {"offloads_gradients", was.offloads_gradients, next.offloads_gradients},
      {"parameter_dtype", was.precision.parameters, next.precision.parameters},
      {"reduce_dtype", was.precision.reduced, next.precision.reduced},
  };
  for (const auto& [what, before, after] : values) {
    if (before == after) continue;
    return Changed(what, std::to_string(before), std::to_string(after));
  }
  return Status();
}

// Memory for what passes through it is the rank's.
Status CheckSameStaging(const Layout& was, const Layout& next) {
  if (was.staging_slots != next.staging_slots) {
    return Changed(
        "slots for the optimizer's state:", std::to_string(was.staging_slots),
        std::to_string(next.staging_slots));
  }
  if (was.gradient_slots == next.gradient_slots) return Status();
  return Changed("slots for gradients:", std::to_string(was.gradient_slots),
                 std::to_string(next.gradient_slots));
}

// "of 1792 elements with parameters 2, 3"
std::string TextOf(const Bucket& bucket) {
  std::string text = "of " + std::to_string(bucket.count) + " elements with";
  for (size_t i = 0; i < bucket.parameters.size(); ++i) {
    text +=
        (i == 0 ? " parameters " : ", ") + std::to_string(bucket.parameters[i]);
  }
  if (bucket.resident) text += ", whole on every rank";
  if (bucket.reduced_at_once) text += ", reduced in each micro-batch";
  return text;
}

// Whether a bucket is the same, also from one micro-batch to the next. Passes
// alone say whether micro-batches come between each other.
bool LaidOutAlike(const Bucket& was, const Bucket& next) {
  return was.count == next.count && was.parameters == next.parameters &&
         was.resident == next.resident && was.dtype == next.dtype &&
         was.frozen == next.frozen &&
         was.reduced_at_once == next.reduced_at_once;
}

}  // namespace

Status CheckSameState(const PlannedRole& was, const PlannedRole& next) {
  ENGINE_RETURN_IF_ERROR(CheckSameModel(*was.model, *next.model));
  ENGINE_RETURN_IF_ERROR(
      CheckSameSpec(was.options->spec(), next.options->spec()));
  ENGINE_RETURN_IF_ERROR(
      CheckSameStaging(was.plan->layout(), next.plan->layout()));
  const std::vector<Bucket>& before = was.plan->layout().buckets;
  const std::vector<Bucket>& after = next.plan->layout().buckets;
  if (before.size() != after.size()) {
    return Changed("buckets:", std::to_string(before.size()),
                   std::to_string(after.size()));
  }
  for (size_t b = 0; b < before.size(); ++b) {
    if (LaidOutAlike(before[b], after[b])) continue;
    return Changed("bucket " + std::to_string(b), TextOf(before[b]),
                   TextOf(after[b]));
  }
  return Status();
}

Status LayOutGiven(const RoleToPlan& role, Layout* out_layout) {
  if (role.model->parameters().empty()) {
    return FailedPrecondition("engine: the model has no parameters");
  }
  return StepPlan::LayOut(role.options->spec(), *role.model,
                          role.options->OfPlan(), out_layout);
}

Status PlanRoles(const std::vector<RoleToPlan>& roles,
                 std::vector<PlannedRole>* out_roles) {
  std::vector<PlannedRole> planned(roles.size());
  ENGINE_RETURN_IF_ERROR(roles.size() == 1
                             ? PlanAlone(roles.front(), &planned.front())
                             : PlanAll(roles, &planned));
  for (size_t i = 0; i < roles.size(); ++i) {
    planned[i].model = roles[i].model;
    planned[i].options = roles[i].options;
    planned[i].model->Close();
  }
  *out_roles = std::move(planned);
  return Status();
}

Status DescribePlan(const PlannedRole& role, commsched_step_plan_info_t* info) {
  const StepPlan& plan = *role.plan;
  info->num_parameters = plan.layout().num_elements;
  info->num_buckets = plan.layout().buckets.size();
  info->num_passes = plan.graph().passes.size();
  info->num_ops = plan.num_ops();
  for (uint32_t b = 0; b < info->num_buckets; ++b) {
    const std::vector<BucketBuffer> rows = plan.BuffersOf(b);
    for (const BucketBuffer& row : rows) {
      if (row.ownership != COMMSCHED_BOUND) continue;
      switch (row.kind) {
        case BufferKind::kParameters:
          info->parameter_bytes += row.bytes();
          break;
        case BufferKind::kMasters:
        case BufferKind::kState:
          info->optimizer_bytes += row.bytes();
          break;
        default:
          info->gradient_bytes += row.bytes();
      }
    }
    info->due_bytes += DueBytes(plan.spec(), rows);
  }
  info->optimizer_bytes +=
      plan.layout().staging_slots * plan.layout().staging_count * sizeof(float);
  info->gradient_bytes += plan.layout().gradient_slots *
                          plan.layout().gradient_slot_count *
                          SizeOf(plan.spec().precision.reduced);
  info->arena_bytes = plan.arena_bytes();
  info->accumulated_bytes = AccumulatedBytes(plan.spec(), plan.layout());
  commsched_prediction_t prediction = commsched_prediction_init();
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_plan_predict(plan.plan(), nullptr, &prediction),
      "predicting a step"));
  info->step_ns = prediction.step_ns;
  commsched_plan_info_t placed = commsched_plan_info_init();
  ENGINE_RETURN_IF_ERROR(
      Status::FromCall(commsched_plan_get_info(plan.plan(), &placed),
                       "reading the plan of a step"));
  info->fixed_address_bytes = placed.place_group_bytes;
  info->given_buckets = role.buckets.given_buckets;
  info->given_step_ns = role.buckets.given_step_ns;
  return Status();
}

Status DescribeBucket(const StepPlan& plan, uint64_t bucket,
                      commsched_engine_bucket_info_t* info) {
  const std::vector<Bucket>& buckets = plan.layout().buckets;
  if (bucket >= buckets.size()) {
    return Status(COMMSCHED_NOT_FOUND,
                  "engine: bucket " + std::to_string(bucket) + "; there are " +
                      std::to_string(buckets.size()));
  }
  const Bucket& from = buckets[bucket];
  info->count = from.count;
  info->num_parameters = from.parameters.size();
  if (!from.frozen) {
    info->num_reductions = from.reduced_at_once ? plan.spec().micro_batches : 1;
  }
  info->dtype = static_cast<uint32_t>(from.dtype);
  info->frozen = from.frozen ? 1 : 0;
  if (plan.gathers(static_cast<uint32_t>(bucket))) {
    for (const Gathered& each : plan.graph().gathered) {
      if (each.stay.bucket == bucket) ++info->num_gathers;
    }
  } else if (plan.spec().zero_stage > 0 && !from.frozen) {
    info->num_gathers = 1;
  }
  return Status();
}

}  // namespace commsched::engine
