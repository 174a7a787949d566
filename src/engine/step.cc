// The step.

#include <optional>

#include "engine.h"

namespace commsched::engine {
// ---- Order of calls ---------------------------------------------------------

std::string Engine::ModuleCall(bool backward, const char* which,
                               uint32_t module, uint32_t micro_batch) const {
  return CallText(
      which,
      {.module = module, .micro_batch = micro_batch, .backward = backward},
      module < model_.modules().size() ? model_.modules()[module].name : "");
}

std::string Engine::ExpectedCall() const {
  switch (phase_) {
    case Phase::kRegistering:
    case Phase::kPrepared:
      return "build";
    case Phase::kBetweenSteps:
      return "step_begin";
    case Phase::kReduced:
      return "update";
    case Phase::kStepped:
      return "step_end";
    case Phase::kInOp:
    case Phase::kInModule:
      if (phase_ == Phase::kInOp || inner_ < pass_ops().inner.size()) {
        return ExpectedOpCall();
      }
      break;
    case Phase::kBetweenModules:
      break;
  }
  if (recording_) return ExpectedRecordedCall();
  if (phase_ == Phase::kInModule) return cursor().ExpectedEnd();
  return cursor().Expected(evaluating_ ? "evaluation_end" : "update");
}

// A session that has failed is why a caller is out of step with the engine, so
// that failure comes first.
Status Engine::SessionFailure() const {
  ENGINE_RETURN_IF_ERROR(record_failure_);
  ENGINE_RETURN_IF_ERROR(update_.verdict());
  if (offload_ != nullptr) ENGINE_RETURN_IF_ERROR(offload_->failure());
  return bound_.FailureOfSessions();
}

Status Engine::OutOfOrder(const std::string& call, const char* advice) const {
  ENGINE_RETURN_IF_ERROR(SessionFailure());
  return FailedPrecondition("engine: " + call + " was called; expected " +
                            ExpectedCall() + advice);
}

// What helps where the order of modules has changed for good, if the call can
// be part of an order, and that can be recorded.
const char* Engine::AdviceOnOrder(uint32_t module, uint32_t micro_batch) const {
  if (module >= model_.modules().size() ||
      micro_batch > cursor().passes().back().micro_batch ||
      !CheckCanRecord().ok()) {
    return "";
  }
  return "; a program whose order has changed for good calls "
         "commsched_engine_record_order() between steps";
}

// ---- Running ----------------------------------------------------------------

Status Engine::CompareValues() {
  const Status agreed =
      agreement_.OnValues({.model = &model_,
                           .plan = step_plan_.get(),
                           .state = &state_,
                           .steps = steps(),
                           .loss_scale = &update_.reported()},
                          [this] { return bound_.FailureOfSessions(); });
  if (!agreed.ok()) ENGINE_RETURN_IF_ERROR(SessionFailure());
  return agreed;
}

Status Engine::StepBegin() {
  if (phase_ != Phase::kBetweenSteps) return OutOfOrder("step_begin");
  ENGINE_RETURN_IF_ERROR(SessionFailure());  // Of evaluations, too.
  ENGINE_RETURN_IF_ERROR(update_.CheckReports());
  if (agreement_.values_may_differ()) {
    ENGINE_RETURN_IF_ERROR(CompareValues());
  }
  ENGINE_RETURN_IF_ERROR(recording_ ? BeginRecordedPass()
                                    : bound_.BeginStep(steps_begun_ + 1));
  phase_ = Phase::kBetweenModules;
  step_cursor_.Restart();
  drained_ = false;
  ++steps_begun_;
  return recording_ ? Status() : update_.FetchFirst();
}

Status Engine::ModuleBegin(bool backward, uint32_t module,
                           uint32_t micro_batch) {
  if (recording_) {
    if (!backward && micro_batch == 0) return RecordForward(module);
    if (!EndsRecordedForward(backward, module, micro_batch)) {
      return OutOfOrder(ModuleCall(backward, "begin", module, micro_batch));
    }
    ENGINE_RETURN_IF_ERROR(EndRecording());
  }
  if (phase_ != Phase::kBetweenModules) {
    return OutOfOrder(ModuleCall(backward, "begin", module, micro_batch));
  }
  const std::optional<uint64_t> index =
      cursor().Next({backward, module, micro_batch});
  if (!index.has_value()) {
    return OutOfOrder(ModuleCall(backward, "begin", module, micro_batch),
                      AdviceOnOrder(module, micro_batch));
  }
  ENGINE_RETURN_IF_ERROR(PassTo(*index));
  cursor().Begin(/*left_out=*/false);
  const PassOps& ops = pass_ops();
  if (evaluating_) return EvaluationModuleBegin(ops);
  ENGINE_RETURN_IF_ERROR(BeginPassOps(ops));
  phase_ = Phase::kInModule;
  if (backward && spec_.zero_stage != 3) return Status();
  return bound_.CheckVersions(cursor().pass(), ops, steps_done_);
}

// Its parameters are there then, and its gradients can be added to.
Status Engine::BeginPassOps(const PassOps& ops) {
  for (const Accumulation& each : ops.accumulations) {
    ENGINE_RETURN_IF_ERROR(
        update_.Accumulate(each.bucket, each.op, each.first));
  }
  ENGINE_RETURN_IF_ERROR(bound_.Before(ops.op));
  open_op_ = ops.op;
  ShowBuckets();
  for (uint32_t b : ops.zeroed) {
    ENGINE_RETURN_IF_ERROR(kernels_.Zero(
        state_.bucket(b).all_gradients,
        layout().buckets[b].count * SizeOf(spec_.precision.parameters)));
  }
  return Status();
}

Status Engine::ModuleEnd(bool backward, uint32_t module, uint32_t micro_batch) {
  if (recording_) return RecordForwardEnd(backward, module, micro_batch);
  if (phase_ != Phase::kInModule ||
      !cursor().IsAt({backward, module, micro_batch}) ||
      inner_ < pass_ops().inner.size()) {
    return OutOfOrder(ModuleCall(backward, "end", module, micro_batch));
  }
  HideBuckets();
  ENGINE_RETURN_IF_ERROR(EndOpenOp());
  ENGINE_RETURN_IF_ERROR(
      ConvertGradients(pass_ops(), bound_.conversions(cursor().index())));
  phase_ = Phase::kBetweenModules;
  cursor().Advance();
  inner_ = 0;
  return Status();
}

Status Engine::EndPasses(const char* call) {
  if (recording_) {
    if (!EndsRecordedForward(/*backward=*/false, 0, 0)) return OutOfOrder(call);
    ENGINE_RETURN_IF_ERROR(EndRecording());
  }
  if (phase_ != Phase::kBetweenModules || evaluating_ || !cursor().CanEnd()) {
    return OutOfOrder(call);
  }
  ENGINE_RETURN_IF_ERROR(PassTo(cursor().passes().size()));
  phase_ = Phase::kReduced;
  return Status();
}

Status Engine::Reduce() { return EndPasses("reduce"); }

Status Engine::Norm(double* out_norm) {
  if (!spec_.needs_norm()) {
    return FailedPrecondition(
        "engine: no norm is computed, since norm, clip_norm, loss_scale and "
        "check_finite are 0");
  }
  if (phase_ == Phase::kStepped || phase_ == Phase::kBetweenSteps) {
    if (!update_.has_norm()) {
      return FailedPrecondition(
          "engine: norm was called before the first step");
    }
    ENGINE_RETURN_IF_ERROR(kernels_.Synchronize());
    ENGINE_RETURN_IF_ERROR(update_.CheckReports());
    *out_norm = update_.reported().norm;
    return Status();
  }
  if (phase_ != Phase::kReduced) ENGINE_RETURN_IF_ERROR(EndPasses("norm"));
  ENGINE_RETURN_IF_ERROR(SessionFailure());
  return update_.ReadNorm(out_norm);
}

Status Engine::Step(const commsched_engine_update_args_t& args) {
  if (built()) ENGINE_RETURN_IF_ERROR(update_.CheckArgs(args));
  // Each op waits for what it reads, and learns there that it will not come. So
  // no bucket is stepped with what a failure left; say which it would be.
  Status stepped = StepBuckets(args);
  if (stepped.ok() || !update_.verdict().ok() || SessionFailure().ok())
    return stepped;
  ENGINE_RETURN_IF_ERROR(PoisonFor("update").RefuseAll());
  return stepped;
}

Status Engine::StepBuckets(const commsched_engine_update_args_t& args) {
  if (phase_ != Phase::kReduced) ENGINE_RETURN_IF_ERROR(EndPasses("update"));
  ENGINE_RETURN_IF_ERROR(update_.Step(step_offset_ + steps_begun_, args));
  phase_ = Phase::kStepped;
  return Status();
}

Status Engine::StepEnd() {
  if (phase_ != Phase::kStepped) return OutOfOrder("step_end");
  ENGINE_RETURN_IF_ERROR(bound_.EndStep());
  phase_ = Phase::kBetweenSteps;
  ++steps_done_;
  return Status();
}

// Of a backward: gradients that are not of the type they add up in, or travel.
Status Engine::ConvertGradients(const PassOps& ops,
                                const BoundStep::Conversions& addresses) {
  for (size_t i = 0; i < ops.conversions.size(); ++i) {
    const Conversion& each = ops.conversions[i];
    const auto& [from, into] = addresses[i];
    const auto combine = each.adds ? &Kernels::Add : &Kernels::Convert;
    ENGINE_RETURN_IF_ERROR(bound_.Run(each.op, [&, from = from, into = into] {
      return (kernels_.*combine)(into, each.into_dtype, from, each.from_dtype,
                                 each.count);
    }));
  }
  return Status();
}

}  // namespace commsched::engine
