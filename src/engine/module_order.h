#ifndef COMMSCHED_SRC_ENGINE_MODULE_ORDER_H_
#define COMMSCHED_SRC_ENGINE_MODULE_ORDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "commsched/graph.h"
#include "engine/step_plan/graph_writer.h"

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

// A forward or backward in the order in which the caller runs them.
struct ModuleOp {
  commsched_op_id_t op = kNoId;
  std::vector<commsched_op_id_t> inner;  // Ops that were added to the module.
  uint32_t module = 0;
  uint32_t pass = 0;  // Among those of the module in one forward.
  uint32_t micro_batch = 0;
  bool backward = false;
  bool again = false;            // A forward within backward.
  uint32_t forward = 0;          // Index of its first forward.
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

// "block", and then "block#2" and so on.
std::string PassName(const std::string& module, uint32_t pass);

// Modules in the order of a forward. One may come several times.
using Sequence = std::vector<uint32_t>;

// 0, 1, 2, ...
Sequence RegisteredSequence(size_t num_modules);

// Without ids: forward and then backward of each micro-batch. Where neighbours
// are of one segment (`segments`: by module; 0 is none), their forwards come
// again before their backwards.
std::vector<ModuleOp> ModuleOrder(const Sequence& sequence,
                                  const std::vector<uint32_t>& segments,
                                  uint32_t micro_batches);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_MODULE_ORDER_H_
