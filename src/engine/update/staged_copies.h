#ifndef COMMSCHED_SRC_ENGINE_UPDATE_STAGED_COPIES_H_
#define COMMSCHED_SRC_ENGINE_UPDATE_STAGED_COPIES_H_

#include <cstddef>
#include <cstdint>

#include "checkpoint/status.h"
#include "engine/state/offload.h"
#include "engine/step_plan/step_plan.h"
#include "engine/update/step_ops.h"

namespace commsched::engine {

// Issues the copies of offloaded state and gradients as a step goes on, in the
// order of the graph. Without any it does nothing.
//
// Thread-compatible.
class StagedCopies {
 public:
  // `ops` outlives it.
  explicit StagedCopies(StepOps* ops) : ops_(ops) {}
  StagedCopies(const StagedCopies&) = delete;
  StagedCopies& operator=(const StagedCopies&) = delete;

  // Steps are of `plan` until the next call; nothing is offloaded where
  // `offload` is null.
  void Bind(const StepPlan* plan, Offload* offload);

  // A step begins: fetches the state of the buckets that are stepped first.
  Status BeginStep();
  // The first turn of gradients in their slots that has not ended and that
  // comes when so many passes are over; null: none. EndTurn(): they are in the
  // slot, go to their pool from there, and the sum that is next in it comes.
  const GradientTurn* NextTurn(uint64_t num_passes) const;
  Status EndTurn();
  // All turns have ended. Then the squares of all buckets come, last first.
  Status BeginSquares();
  Status AfterSquares(uint32_t bucket);
  // The optimizer comes, after the squares or without any, bucket by bucket.
  Status BeginUpdate(bool has_squares);
  Status AfterUpdate(uint32_t bucket);

  int64_t Now() const { return offload_ == nullptr ? 0 : offload_->Now(); }
  // What adds in the next turn, the squares of a bucket, or the optimizer, got
  // to it at `asked_ns`, and now have what they read.
  void NoteTurn(int64_t asked_ns);
  void NoteSquares(uint32_t bucket, int64_t asked_ns);
  void NoteUpdate(uint32_t bucket, int64_t asked_ns);

 private:
  const StepGraph& graph() const { return plan_->graph(); }
  const BucketIds& Ids(uint32_t bucket) const {
    return graph().buckets[bucket];
  }
  bool OffloadsGradients(uint32_t bucket) const {
    return Ids(bucket).store_gradients != kNoId;
  }
  // At an index in StepGraph::staged, or in staged_gradients from its end or
  // its beginning, if there are so many.
  Status Fetch(size_t index);
  Status FetchSquares(size_t index);
  Status FetchGradients(size_t index);

  StepOps* const ops_;
  const StepPlan* plan_ = nullptr;
  Offload* offload_ = nullptr;

  // How far the step is: turns that have ended, in the order of the graph;
  // buckets whose offloaded gradients were squared and stepped; those whose
  // state was.
  size_t num_turns_ = 0;
  size_t num_squared_ = 0;
  size_t num_gradients_ = 0;
  size_t num_states_ = 0;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_UPDATE_STAGED_COPIES_H_
