#ifndef COMMSCHED_SRC_ENGINE_MODEL_MODULE_STEPS_H_
#define COMMSCHED_SRC_ENGINE_MODEL_MODULE_STEPS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/status.h"
#include "commsched/model.h"
#include "commsched/session.h"
#include "engine/model/graph_writer.h"
#include "engine/model/passes.h"

namespace commsched::engine {

// An op or a collective within a module's forward or backward, as registered.
// `buffer` of its accesses is the id of an activation.
struct ModuleStep {
  explicit ModuleStep(const commsched_module_op_desc_t& desc);
  explicit ModuleStep(const commsched_module_collective_desc_t& desc);

  bool is_collective = false;
  std::string name;

  // These are set for an op.
  std::vector<commsched_access_t> accesses;
  std::vector<uint32_t> parameters;
  std::vector<uint32_t> gradients;
  double flops = 0;

  // These are set for a collective. The description has no pointers.
  commsched_module_collective_desc_t collective = {};
  std::vector<uint64_t> counts;
};

// Whether a step of a forward or backward runs in a pass of `kind`: of the
// halves of a backward, ops that add to gradients run in the second, and all
// else in the first.
bool RunsIn(const ModuleStep& step, PassKind kind);

// The index, among the ops of `steps`, of the `nth` that runs in such a pass.
uint64_t IndexOfOp(const std::vector<ModuleStep>& steps, PassKind kind,
                   uint64_t nth);

// Bytes of an element; 0 for an unknown type.
uint64_t SizeOf(commsched_dtype_t dtype);

struct Activation {
  std::string name;
  commsched_dtype_t dtype = COMMSCHED_F32;
  uint64_t count = 0;
  void* address = nullptr;

  uint64_t bytes() const;
};

struct AddedGroup {
  std::string name;
  int32_t num_ranks = 0;
};

// What the steps of all modules refer to: groups from id 1 on, activations from
// id 0 on.
struct Exchanges {
  std::vector<AddedGroup> groups;
  std::vector<Activation> activations;

  bool empty() const { return groups.empty() && activations.empty(); }
};

// The group that follows those of `writer`. Fails as the graph functions do,
// like all the rest.
Status AddGroup(const AddedGroup& group, GraphWriter* writer);
Status AddActivation(const Activation& activation, GraphWriter* writer,
                     commsched_buffer_id_t* out_buffer);

// Adds all of them; activation i is then buffer `*out_first` + i.
Status AddExchanges(const Exchanges& exchanges, GraphWriter* writer,
                    commsched_buffer_id_t* out_first);

commsched_binding_t BindingOf(const Activation& activation,
                              commsched_buffer_id_t buffer);

// What a graph makes of the steps of a module.
struct StepContext {
  std::string prefix;  // Of the names of ops: "forward[0].block."
  commsched_buffer_id_t first_activation = 0;
  // Each op comes after the one before it; the first after this one, if any.
  commsched_op_id_t after = kNoId;
  PassKind kind =
      PassKind::kForward;  // Of which only what runs in it is added.
  // If not, collectives over the engine's group are added as ops with the same
  // accesses, whose counts no size of a group has a say in.
  bool knows_group = true;
  // Appends what an op accesses for its parameters and gradients.
  std::function<void(const ModuleStep&, std::vector<commsched_access_t>*)>
      add_parameters;
};

// Adds one step. `*out_op` is written for ops only.
Status AddModuleStep(const ModuleStep& step, const StepContext& context,
                     GraphWriter* writer, commsched_op_id_t* out_op);

// Adds the steps that run in a pass of `context`; `*out_ops` gets the ops, in
// order.
Status AddModuleSteps(const std::vector<ModuleStep>& steps, StepContext context,
                      GraphWriter* writer,
                      std::vector<commsched_op_id_t>* out_ops);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_MODEL_MODULE_STEPS_H_
