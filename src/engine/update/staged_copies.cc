#include "engine/update/staged_copies.h"

#include <vector>

namespace commsched::engine {

void StagedCopies::Bind(const StepPlan* plan, Offload* offload) {
  plan_ = plan;
  offload_ = offload;
}

void StagedCopies::NoteSquares(uint32_t bucket, int64_t asked_ns) {
  if (OffloadsGradients(bucket)) offload_->NoteArrival(bucket, asked_ns);
}

void StagedCopies::NoteUpdate(uint32_t bucket, int64_t asked_ns) {
  if (offload_ != nullptr) offload_->NoteArrival(bucket, asked_ns);
}

Status StagedCopies::BeginStep() {
  num_stored_ = num_squared_ = num_gradients_ = num_states_ = 0;
  for (uint32_t i = 0; i < plan_->layout().staging_slots; ++i) {
    ENGINE_RETURN_IF_ERROR(Fetch(i));
  }
  return Status();
}

// In the order of the graph, in which each comes behind its reduction, before
// the next pass: no launch that it needs waits for what is called later.
Status StagedCopies::StoreGradients(uint64_t num_passes) {
  const std::vector<GradientStore>& stores = graph().gradient_stores;
  for (; num_stored_ < stores.size(); ++num_stored_) {
    if (stores[num_stored_].pass >= num_passes) break;
    const uint32_t b = stores[num_stored_].bucket;
    ENGINE_RETURN_IF_ERROR(
        offload_->StoreGradients(b, ops_->CostOf(Ids(b).store_gradients)));
  }
  return Status();
}

// ---- Squares ----------------------------------------------------------------

Status StagedCopies::BeginSquares() {
  ENGINE_RETURN_IF_ERROR(StoreGradients(graph().passes.size()));
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
  ENGINE_RETURN_IF_ERROR(StoreGradients(graph().passes.size()));
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
