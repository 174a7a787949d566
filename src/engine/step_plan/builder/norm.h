#ifndef COMMSCHED_SRC_ENGINE_STEP_PLAN_BUILDER_NORM_H_
#define COMMSCHED_SRC_ENGINE_STEP_PLAN_BUILDER_NORM_H_

#include "checkpoint/status.h"
#include "engine/model/graph_writer.h"
#include "engine/step_plan/builder/part.h"

namespace commsched::engine {

// How ranks come to one norm of the sums that each has, and what they tell each
// other by flags.
//
// Thread-compatible.
class NormBuilder : private BuilderPart {
 public:
  explicit NormBuilder(const BuilderPart& part) : BuilderPart(part) {}

  Status AddBuffers();
  // After the squares of all buckets, with flags if there are any.
  Status Add();
  // Flags of a step without a norm.
  Status AddFlags();
  // What ranks step with, of whom no norm tells each other.
  Status AddRates();

 private:
  Status AddExchange();
  Status AddParts(commsched_buffer_id_t source);
  Status SendFlags();
  Status AddRatesOf(const char* name, commsched_buffer_id_t rates,
                    commsched_group_id_t group);
  // The ranks that hold the parts of the model.
  Status Group(commsched_group_id_t* out_group);

  commsched_group_id_t group_ = kNoId;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STEP_PLAN_BUILDER_NORM_H_
