#ifndef COMMSCHED_SRC_ENGINE_STEP_PLAN_BUILDER_STAGING_H_
#define COMMSCHED_SRC_ENGINE_STEP_PLAN_BUILDER_STAGING_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "checkpoint/status.h"
#include "engine/step_plan/builder/part.h"

namespace commsched::engine {

// Copies of offloaded state and gradients to and from pools, which the graph
// does not know: it has the memory through which these pass.
//
// Thread-compatible.
class StagingBuilder : private BuilderPart {
 public:
  explicit StagingBuilder(const BuilderPart& part) : BuilderPart(part) {}

  Status AddBuffers();
  Status AddFirstFetches();
  // Call it after the step of the bucket at `index` in StepGraph::staged.
  Status AddCopies(size_t index);
  // The first turn of StepGraph::gradient_turns whose copies were not added;
  // null: there is none.
  GradientTurn* NextTurn();
  // Its gradients are in their slot.
  Status AddTurnCopies();
  // Those that the squares of the bucket at `index` wait for, from the end of
  // StepGraph::staged_gradients; and of the bucket there, for the optimizer.
  Status AddSquaresFetch(size_t index);
  Status AddGradientFetch(size_t index);
  // The state of `bucket` in its slot.
  commsched_access_t Staged(uint32_t bucket,
                            commsched_access_mode_t mode) const;

 private:
  Status AddFetch(uint32_t bucket);
  Status AddStore(uint32_t bucket);
  Status AddFetchOf(const char* name, uint32_t bucket,
                    commsched_op_id_t* out_op);
  // Bytes of an element, and the op that it comes after, if any.
  Status AddCopy(const std::string& name, const commsched_access_t& access,
                 uint64_t element_bytes, commsched_op_id_t after,
                 commsched_op_id_t* out_op);

  size_t next_turn_ = 0;  // In StepGraph::gradient_turns.
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STEP_PLAN_BUILDER_STAGING_H_
