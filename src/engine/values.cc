// What may be called between steps: evaluations, and values in and out.

#include <algorithm>
#include <utility>

#include "engine.h"
#include "engine/run/poison.h"
#include "engine/step_plan/bucket_buffers.h"
#include "engine/update/loss_scale.h"

namespace commsched::engine {
namespace {

// The place of a parameter in the pass at `position` of the step.
commsched_parameter_place_t PlaceIn(const StepPlan& plan,
                                    const RankState& state,
                                    const BoundStep& bound, size_t position,
                                    uint32_t parameter) {
  const Pass& pass = plan.graph().passes[position];
  const Slot& slot = plan.layout().slots[parameter];
  const std::vector<uint32_t>& buckets =
      plan.layout().module_buckets[pass.module];
  const auto index = static_cast<size_t>(
      std::find(buckets.begin(), buckets.end(), slot.bucket) - buckets.begin());
  const BoundStep::PassAddresses& at = bound.addresses()[position];
  const BucketMemory& memory = state.bucket(slot.bucket);
  std::byte* const values =
      plan.gathers(slot.bucket) ? at.values[index] : memory.all_parameters;
  std::byte* gradients = at.gradients[index];
  if (AddsGradients(pass.kind) && !plan.short_lived_gradients(slot.bucket)) {
    gradients = memory.all_gradients;
  }
  const uint64_t offset =
      slot.offset * SizeOf(plan.layout().buckets[slot.bucket].dtype);
  return {.parameter = parameter,
          .reserved = 0,
          .values = values == nullptr ? nullptr : values + offset,
          .gradient = gradients == nullptr ? nullptr : gradients + offset};
}

}  // namespace

// Null while the bucket is not whole.
const std::byte* Engine::ParameterValues(uint32_t parameter) const {
  const Slot& slot = layout().slots[parameter];
  const std::byte* bucket = state_.bucket(slot.bucket).all_parameters;
  if (bucket == nullptr) return nullptr;
  return bucket + slot.offset * SizeOf(layout().buckets[slot.bucket].dtype);
}

Status Engine::ParameterRange(uint32_t parameter, uint64_t* out_offset,
                              uint64_t* out_count) const {
  ENGINE_RETURN_IF_ERROR(model_.CheckParameter(parameter));
  const Slot& slot = layout().slots[parameter];
  uint64_t offset = 0;
  uint64_t count = model_.parameters()[parameter].count;
  if (role_.plan->gathers(slot.bucket)) {
    count = 0;
    for (const Segment& segment : state_.bucket(slot.bucket).segments) {
      if (segment.parameter != parameter) continue;
      offset = segment.in_bucket - slot.offset;
      count = segment.count;
    }
  }
  *out_offset = offset;
  *out_count = count;
  return Status();
}

Status Engine::SetParameter(uint32_t parameter, const float* values,
                            uint64_t count) {
  ENGINE_RETURN_IF_ERROR(model_.CheckParameter(parameter));
  ENGINE_RETURN_IF_ERROR(calls_.CheckDrained("set_parameter"));
  ENGINE_RETURN_IF_ERROR(model_.CheckCount("set_parameter", parameter, count));
  return SetParameterRange(parameter, 0, values, count);
}

Status Engine::SetParameterRange(uint32_t parameter, uint64_t offset,
                                 const float* values, uint64_t count) {
  ENGINE_RETURN_IF_ERROR(model_.CheckParameter(parameter));
  ENGINE_RETURN_IF_ERROR(calls_.CheckDrained("set_parameter_range"));
  const Parameter& p = model_.parameters()[parameter];
  if (offset > p.count || count > p.count - offset) {
    return InvalidArgument("engine: set_parameter_range of '" + p.name + "', " +
                           std::to_string(count) + " elements from " +
                           std::to_string(offset) + "; it has " +
                           std::to_string(p.count));
  }
  const Slot& slot = layout().slots[parameter];
  if (count > 0 && !role_.plan->gathers(slot.bucket))
    agreement_.NoteChangedValues();
  return state_values().Store(slot.bucket, slot.offset + offset, values, count);
}

// A gathered bucket is whole while a forward of an evaluation uses it.
Status Engine::CheckWhole(const char* call, uint32_t parameter) const {
  const uint32_t bucket = layout().slots[parameter].bucket;
  if (!calls_.evaluating() && !role_.plan->gathers(bucket))
    return calls_.CheckDrained(call);
  ENGINE_RETURN_IF_ERROR(calls_.Failure());
  if (calls_.evaluating() && state_.bucket(bucket).all_parameters != nullptr)
    return Status();
  return FailedPrecondition(
      std::string("engine: ") + call + " of '" +
      model_.parameters()[parameter].name +
      "', which no rank has as a whole; expected evaluation_begin, and then " +
      model_.TextOfCall("begin",
                        {.module = model_.parameters()[parameter].module}));
}

Status Engine::GetParameter(uint32_t parameter, float* out_values,
                            uint64_t count) {
  ENGINE_RETURN_IF_ERROR(model_.CheckParameter(parameter));
  const std::string call =
      "get_parameter of '" + model_.parameters()[parameter].name + "'";
  const uint32_t bucket = layout().slots[parameter].bucket;
  const Poison poison = {role_.plan.get(), session(), calls_.Failure(), call};
  ENGINE_RETURN_IF_ERROR(poison.Refuse(bucket, BufferKind::kParameters));
  ENGINE_RETURN_IF_ERROR(CheckWhole("get_parameter", parameter));
  ENGINE_RETURN_IF_ERROR(model_.CheckCount("get_parameter", parameter, count));
  return state_.ReadValues(ParameterValues(parameter),
                           layout().buckets[bucket].dtype, out_values, count);
}

Status Engine::ParameterAddress(uint32_t parameter, const void** out_values,
                                void** out_gradient) {
  ENGINE_RETURN_IF_ERROR(model_.CheckParameter(parameter));
  const Slot& slot = layout().slots[parameter];
  std::byte* gradients = state_.bucket(slot.bucket).all_gradients;
  if (gradients != nullptr) {
    gradients += slot.offset * SizeOf(layout().buckets[slot.bucket].dtype);
  }
  *out_values = ParameterValues(parameter);
  *out_gradient = gradients;
  return Status();
}

Status Engine::Addresses(const PassCall& call,
                         std::span<commsched_parameter_place_t> places,
                         uint64_t* out_count) const {
  if (calls_.recording()) {
    return FailedPrecondition(
        "engine: addresses while the order is recorded: they are found when "
        "that has ended");
  }
  const std::vector<Pass>& passes = role_.plan->graph().passes;
  const auto pass =
      std::find_if(passes.begin(), passes.end(),
                   [&](const Pass& each) { return each.call() == call; });
  const std::vector<Module>& modules = model_.modules();
  if (pass == passes.end()) {
    return InvalidArgument(
        "engine: addresses in " +
        TextOf({.kind = call.kind,
                .module = call.module,
                .micro_batch = call.micro_batch},
               call.module < modules.size() ? modules[call.module].name : "") +
        ", which the step plan does not have");
  }
  const auto position = static_cast<size_t>(pass - passes.begin());
  const std::vector<uint32_t>& used = modules[call.module].used;
  for (size_t i = 0; i < std::min(used.size(), places.size()); ++i) {
    places[i] = PlaceIn(*role_.plan, state_, bound_, position, used[i]);
  }
  *out_count = used.size();
  return Status();
}

Status Engine::LossScaleAddress(const double** out_scale) const {
  *out_scale = &state_.control()->scale;
  return Status();
}

Status Engine::GetLossScale(
    commsched_engine_loss_scale_info_t* out_info) const {
  ENGINE_RETURN_IF_ERROR(calls_.CheckDrained("get_loss_scale"));
  const LossScale& state = update_.reported();
  commsched_engine_loss_scale_info_t info =
      commsched_engine_loss_scale_info_init();
  info.scale = state.scale;
  info.good_steps = static_cast<uint64_t>(state.good_steps);
  info.skipped_steps = static_cast<uint64_t>(state.skipped_steps);
  *out_info = info;
  return Status();
}

Status Engine::OpCosts(int64_t* out_ns, uint64_t num_ops) const {
  ENGINE_RETURN_IF_ERROR(calls_.CheckDrained("op_costs"));
  return bound_.OpCosts(calls_.steps_done(), out_ns, num_ops);
}

}  // namespace commsched::engine
