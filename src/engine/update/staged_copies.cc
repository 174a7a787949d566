#include "engine/update/staged_copies.h"

#include <vector>

namespace commsched::engine {

void StagedCopies::Bind(const StepPlan* plan, Offload* offload) {
  plan_ = plan;
  offload_ = offload;
}

void StagedCopies::NoteTurn(int64_t asked_ns) {
  offload_->NoteTurn(num_turns_, asked_ns);
}

void StagedCopies::NoteSquares(uint32_t bucket, int64_t asked_ns) {
  if (OffloadsGradients(bucket)) offload_->NoteArrival(bucket, asked_ns);
}

void StagedCopies::NoteUpdate(uint32_t bucket, int64_t asked_ns) {
  if (offload_ != nullptr) offload_->NoteArrival(bucket, asked_ns);
}

Status StagedCopies::BeginStep() {
  num_turns_ = num_squared_ = num_gradients_ = num_states_ = 0;
  for (uint32_t i = 0; i < plan_->layout().staging_slots; ++i) {
    ENGINE_RETURN_IF_ERROR(Fetch(i));
  }
  return Status();
}

// In the order of the graph, in which each comes behind its reduction, before
// the next pass: no launch that it needs waits for what is called later.
Status StagedCopies::EndTurn() {
  const std::vector<GradientTurn>& turns = graph().gradient_turns;
  const size_t index = num_turns_++;
  const GradientTurn& turn = turns[index];
  ENGINE_RETURN_IF_ERROR(offload_->StoreTurn(index, ops_->CostOf(turn.store)));
  if (turn.fetches_for == kNoId) return Status();
  return offload_->FetchTurn(turn.fetches_for,
                             ops_->CostOf(turns[turn.fetches_for].fetch));
}

const GradientTurn* StagedCopies::NextTurn(uint64_t num_passes) const {
  const std::vector<GradientTurn>& turns = graph().gradient_turns;
  if (num_turns_ == turns.size()) return nullptr;
  const GradientTurn& next = turns[num_turns_];
  return next.num_passes > num_passes ? nullptr : &next;
}

// ---- Squares ----------------------------------------------------------------

Status StagedCopies::BeginSquares() {
  for (uint32_t i = 0; i < plan_->layout().gradient_slots; ++i) {
    ENGINE_RETURN_IF_ERROR(FetchSquares(i));
  }
  return Status();
}

Status StagedCopies::AfterSquares(uint32_t bucket) {
  if (!OffloadsGradients(bucket)) return Status();
  return FetchSquares(plan_->layout().gradient_slots + num_squared_++);
}

Status StagedCopies::FetchSquares(size_t index) {
  const std::vector<uint32_t>& staged = graph().staged_gradients;
  if (index >= staged.size()) return Status();
  const uint32_t b = staged[staged.size() - 1 - index];
  return offload_->FetchSquares(b, ops_->CostOf(Ids(b).fetch_squares));
}

// ---- The optimizer ----------------------------------------------------------

// The squares leave what is stepped first in the slots.
Status StagedCopies::BeginUpdate(bool has_squares) {
  if (has_squares) return Status();
  for (uint32_t i = 0; i < plan_->layout().gradient_slots; ++i) {
    ENGINE_RETURN_IF_ERROR(FetchGradients(i));
  }
  return Status();
}

Status StagedCopies::AfterUpdate(uint32_t bucket) {
  if (Ids(bucket).store != kNoId) {
    ENGINE_RETURN_IF_ERROR(
        offload_->Store(bucket, ops_->CostOf(Ids(bucket).store)));
    ENGINE_RETURN_IF_ERROR(
        Fetch(plan_->layout().staging_slots + num_states_++));
  }
  if (!OffloadsGradients(bucket)) return Status();
  return FetchGradients(plan_->layout().gradient_slots + num_gradients_++);
}

Status StagedCopies::Fetch(size_t index) {
  if (index >= graph().staged.size()) return Status();
  const uint32_t b = graph().staged[index];
  return offload_->Fetch(b, ops_->CostOf(Ids(b).fetch));
}

Status StagedCopies::FetchGradients(size_t index) {
  if (index >= graph().staged_gradients.size()) return Status();
  const uint32_t b = graph().staged_gradients[index];
  return offload_->FetchGradients(b, ops_->CostOf(Ids(b).fetch_gradients));
}

}  // namespace commsched::engine
