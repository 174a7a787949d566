#ifndef COMMSCHED_SRC_ENGINE_STEP_PLAN_BUILDER_STAGING_H_
#define COMMSCHED_SRC_ENGINE_STEP_PLAN_BUILDER_STAGING_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "checkpoint/status.h"
#include "engine/step_plan/builder/part.h"

namespace commsched::engine {

// Copies of offloaded state to and from a pool, which the graph does not know:
// it has the memory through which the state passes.
//
// Thread-compatible.
class StagingBuilder : private BuilderPart {
 public:
  explicit StagingBuilder(const BuilderPart& part) : BuilderPart(part) {}

  Status AddBuffers();
  Status AddFirstFetches();
  // After the step of the bucket at `index` in StepGraph::staged.
  Status AddCopies(size_t index);
  // The state of `bucket` in its slot.
  commsched_access_t Staged(uint32_t bucket,
                            commsched_access_mode_t mode) const;

 private:
  Status AddFetch(uint32_t bucket);
  Status AddStore(uint32_t bucket);
  Status AddCopy(const std::string& name, uint32_t bucket,
                 commsched_access_mode_t mode, commsched_op_id_t* out_op);
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STEP_PLAN_BUILDER_STAGING_H_
