#ifndef COMMSCHED_SRC_ENGINE_MODEL_MODEL_H_
#define COMMSCHED_SRC_ENGINE_MODEL_MODEL_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "checkpoint/status.h"
#include "commsched/model.h"
#include "engine/model/graph_writer.h"
#include "engine/model/module_steps.h"
#include "engine/model/passes.h"

namespace commsched::engine {

struct Parameter {
  std::string name;
  uint64_t count = 0;  // Elements, row-major.
  uint32_t num_dims = 0;
  uint32_t module = 0;              // The owner.
  std::vector<uint64_t> dims = {};  // Of checkpoints.
  uint32_t option_set = 0;
  bool atomic = false;           // No shard ends within it.
  uint32_t replicated_over = 0;  // A group of the model; 0: none.
  bool has_dtype = false;        // It is of `dtype`, not of the engine's.
  commsched_dtype_t dtype = COMMSCHED_F32;
  bool frozen = false;  // Not trained.
};

struct Module {
  std::string name;
  double forward_flops = 0;
  double backward_flops = 0;
  std::vector<uint32_t> used;  // Parameter ids: owned, then tied.
  // The steps of the forward, and those of the backward.
  std::array<std::vector<ModuleStep>, 2> steps = {};
  uint32_t segment = 0;  // Of modules whose forwards run again; 0: of none.
};

// An op that was added to a module.
struct AddedOp {
  uint32_t module = 0;
  bool backward = false;
  uint32_t index = 0;  // Among the ops of this direction.
};

// What is trained, as it is registered: modules, their parameters, and what
// they do and exchange within themselves. Pure data: it has no memory of
// parameters and meets nobody. What a call refuses changes nothing.
//
// Thread-compatible; engines of several threads can have one model, which does
// not change once it is closed.
class Model {
 public:
  Status AddModule(const char* name, double forward_flops,
                   double backward_flops, uint32_t* out_module);
  Status AddParameter(const commsched_parameter_desc_t& desc,
                      uint32_t* out_parameter);
  // A module uses the parameter of an earlier one, too.
  Status UseParameter(uint32_t module, uint32_t parameter);
  // The forwards of modules `first` to `last` run again within backward.
  Status Recompute(uint32_t first, uint32_t last);
  // The passes of a step, in order; none: forwards in the order of modules and
  // backwards in reverse, micro-batch after micro-batch.
  Status SetPasses(const commsched_pass_t* passes, uint64_t num_passes);

  // These describe what happens within modules.
  Status AddGroup(const char* name, int32_t num_ranks, uint32_t* out_group);
  Status AddActivation(const commsched_activation_desc_t& desc,
                       uint32_t* out_activation);
  Status AddOp(uint32_t module, const commsched_module_op_desc_t& desc,
               uint32_t* out_op);
  Status AddCollective(uint32_t module,
                       const commsched_module_collective_desc_t& desc);

  // A step plan is made of it, and nothing can be added.
  void Close() { closed_.store(true, std::memory_order_relaxed); }
  Status CheckOpen() const;

  const std::vector<Module>& modules() const { return modules_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const Exchanges& exchanges() const { return exchanges_; }
  const std::vector<AddedOp>& ops() const { return ops_; }
  // Those that were set, each with its forward; empty if none were.
  const std::vector<Pass>& passes() const { return passes_; }

  // The passes of a step: those that were set, or else of forwards in the order
  // `sequence`. Fails if what was set is no step of this model.
  Status StepPasses(const Sequence& sequence, uint32_t micro_batches,
                    std::vector<Pass>* out_passes) const;
  Status CheckParameter(uint32_t parameter) const;
  // Whether `call` was given all elements of a parameter.
  Status CheckCount(const char* call, uint32_t parameter, uint64_t count) const;
  bool HasParameter(const std::string& name) const {
    return parameter_names_.count(name) != 0;
  }
  std::vector<std::string> ModuleNames() const;
  std::vector<uint32_t> Segments() const;  // By module.
  // "pass_begin of FORWARD of module 1 'block', micro-batch 0"
  std::string TextOfCall(const char* which, const PassCall& call) const;
  // "op 3 'forward.block.q'"
  std::string TextOfOp(uint32_t op) const;

 private:
  Status CheckModule(uint32_t module) const;
  // Names in messages.
  std::string PrefixOfStep(bool backward, uint32_t module) const;
  Status CheckUses(uint32_t module, const std::string& what,
                   const std::vector<uint32_t>& parameters) const;
  Status CheckStep(uint32_t module, const char* name, uint32_t backward);
  Status StartProbe();
  Status AddStep(uint32_t module, bool backward, ModuleStep step);

  std::atomic<bool> closed_ = false;
  std::vector<Module> modules_;
  uint32_t num_segments_ = 0;  // Of modules whose forwards run again.
  std::vector<Pass> passes_;
  std::vector<Parameter> parameters_;
  uint64_t num_elements_ = 0;
  std::unordered_set<std::string> module_names_;
  std::unordered_set<std::string> parameter_names_;
  Exchanges exchanges_;
  std::vector<AddedOp> ops_;
  GraphWriter probe_;  // Of what modules exchange, alone.
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_MODEL_MODEL_H_
