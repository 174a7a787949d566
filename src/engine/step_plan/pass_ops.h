#ifndef COMMSCHED_SRC_ENGINE_STEP_PLAN_PASS_OPS_H_
#define COMMSCHED_SRC_ENGINE_STEP_PLAN_PASS_OPS_H_

#include <cstdint>
#include <vector>

#include "commsched/graph.h"
#include "engine/model/graph_writer.h"

namespace commsched::engine {

// Adds what the reduction of one micro-batch has left to that of the earlier
// ones; the first, where it is not there already.
struct Accumulation {
  uint32_t bucket = 0;
  commsched_op_id_t op = kNoId;
  bool first = false;
};

// Makes gradients of another type, or adds them to such.
struct Conversion {
  commsched_op_id_t op = kNoId;
  uint64_t count = 0;
  bool adds = false;
  commsched_dtype_t from_dtype = COMMSCHED_F32;
  commsched_dtype_t into_dtype = COMMSCHED_F32;
  commsched_buffer_id_t from = kNoId;
  commsched_buffer_id_t into = kNoId;
};

// What a graph has for a pass.
struct PassOps {
  commsched_op_id_t op = kNoId;
  std::vector<commsched_op_id_t> inner;  // Ops that were added to the module.
  std::vector<uint32_t> zeroed;  // Buckets whose gradients it zeroes first.
  // Where it reads the parameters of each of its module's buckets.
  std::vector<commsched_buffer_id_t> values;
  // Of a backward: where it adds to the gradients of each of them.
  std::vector<commsched_buffer_id_t> gradients;
  // Of the micro-batch before, to run first.
  std::vector<Accumulation> accumulations;
  // Of the buckets that it is the last to touch in its micro-batch, to run
  // afterwards.
  std::vector<Conversion> conversions;

  commsched_op_id_t last() const { return inner.empty() ? op : inner.back(); }
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STEP_PLAN_PASS_OPS_H_
