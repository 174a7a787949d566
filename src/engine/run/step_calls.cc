#include "engine/run/step_calls.h"

#include <algorithm>
#include <utility>

#include "engine/run/poison.h"

namespace commsched::engine {
namespace {

// "op_begin of op 3 'forward.block.q', micro-batch 0"
std::string OpCall(const Model& model, const char* which, uint32_t op,
                   uint32_t micro_batch) {
  return std::string("op_") + which + " of " + model.TextOfOp(op) +
         ", micro-batch " + std::to_string(micro_batch);
}

// "gradient_ready of 'wte'"
std::string TextOf(StepCalls::GradientCall call, const Model& model,
                   uint32_t parameter) {
  const char* name = "";
  switch (call) {
    case StepCalls::GradientCall::kBegin:
      name = "gradient_begin";
      break;
    case StepCalls::GradientCall::kReady:
      name = "gradient_ready";
      break;
    case StepCalls::GradientCall::kAbsent:
      name = "gradient_absent";
      break;
  }
  return std::string(name) + " of '" + model.parameters()[parameter].name + "'";
}

}  // namespace

StepCalls::StepCalls(Spec spec)
    : spec_(std::move(spec)),
      run_({.model = spec_.model,
            .kernels = spec_.kernels,
            .state = spec_.state,
            .bound = spec_.bound,
            .update = spec_.update}),
      recorder_(spec_.model, spec_.may_skip),
      step_cursor_(spec_.may_skip),
      forward_cursor_(spec_.may_skip) {}

void StepCalls::Bind(const StepPlan* plan, const Offload* offload) {
  plan_ = plan;
  offload_ = offload;
  run_.Bind(plan);
  const std::vector<std::string> names = spec_.model->ModuleNames();
  step_cursor_.Take(&plan->graph().passes, names);
  forward_cursor_.Take(&plan->forward().passes, names);
}

// ---- Order of calls ---------------------------------------------------------

std::string StepCalls::ExpectedCall() const {
  switch (phase_) {
    case Phase::kBetweenSteps:
      return "step_begin";
    case Phase::kReduced:
      return "update";
    case Phase::kStepped:
      return "step_end";
    case Phase::kInOp:
      return ExpectedOpCall();
    case Phase::kInPass:
      if (recording_) {
        return spec_.model->TextOfCall("end", recorder_.pass());
      }
      if (extra_) return spec_.model->TextOfCall("end", *extra_);
      return run_.has_op() ? ExpectedOpCall() : cursor().ExpectedEnd();
    case Phase::kBetweenPasses:
      break;
  }
  if (recording_) return recorder_.Expected();
  if (!evaluating_) return cursor().Expected("update");
  return cursor().Expected(spec_.step->uneven_evaluations
                               ? "evaluation_end, or another forward"
                               : "evaluation_end");
}

Status StepCalls::Failure() const {
  ENGINE_RETURN_IF_ERROR(record_failure_);
  ENGINE_RETURN_IF_ERROR(spec_.update->verdict());
  if (offload_ != nullptr) ENGINE_RETURN_IF_ERROR(offload_->failure());
  return spec_.bound->FailureOfSessions();
}

Status StepCalls::OutOfOrder(const std::string& call,
                             const char* advice) const {
  ENGINE_RETURN_IF_ERROR(Failure());
  return FailedPrecondition("engine: " + call + " was called; expected " +
                            ExpectedCall() + advice);
}

Status StepCalls::CheckDrained(const char* call) const {
  if (between_steps() && drained_) return Status();
  ENGINE_RETURN_IF_ERROR(Failure());
  if (between_steps()) {
    return FailedPrecondition(std::string("engine: ") + call +
                              " was called after step " +
                              std::to_string(steps_done_) + " without a drain");
  }
  return OutOfOrder(call);
}

// ---- Steps and evaluations --------------------------------------------------

Status StepCalls::StepBegin(uint32_t micro_batches) {
  if (!between_steps()) return OutOfOrder("step_begin");
  const uint32_t planned = spec_.step->micro_batches;
  if (micro_batches > planned) {
    return InvalidArgument("engine: step_begin of " +
                           std::to_string(micro_batches) + " micro-batches; " +
                           std::to_string(planned) + " are planned");
  }
  ENGINE_RETURN_IF_ERROR(Failure());  // Of evaluations, too.
  ENGINE_RETURN_IF_ERROR(spec_.update->CheckReports());
  if (spec_.agreement->values_may_differ()) {
    const Status agreed = spec_.agreement->OnValues(
        {.model = spec_.model,
         .plan = plan_,
         .state = spec_.state,
         .steps = steps(),
         .loss_scale = &spec_.update->reported()},
        [this] { return spec_.bound->FailureOfSessions(); });
    if (!agreed.ok()) ENGINE_RETURN_IF_ERROR(Failure());
    ENGINE_RETURN_IF_ERROR(agreed);
  }
  ENGINE_RETURN_IF_ERROR(recording_ ? BeginRecording(/*evaluating=*/false)
                                    : spec_.bound->BeginStep(steps_begun_ + 1));
  phase_ = Phase::kBetweenPasses;
  micro_batches_ = micro_batches == 0 ? planned : micro_batches;
  step_cursor_.Restart(micro_batches_);
  run_.SetCancelled(false);
  began_drained_ = std::exchange(drained_, false);
  ++steps_begun_;
  return recording_ ? Status() : spec_.update->Begin();
}

Status StepCalls::EndPasses(const char* call) {
  if (recording_) {
    if (phase_ != Phase::kBetweenPasses || !recorder_.EndsWith({})) {
      return OutOfOrder(call);
    }
    ENGINE_RETURN_IF_ERROR(EndRecording());
  }
  if (phase_ != Phase::kBetweenPasses || evaluating_ || !cursor().CanEnd()) {
    return OutOfOrder(call);
  }
  ENGINE_RETURN_IF_ERROR(PassTo(cursor().passes().size()));
  phase_ = Phase::kReduced;
  return Status();
}

Status StepCalls::Norm(double* out_norm) {
  if (!spec_.step->needs_norm()) {
    return FailedPrecondition(
        "engine: no norm is computed, since norm, clip_norm, loss_scale and "
        "check_finite are 0");
  }
  if (phase_ == Phase::kStepped || phase_ == Phase::kBetweenSteps) {
    if (!spec_.update->has_norm()) {
      return FailedPrecondition(
          "engine: norm was called before the first step");
    }
    ENGINE_RETURN_IF_ERROR(spec_.kernels->Synchronize());
    ENGINE_RETURN_IF_ERROR(spec_.update->CheckReports());
    *out_norm = spec_.update->reported().norm;
    return Status();
  }
  if (phase_ != Phase::kReduced) ENGINE_RETURN_IF_ERROR(EndPasses("norm"));
  ENGINE_RETURN_IF_ERROR(Failure());
  return spec_.update->ReadNorm(out_norm);
}

// Each op waits for what it reads, and learns there that it will not come. So
// no bucket is stepped with what a failure left; say which it would be.
Status StepCalls::Step(const commsched_engine_update_args_t& args) {
  ENGINE_RETURN_IF_ERROR(spec_.update->CheckArgs(args));
  Status stepped;
  if (phase_ != Phase::kReduced) stepped = EndPasses("update");
  if (stepped.ok()) {
    stepped = spec_.update->Step(step_offset_ + steps_begun_, args);
  }
  if (stepped.ok()) phase_ = Phase::kStepped;
  if (stepped.ok() || !spec_.update->verdict().ok() || Failure().ok()) {
    return stepped;
  }
  const Poison poison = {plan_, spec_.bound->session(), Failure(), "update"};
  ENGINE_RETURN_IF_ERROR(poison.RefuseAll());
  return stepped;
}

// Once the optimizer has stepped there is nothing to take back, and once all
// passes are over nothing that this rank alone could.
Status StepCalls::Cancel(bool all) {
  const bool in_step = phase_ == Phase::kBetweenPasses ||
                       phase_ == Phase::kInPass || phase_ == Phase::kInOp;
  if (phase_ == Phase::kStepped) return Failure();
  if (phase_ == Phase::kReduced) {
    ENGINE_RETURN_IF_ERROR(Failure());
    return all ? spec_.update->CancelStep() : Status();
  }
  if (!in_step || evaluating_) return OutOfOrder("step_cancel");
  ENGINE_RETURN_IF_ERROR(Failure());
  if (recording_) ENGINE_RETURN_IF_ERROR(CompleteRecording());
  if (all) ENGINE_RETURN_IF_ERROR(spec_.update->CancelStep());
  run_.SetCancelled(true);
  if (extra_) {
    extra_.reset();
    phase_ = Phase::kBetweenPasses;
  }
  if (phase_ != Phase::kBetweenPasses) {
    ENGINE_RETURN_IF_ERROR(run_.Cancel());
    cursor().Advance();
    phase_ = Phase::kBetweenPasses;
  }
  return PassTo(cursor().passes().size());
}

Status StepCalls::StepEnd() {
  if (phase_ != Phase::kStepped) return OutOfOrder("step_end");
  ENGINE_RETURN_IF_ERROR(spec_.bound->EndStep());
  phase_ = Phase::kBetweenSteps;
  ++steps_done_;
  return Status();
}

Status StepCalls::Drain() {
  if (!between_steps()) return OutOfOrder("drain");
  ENGINE_RETURN_IF_ERROR(Failure());  // Of evaluations, too.
  if (!recording_) {
    ENGINE_RETURN_IF_ERROR(spec_.bound->Drain());
    ENGINE_RETURN_IF_ERROR(spec_.update->ReportRates());
    ENGINE_RETURN_IF_ERROR(spec_.kernels->Synchronize());
    ENGINE_RETURN_IF_ERROR(spec_.update->CheckReports());
  }
  drained_ = true;
  return Status();
}

// ---- Gradients --------------------------------------------------------------

Status StepCalls::Gradient(GradientCall call, uint32_t parameter) {
  ENGINE_RETURN_IF_ERROR(spec_.model->CheckParameter(parameter));
  const bool ready = call == GradientCall::kReady;
  const bool absent = call == GradientCall::kAbsent;
  if ((ready && !spec_.step->gradient_ready) ||
      (absent && !spec_.step->absent_gradients)) {
    return FailedPrecondition(
        "engine: " + TextOf(call, *spec_.model, parameter) + ", but " +
        (ready ? "gradient_ready" : "absent_gradients") + " is 0");
  }
  if (spec_.model->parameters()[parameter].frozen) {
    return FailedPrecondition(
        "engine: " + TextOf(call, *spec_.model, parameter) +
        ", which is frozen and has none");
  }
  const bool in_pass = phase_ == Phase::kInPass || phase_ == Phase::kInOp;
  if (!in_pass || evaluating_ || recording_ || extra_) {
    return OutOfOrder(TextOf(call, *spec_.model, parameter));
  }
  const Pass& pass = cursor().pass();
  const Module& module = spec_.model->modules()[pass.module];
  if (!AddsGradients(pass.kind) ||
      std::find(module.used.begin(), module.used.end(), parameter) ==
          module.used.end()) {
    ENGINE_RETURN_IF_ERROR(Failure());
    return FailedPrecondition(
        "engine: " + TextOf(call, *spec_.model, parameter) + " in " +
        TextOf(pass, module.name) + ", which does not add to it");
  }
  if (call == GradientCall::kBegin) return run_.CheckUnsaid(parameter);
  return ready ? run_.Ready(parameter) : run_.Absent(parameter);
}

// ---- Ops within modules -----------------------------------------------------

// In a module with ops that are not over.
std::string StepCalls::ExpectedOpCall() const {
  const uint32_t micro_batch = cursor().pass().micro_batch;
  const auto num_ops = static_cast<uint32_t>(spec_.model->ops().size());
  uint32_t op = 0;
  while (op < num_ops && !IsNextOp(op, micro_batch)) ++op;
  return OpCall(*spec_.model, phase_ == Phase::kInOp ? "end" : "begin", op,
                micro_batch);
}

bool StepCalls::IsNextOp(uint32_t op, uint32_t micro_batch) const {
  if (op >= spec_.model->ops().size()) return false;
  const AddedOp& added = spec_.model->ops()[op];
  const Pass& pass = cursor().pass();
  return added.index == run_.next_op() && added.module == pass.module &&
         added.backward == IsBackward(pass.kind) &&
         micro_batch == pass.micro_batch;
}

Status StepCalls::OpBegin(uint32_t op, uint32_t micro_batch) {
  if (phase_ != Phase::kInPass || recording_ || extra_ ||
      !IsNextOp(op, micro_batch)) {
    return OutOfOrder(OpCall(*spec_.model, "begin", op, micro_batch));
  }
  ENGINE_RETURN_IF_ERROR(run_.BeginOp());
  phase_ = Phase::kInOp;
  return Status();
}

Status StepCalls::OpEnd(uint32_t op, uint32_t micro_batch) {
  if (phase_ != Phase::kInOp || !IsNextOp(op, micro_batch)) {
    return OutOfOrder(OpCall(*spec_.model, "end", op, micro_batch));
  }
  ENGINE_RETURN_IF_ERROR(run_.EndOp());
  phase_ = Phase::kInPass;
  return Status();
}

}  // namespace commsched::engine
