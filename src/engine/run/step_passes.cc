// Passes: those of a step, those of an evaluation, with what BoundStep does for
// them, and those in which the order of modules is recorded.

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/run/step_calls.h"

namespace commsched::engine {
namespace {

// In an evaluation every forward is one.
PassCall Known(bool evaluating, PassCall call) {
  if (evaluating && call.kind == PassKind::kNoGrad) {
    call.kind = PassKind::kForward;
  }
  return call;
}

// What helps where the order of modules has changed for good, if the call can
// be part of an order, and that can be recorded.
const char* AdviceOnOrder(const Model& model, const Cursor& cursor,
                          const PassCall& call) {
  if (call.module >= model.modules().size() ||
      call.micro_batch > cursor.passes().back().micro_batch ||
      !OrderRecorder::Check(model).ok()) {
    return "";
  }
  return "; a program whose order has changed for good calls "
         "commsched_engine_record_order() between steps";
}

// A forward without a gradient that no pass which is still to come is.
bool IsExtra(const Model& model, const StepSpec& step, const Cursor& cursor,
             const PassCall& call) {
  for (uint64_t i = cursor.index(); i < cursor.passes().size(); ++i) {
    if (cursor.passes()[i].call() == call) return false;
  }
  return call.kind == PassKind::kNoGrad &&
         call.module < model.modules().size() &&
         call.micro_batch < step.micro_batches;
}

// Whether a step can have a forward that no pass of the plan is: it reads what
// is whole, and has arrived.
Status CheckExtra(const Model& model, const StepPlan& plan,
                  const Cursor& cursor, bool drained, const PassCall& call) {
  const Module& module = model.modules()[call.module];
  const auto refuse = [&](const char* why) {
    return FailedPrecondition("engine: " + model.TextOfCall("begin", call) +
                              ", which is not among the passes of a step" +
                              why);
  };
  if (!module.steps[0].empty()) {
    return refuse(
        ": its module has ops or collectives within, which only a planned pass "
        "has; name it in commsched_model_set_passes()");
  }
  for (uint32_t b : plan.layout().module_buckets[call.module]) {
    if (plan.gathers(b)) {
      return refuse(
          ": in stage 3 nothing gathers its parameters; name it in "
          "commsched_model_set_passes(), or evaluate between steps");
    }
    bool arrived = drained || plan.spec().zero_stage == 0 ||
                   plan.layout().buckets[b].frozen;
    for (uint64_t i = 0; i < cursor.index() && !arrived; ++i) {
      const std::vector<uint32_t>& read =
          plan.layout().module_buckets[cursor.passes()[i].module];
      arrived = std::find(read.begin(), read.end(), b) != read.end();
    }
    if (!arrived) {
      return refuse(
          ": its parameters may still be on their way, before a pass that "
          "reads them; call commsched_engine_drain() before step_begin");
    }
  }
  return Status();
}

}  // namespace

// ---- Passes -----------------------------------------------------------------

Status StepCalls::PassBegin(const PassCall& call) {
  if (recording_) {
    if (OrderRecorder::IsRecorded(Known(evaluating_, call)))
      return RecordPass(Known(evaluating_, call));
    if (phase_ != Phase::kBetweenPasses || !recorder_.EndsWith(call)) {
      return OutOfOrder(spec_.model->TextOfCall("begin", call));
    }
    ENGINE_RETURN_IF_ERROR(EndRecording());
  }
  if (phase_ != Phase::kBetweenPasses) {
    return OutOfOrder(spec_.model->TextOfCall("begin", call));
  }
  std::optional<uint64_t> index = cursor().Next(Known(evaluating_, call));
  if (!index.has_value() && evaluating_) {
    ENGINE_RETURN_IF_ERROR(NextForward(Known(evaluating_, call), &index));
  }
  if (!index.has_value() && !evaluating_ &&
      IsExtra(*spec_.model, *spec_.step, cursor(), call)) {
    ENGINE_RETURN_IF_ERROR(Failure());
    ENGINE_RETURN_IF_ERROR(
        CheckExtra(*spec_.model, *plan_, cursor(), began_drained_, call));
    extra_ = call;
    phase_ = Phase::kInPass;
    return Status();
  }
  if (!index.has_value()) {
    return OutOfOrder(spec_.model->TextOfCall("begin", call),
                      AdviceOnOrder(*spec_.model, cursor(), call));
  }
  ENGINE_RETURN_IF_ERROR(PassTo(*index));
  cursor().Begin(/*left_out=*/false);
  if (evaluating_) ENGINE_RETURN_IF_ERROR(Failure());
  ENGINE_RETURN_IF_ERROR(run_.Begin(evaluating_, *index));
  phase_ = Phase::kInPass;
  const bool gathered = spec_.step->zero_stage == 3;
  if (evaluating_ || (IsBackward(call.kind) && !gathered)) return Status();
  return spec_.bound->CheckVersions(cursor().pass(), run_.ops(), steps_done_);
}

Status StepCalls::PassEnd(const PassCall& call) {
  if (recording_) return EndRecordedPass(Known(evaluating_, call));
  if (phase_ == Phase::kInPass && extra_ == call) {
    extra_.reset();
    phase_ = Phase::kBetweenPasses;
    return Status();
  }
  if (phase_ != Phase::kInPass || extra_ ||
      !cursor().IsAt(Known(evaluating_, call)) || run_.has_op()) {
    return OutOfOrder(spec_.model->TextOfCall("end", call));
  }
  ENGINE_RETURN_IF_ERROR(run_.End());
  phase_ = Phase::kBetweenPasses;
  cursor().Advance();
  return Status();
}

// Passes that the caller leaves out, up to `target`.
Status StepCalls::PassTo(uint64_t target) {
  while (cursor().index() < target) {
    ENGINE_RETURN_IF_ERROR(RunEmpty(/*left_out=*/true));
  }
  return Status();
}

Status StepCalls::RunEmpty(bool left_out) {
  if (evaluating_) ENGINE_RETURN_IF_ERROR(Failure());
  cursor().Begin(left_out);
  ENGINE_RETURN_IF_ERROR(run_.RunEmpty(evaluating_, cursor().index()));
  cursor().Advance();
  return Status();
}

// ---- Evaluations ------------------------------------------------------------

Status StepCalls::EvaluationBegin() {
  if (!between_steps()) return OutOfOrder("evaluation_begin");
  ENGINE_RETURN_IF_ERROR(Drain());
  if (recording_) ENGINE_RETURN_IF_ERROR(BeginRecording(/*evaluating=*/true));
  ENGINE_RETURN_IF_ERROR(spec_.bound->BeginEvaluation());
  evaluating_ = true;
  phase_ = Phase::kBetweenPasses;
  forward_cursor_.Restart(1);
  return Status();
}

Status StepCalls::EvaluationEnd() {
  const bool uneven = spec_.step->uneven_evaluations;
  if (phase_ != Phase::kBetweenPasses || !evaluating_ ||
      (!recording_ && !cursor().CanEnd() &&
       !(uneven && cursor().index() == 0))) {
    return OutOfOrder("evaluation_end");
  }
  if (recording_) {
    ENGINE_RETURN_IF_ERROR(EndRecording());
  } else if (uneven) {
    // Forwards run empty until no rank has another one.
    for (bool more = true; more;) {
      ENGINE_RETURN_IF_ERROR(PassTo(cursor().passes().size()));
      ENGINE_RETURN_IF_ERROR(spec_.bound->EndForward(&more));
      if (!more) break;
      ENGINE_RETURN_IF_ERROR(spec_.bound->BeginEvaluation());
      cursor().Restart(1);
    }
  } else {
    ENGINE_RETURN_IF_ERROR(PassTo(cursor().passes().size()));
    ENGINE_RETURN_IF_ERROR(spec_.bound->EndEvaluation());
  }
  evaluating_ = false;
  phase_ = Phase::kBetweenSteps;
  return Status();
}

Status StepCalls::NextForward(const PassCall& call,
                              std::optional<uint64_t>* out_index) {
  if (!spec_.step->uneven_evaluations || !cursor().CanBeginAnew(call)) {
    return Status();
  }
  ENGINE_RETURN_IF_ERROR(PassTo(cursor().passes().size()));
  ENGINE_RETURN_IF_ERROR(Failure());
  ENGINE_RETURN_IF_ERROR(spec_.bound->NextForward());
  cursor().Restart(1);
  *out_index = cursor().Next(call);
  return Status();
}

// ---- BoundStep: the session of evaluations ----------------------------------

Status BoundStep::BeginEvaluation() {
  if (forward_session_ == nullptr) return Status();
  ENGINE_RETURN_IF_ERROR(
      Status::FromCall(commsched_session_step_begin(forward_session_.get()),
                       "beginning an evaluation"));
  running_ = forward_session_.get();
  measures_ = false;
  return Status();
}

// Every gather of the evaluation had a reader that waited for it: the arena is
// free for the next step. Activations may still be on their way to other ranks.
Status BoundStep::EndEvaluation() {
  if (forward_session_ == nullptr) return Status();
  ENGINE_RETURN_IF_ERROR(
      Status::FromCall(commsched_session_step_end(forward_session_.get()),
                       "ending an evaluation"));
  if (spec_.model->exchanges().empty()) return Status();
  return DrainEvaluation();
}

Status BoundStep::SayMore(double more) {
  return Run(plan_->forward().say_more, [&] {
    return spec_.kernels->Fill(spec_.state->norm().more.data(), more, 1);
  });
}

// The others hear of it by themselves.
Status BoundStep::NextForward() {
  if (forward_session_ == nullptr) return Status();
  ENGINE_RETURN_IF_ERROR(SayMore(1));
  ENGINE_RETURN_IF_ERROR(EndEvaluation());
  return BeginEvaluation();
}

Status BoundStep::EndForward(bool* out_more) {
  *out_more = false;
  if (forward_session_ == nullptr) return Status();
  ENGINE_RETURN_IF_ERROR(SayMore(0));
  ENGINE_RETURN_IF_ERROR(EndEvaluation());
  ENGINE_RETURN_IF_ERROR(DrainEvaluation());
  double more = 0;
  ENGINE_RETURN_IF_ERROR(spec_.kernels->Copy(
      &more, spec_.state->norm().more.data(), sizeof(more)));
  ENGINE_RETURN_IF_ERROR(spec_.kernels->Synchronize());
  *out_more = more > 0;
  return Status();
}

// ---- An order that is recorded ----------------------------------------------

Status StepCalls::BeginRecording(bool evaluating) {
  recorder_.Begin(evaluating);
  OrderRecording* const gathers = spec_.bound->recording();
  return gathers == nullptr ? Status() : gathers->Begin();
}

Status StepCalls::RecordPass(const PassCall& call) {
  if (phase_ != Phase::kBetweenPasses || !recorder_.CanBegin(call)) {
    return OutOfOrder(spec_.model->TextOfCall("begin", call));
  }
  ENGINE_RETURN_IF_ERROR(Failure());
  if (spec_.bound->recording() != nullptr) {
    const std::vector<std::byte*>* addresses = nullptr;
    ENGINE_RETURN_IF_ERROR(
        spec_.bound->recording()->Gather(call.module, &addresses));
    const std::vector<uint32_t>& buckets =
        plan_->layout().module_buckets[call.module];
    for (size_t i = 0; i < buckets.size(); ++i) {
      if ((*addresses)[i] == nullptr) continue;
      spec_.state->bucket(buckets[i]).all_parameters = (*addresses)[i];
    }
  }
  recorder_.BeginPass(call);
  phase_ = Phase::kInPass;
  return Status();
}

Status StepCalls::EndRecordedPass(const PassCall& call) {
  if (phase_ != Phase::kInPass || recorder_.pass() != call) {
    return OutOfOrder(spec_.model->TextOfCall("end", call));
  }
  spec_.state->HideBuckets(*plan_, call.module);
  phase_ = Phase::kBetweenPasses;
  return Status();
}

// When the forward is over, the step is planned and the ranks meet. The
// forwards that have run are then run empty, so that the rest of the step, and
// all later ones, are as if the order had been known.
Status StepCalls::EndRecording() {
  ENGINE_RETURN_IF_ERROR(Failure());
  Sequence sequence;
  std::vector<uint8_t> left_out;
  ENGINE_RETURN_IF_ERROR(recorder_.FindSequence(&sequence, &left_out));
  record_failure_ = spec_.freeze(std::move(sequence));
  ENGINE_RETURN_IF_ERROR(record_failure_);
  recording_ = false;
  if (evaluating_) return Status();
  ENGINE_RETURN_IF_ERROR(spec_.bound->BeginStep(steps_begun_));
  ENGINE_RETURN_IF_ERROR(spec_.update->Begin());
  step_cursor_.Restart(micro_batches_);
  for (size_t i = 0; i < left_out.size(); ++i) {
    ENGINE_RETURN_IF_ERROR(RunEmpty(left_out[i] != 0));
  }
  while (recorder_.has_again() &&
         cursor().pass().kind == PassKind::kRecompute) {
    ENGINE_RETURN_IF_ERROR(RunEmpty(/*left_out=*/false));
  }
  return Status();
}

Status StepCalls::CompleteRecording() {
  if (phase_ == Phase::kInPass) {
    ENGINE_RETURN_IF_ERROR(EndRecordedPass(recorder_.pass()));
  }
  for (const uint32_t module : recorder_.MissingOf(plan_->sequence())) {
    ENGINE_RETURN_IF_ERROR(RecordPass({.module = module}));
    ENGINE_RETURN_IF_ERROR(EndRecordedPass({.module = module}));
  }
  return EndRecording();
}

}  // namespace commsched::engine
