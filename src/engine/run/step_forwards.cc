// Forwards without a planned step: evaluations, and those in which the order of
// modules is recorded.

#include <utility>

#include "engine/run/step_calls.h"

namespace commsched::engine {

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
  if (phase_ != Phase::kBetweenPasses || !evaluating_ ||
      (!recording_ && !cursor().CanEnd())) {
    return OutOfOrder("evaluation_end");
  }
  if (recording_) {
    ENGINE_RETURN_IF_ERROR(EndRecording());
  } else {
    ENGINE_RETURN_IF_ERROR(PassTo(cursor().passes().size()));
    ENGINE_RETURN_IF_ERROR(spec_.bound->EndEvaluation());
  }
  evaluating_ = false;
  phase_ = Phase::kBetweenSteps;
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
  return evaluating_ ? Status() : CatchUp(left_out);
}

Status StepCalls::CatchUp(const std::vector<uint8_t>& left_out) {
  ENGINE_RETURN_IF_ERROR(spec_.bound->BeginStep(steps_begun_));
  ENGINE_RETURN_IF_ERROR(spec_.update->Begin());
  step_cursor_.Restart(spec_.step->micro_batches);
  for (size_t i = 0; i < left_out.size(); ++i) {
    ENGINE_RETURN_IF_ERROR(RunEmpty(left_out[i] != 0));
  }
  while (recorder_.has_again() &&
         cursor().pass().kind == PassKind::kRecompute) {
    ENGINE_RETURN_IF_ERROR(RunEmpty(/*left_out=*/false));
  }
  return Status();
}

}  // namespace commsched::engine
