// What may be called between steps: evaluations, and values in and out.

#include <algorithm>
#include <utility>

#include "engine.h"

namespace commsched::engine {

Status Engine::Drain() {
  if (phase_ != Phase::kBetweenSteps) return OutOfOrder("drain");
  ENGINE_RETURN_IF_ERROR(SessionFailure());  // Of evaluations, too.
  if (!recording_) {
    ENGINE_RETURN_IF_ERROR(bound_.Drain());
    ENGINE_RETURN_IF_ERROR(update_.ReportRates());
    ENGINE_RETURN_IF_ERROR(kernels_.Synchronize());
    ENGINE_RETURN_IF_ERROR(update_.CheckReports());
  }
  drained_ = true;
  return Status();
}

Status Engine::EvaluationBegin() {
  if (phase_ != Phase::kBetweenSteps) return OutOfOrder("evaluation_begin");
  ENGINE_RETURN_IF_ERROR(Drain());
  if (recording_) ENGINE_RETURN_IF_ERROR(BeginRecordedPass());
  ENGINE_RETURN_IF_ERROR(bound_.BeginEvaluation());
  evaluating_ = true;
  phase_ = Phase::kBetweenModules;
  forward_cursor_.Restart();
  return Status();
}

Status Engine::EvaluationModuleBegin(const PassOps& ops) {
  ENGINE_RETURN_IF_ERROR(SessionFailure());
  if (bound_.evaluation_meets()) {
    ENGINE_RETURN_IF_ERROR(bound_.Before(ops.op));
    ShowBuckets();
    open_op_ = ops.op;
  }
  phase_ = Phase::kInModule;
  return Status();
}

Status Engine::EvaluationEnd() {
  if (phase_ != Phase::kBetweenModules || !evaluating_ ||
      (!recording_ && !cursor().CanEnd())) {
    return OutOfOrder("evaluation_end");
  }
  if (recording_) {
    ENGINE_RETURN_IF_ERROR(EndRecording());
    evaluating_ = false;
    phase_ = Phase::kBetweenSteps;
    return Status();
  }
  ENGINE_RETURN_IF_ERROR(PassTo(cursor().passes().size()));
  ENGINE_RETURN_IF_ERROR(bound_.EndEvaluation());
  evaluating_ = false;
  phase_ = Phase::kBetweenSteps;
  return Status();
}

Status Engine::CheckDrained(const char* call) const {
  if (phase_ == Phase::kBetweenSteps && drained_) return Status();
  ENGINE_RETURN_IF_ERROR(SessionFailure());
  if (phase_ == Phase::kBetweenSteps) {
    return FailedPrecondition(std::string("engine: ") + call +
                              " was called after step " +
                              std::to_string(steps_done_) + " without a drain");
  }
  return OutOfOrder(call);
}

Status Engine::CheckCount(const char* call, uint32_t parameter,
                          uint64_t count) const {
  const Parameter& p = model_.parameters()[parameter];
  if (count == p.count) return Status();
  return InvalidArgument(std::string("engine: ") + call + " of '" + p.name +
                         "' with " + std::to_string(count) +
                         " elements; it has " + std::to_string(p.count));
}

// Null while the bucket is not whole.
const std::byte* Engine::ParameterValues(uint32_t parameter) const {
  const Slot& slot = layout().slots[parameter];
  const std::byte* bucket = state_.bucket(slot.bucket).all_parameters;
  if (bucket == nullptr) return nullptr;
  return bucket + slot.offset * SizeOf(spec_.precision.parameters);
}

Status Engine::ParameterRange(uint32_t parameter, uint64_t* out_offset,
                              uint64_t* out_count) const {
  ENGINE_RETURN_IF_ERROR(model_.CheckParameter(parameter));
  if (!built()) return OutOfOrder("parameter_range");
  const Slot& slot = layout().slots[parameter];
  uint64_t offset = 0;
  uint64_t count = model_.parameters()[parameter].count;
  if (gathered(slot.bucket)) {
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
  ENGINE_RETURN_IF_ERROR(CheckDrained("set_parameter"));
  ENGINE_RETURN_IF_ERROR(CheckCount("set_parameter", parameter, count));
  return SetParameterRange(parameter, 0, values, count);
}

Status Engine::SetParameterRange(uint32_t parameter, uint64_t offset,
                                 const float* values, uint64_t count) {
  ENGINE_RETURN_IF_ERROR(model_.CheckParameter(parameter));
  ENGINE_RETURN_IF_ERROR(CheckDrained("set_parameter_range"));
  const Parameter& p = model_.parameters()[parameter];
  if (offset > p.count || count > p.count - offset) {
    return InvalidArgument("engine: set_parameter_range of '" + p.name + "', " +
                           std::to_string(count) + " elements from " +
                           std::to_string(offset) + "; it has " +
                           std::to_string(p.count));
  }
  const Slot& slot = layout().slots[parameter];
  if (count > 0 && !gathered(slot.bucket)) agreement_.NoteChangedValues();
  return state_values().Store(slot.bucket, slot.offset + offset, values, count);
}

// A gathered bucket is whole while a forward of an evaluation uses it.
Status Engine::CheckWhole(const char* call, uint32_t parameter) const {
  const uint32_t bucket = layout().slots[parameter].bucket;
  if (!evaluating_ && !gathered(bucket)) return CheckDrained(call);
  ENGINE_RETURN_IF_ERROR(SessionFailure());
  if (evaluating_ && state_.bucket(bucket).all_parameters != nullptr)
    return Status();
  return FailedPrecondition(
      std::string("engine: ") + call + " of '" +
      model_.parameters()[parameter].name +
      "', which no rank has as a whole; expected evaluation_begin, and then " +
      ModuleCall(/*backward=*/false, "begin",
                 model_.parameters()[parameter].module, 0));
}

Status Engine::GetParameter(uint32_t parameter, float* out_values,
                            uint64_t count) {
  ENGINE_RETURN_IF_ERROR(model_.CheckParameter(parameter));
  if (built()) {
    const std::string call =
        "get_parameter of '" + model_.parameters()[parameter].name + "'";
    const uint32_t bucket = layout().slots[parameter].bucket;
    ENGINE_RETURN_IF_ERROR(
        PoisonFor(call).Refuse(bucket, BufferKind::kParameters));
    ENGINE_RETURN_IF_ERROR(CheckWhole("get_parameter", parameter));
  } else {
    ENGINE_RETURN_IF_ERROR(CheckDrained("get_parameter"));
  }
  ENGINE_RETURN_IF_ERROR(CheckCount("get_parameter", parameter, count));
  return state_.ReadValues(ParameterValues(parameter),
                           spec_.precision.parameters, out_values, count);
}

Status Engine::ParameterAddress(uint32_t parameter, const void** out_values,
                                void** out_gradient) {
  ENGINE_RETURN_IF_ERROR(model_.CheckParameter(parameter));
  if (!built()) return OutOfOrder("parameter_address");
  const Slot& slot = layout().slots[parameter];
  std::byte* gradients = state_.bucket(slot.bucket).all_gradients;
  if (gradients != nullptr) {
    gradients += slot.offset * SizeOf(spec_.precision.parameters);
  }
  *out_values = ParameterValues(parameter);
  *out_gradient = gradients;
  return Status();
}

Status Engine::LossScaleAddress(const double** out_scale) const {
  if (!built()) return OutOfOrder("loss_scale_address");
  *out_scale = &state_.control()->scale;
  return Status();
}

Status Engine::GetLossScale(
    commsched_engine_loss_scale_info_t* out_info) const {
  ENGINE_RETURN_IF_ERROR(CheckDrained("get_loss_scale"));
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
  ENGINE_RETURN_IF_ERROR(CheckDrained("op_costs"));
  return bound_.OpCosts(steps_done_, out_ns, num_ops);
}

}  // namespace commsched::engine
