#ifndef COMMSCHED_SRC_ENGINE_TABLES_OPTIMIZER_TABLE_H_
#define COMMSCHED_SRC_ENGINE_TABLES_OPTIMIZER_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "checkpoint/status.h"
#include "commsched/optimizer.h"
#include "engine/tables/kernels.h"

namespace commsched::engine {

// Whether an engine can train with `table`. INVALID_ARGUMENT, with the table's
// name, unless it has a step, names for all that it keeps, and says either
// element_wise or whole_tensors; then what its own check says.
Status CheckOptimizerTable(const commsched_optimizer_table_t& table);

// An optimizer as an engine keeps it: a copy of a table that has passed
// CheckOptimizerTable(), and of the names in it.
//
// Immutable.
class Optimizer {
 public:
  // Null: AdamW, with the constants that the options of a step plan name.
  explicit Optimizer(const commsched_optimizer_table_t* given);
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  const commsched_optimizer_table_t& table() const { return table_; }
  const char* name() const { return table_.name; }
  const char* state_name(uint32_t value) const {
    return table_.state_names[value];
  }

 private:
  commsched_optimizer_table_t table_;
  std::string name_;
  std::array<std::string, COMMSCHED_OPTIMIZER_MAX_STATE> state_names_;
  std::array<std::string, COMMSCHED_OPTIMIZER_MAX_SETTINGS> setting_names_;
};

// ---- For the optimizers of the library --------------------------------------

// A setting or beta of `table` that is called `field` must be in [0, 1).
Status CheckFraction(const commsched_optimizer_table_t& table,
                     const char* field, float value);

// What a function of a table returns: the message of a failure is left where
// the engine finds it.
inline commsched_status_t CodeOf(const Status& status) {
  if (!status.ok()) commsched_set_last_error(status.message().c_str());
  return status.code();
}

inline const Kernels& KernelsOf(const commsched_optimizer_bucket_t& bucket) {
  return *static_cast<const Kernels*>(bucket.kernels);
}

// Where `count` elements of `dtype` after `base` are; null stays null.
const void* Behind(const void* base, commsched_dtype_t dtype, uint64_t count);

// What the kernels of all optimizers are told of a segment.
template <typename Args>
void SetSegment(const commsched_optimizer_bucket_t& bucket,
                const commsched_optimizer_segment_t& segment, Args* args) {
  args->master = bucket.masters + segment.begin;
  args->gradient_dtype = bucket.gradient_dtype;
  args->gradient =
      Behind(bucket.gradients, bucket.gradient_dtype, segment.begin);
  args->copy_dtype = bucket.copy_dtype;
  args->copy =
      const_cast<void*>(Behind(bucket.copy, bucket.copy_dtype, segment.begin));
  args->count = segment.count;
  args->control = segment.control;
  args->lr = segment.lr;
  args->decay = segment.decay;
}

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_TABLES_OPTIMIZER_TABLE_H_
