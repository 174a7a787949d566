#ifndef COMMSCHED_SRC_ENGINE_TABLES_OPTIMIZER_TABLE_H_
#define COMMSCHED_SRC_ENGINE_TABLES_OPTIMIZER_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "checkpoint/status.h"
#include "commsched/engine_kernels.h"
#include "commsched/stream.h"
#include "engine/tables/kernels.h"

namespace commsched::engine {

// The part of a parameter that lies in this rank's shard of a bucket.
struct OptimizerSegment {
  uint64_t begin = 0;  // Elements from the start of the shard.
  uint64_t count = 0;
  float decay = 0;  // The weight decay of the parameter.
};

// This rank's shard of one bucket, as an optimizer steps it.
struct OptimizerBucket {
  float* masters = nullptr;
  const std::byte* gradients = nullptr;  // Of `gradient_dtype`, reduced.
  std::byte* copy = nullptr;  // What the model reads; null if the masters.
  commsched_dtype_t gradient_dtype = COMMSCHED_F32;
  commsched_dtype_t copy_dtype = COMMSCHED_F32;
  uint64_t gradient_size = 0, copy_size = 0;  // Bytes per element.
  float* state = nullptr;  // State value k begins at k * `shard_count`.
  uint64_t shard_count = 0;
  const std::vector<OptimizerSegment>* segments = nullptr;
  float lr = 0;
  const commsched_step_control_t* control = nullptr;
};

struct OptimizerSetting {
  const char* name = nullptr;
  float value = 0;
};

// An optimizer: what it keeps per weight, and how it steps a bucket. A new one
// is a file beside adamw.cc, and a line of MakeOptimizer().
struct OptimizerTable {
  const char* name = "";        // Of its ops: "adamw".
  const char* title = "";       // In messages: "AdamW".
  const char* state_name = "";  // Of its state in memory: "adamw_state".
  // Values per weight, and what checkpoints call each.
  uint32_t state_values = 0;
  std::array<const char*, 2> names = {};
  // One of the two. Element by element, a shard may be cut anywhere.
  bool element_wise = false;
  bool whole_tensors = false;
  // Enqueues on `stream`. Must change nothing if control->skip is not 0.
  Status (*step)(const void* user, commsched_stream_t stream,
                 const OptimizerBucket& bucket) = nullptr;
  const void* user = nullptr;
  // What must be the same on all ranks; nameless ones are none.
  std::array<OptimizerSetting, 3> settings = {};
};

// INVALID_ARGUMENT, with the table's name, unless it says either element_wise
// or whole_tensors. UNIMPLEMENTED for whole_tensors: shards cut parameters.
Status CheckOptimizerTable(const OptimizerTable& table);

// What the engine's own optimizers are made of; each takes what is for it.
struct OptimizerSettings {
  const Kernels* kernels = nullptr;
  float beta1 = 0, beta2 = 0, epsilon = 0;
  float momentum = 0;
  bool nesterov = false;
};

// `settings` outlives the table.
OptimizerTable AdamW(const OptimizerSettings* settings);
OptimizerTable Sgd(const OptimizerSettings* settings);

// The one of `optimizer`, a commsched_optimizer_t.
OptimizerTable MakeOptimizer(uint32_t optimizer,
                             const OptimizerSettings* settings);

// What the kernels of all optimizers are told of a segment.
template <typename Args>
void SetSegment(const OptimizerBucket& bucket, const OptimizerSegment& segment,
                Args* args) {
  args->master = bucket.masters + segment.begin;
  args->gradient_dtype = bucket.gradient_dtype;
  args->gradient = bucket.gradients + segment.begin * bucket.gradient_size;
  args->copy_dtype = bucket.copy_dtype;
  if (bucket.copy != nullptr) {
    args->copy = bucket.copy + segment.begin * bucket.copy_size;
  }
  args->count = segment.count;
  args->control = bucket.control;
  args->lr = bucket.lr;
  args->decay = segment.decay;
}

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_TABLES_OPTIMIZER_TABLE_H_
