// Ops and collectives within modules: registration, and running them.

#include <algorithm>
#include <utility>

#include "engine.h"

namespace commsched::engine {
namespace {

Status CheckArray(const std::string& what, const void* array, uint32_t count,
                  const char* field) {
  if ((array != nullptr) == (count != 0)) return Status();
  if (array != nullptr) {
    return InvalidArgument("engine: " + what + " is given " + field +
                           ", but num_" + field + " is 0: set both or none");
  }
  return InvalidArgument("engine: " + what + " has " + std::to_string(count) +
                         " " + field + ", which are NULL");
}

}  // namespace

// ---- Registration -----------------------------------------------------------

// A graph that has only what modules exchange, to which all of it is added
// first: what a graph refuses is refused when it is registered, and nothing
// else changes.
Status Engine::StartProbe() {
  if (probe_.graph() != nullptr) return Status();
  return probe_.Create(spec_.world);
}

Status Engine::AddGroup(const char* name, commsched_group_t* group,
                        uint32_t* out_group) {
  ENGINE_RETURN_IF_ERROR(CheckRegistering());
  ENGINE_RETURN_IF_ERROR(StartProbe());
  AddedGroup added = {name, group};
  ENGINE_RETURN_IF_ERROR(engine::AddGroup(added, &probe_));
  exchanges_.groups.push_back(std::move(added));
  *out_group = static_cast<uint32_t>(exchanges_.groups.size());
  return Status();
}

Status Engine::AddActivation(const commsched_activation_desc_t& desc,
                             uint32_t* out_activation) {
  ENGINE_RETURN_IF_ERROR(CheckRegistering());
  ENGINE_RETURN_IF_ERROR(StartProbe());
  Activation added = {desc.name, desc.dtype, desc.count, desc.address};
  const uint64_t alignment = std::max<uint64_t>(1, SizeOf(desc.dtype));
  if (desc.address == nullptr ||
      reinterpret_cast<uintptr_t>(desc.address) % alignment != 0) {
    return InvalidArgument("engine: activation '" + added.name +
                           "' has an address that is NULL or not a multiple "
                           "of " +
                           std::to_string(alignment) + ", its element size");
  }
  commsched_buffer_id_t buffer = 0;
  ENGINE_RETURN_IF_ERROR(engine::AddActivation(added, &probe_, &buffer));
  *out_activation = buffer;
  exchanges_.activations.push_back(std::move(added));
  return Status();
}

Status Engine::CheckUses(uint32_t module, const std::string& what,
                         const std::vector<uint32_t>& parameters) const {
  const std::vector<uint32_t>& used = modules_[module].used;
  for (uint32_t parameter : parameters) {
    ENGINE_RETURN_IF_ERROR(CheckParameterId(parameter));
    if (std::find(used.begin(), used.end(), parameter) != used.end()) continue;
    return InvalidArgument("engine: " + what + " would use parameter '" +
                           parameters_[parameter].name + "', which module '" +
                           modules_[module].name + "' does not use");
  }
  return Status();
}

std::string Engine::StepPrefix(bool backward, uint32_t module) const {
  return std::string(backward ? "backward." : "forward.") +
         modules_[module].name + ".";
}

Status Engine::AddStep(uint32_t module, bool backward, ModuleStep step) {
  StepContext context;
  context.prefix = StepPrefix(backward, module);
  commsched_op_id_t op = kNoId;
  ENGINE_RETURN_IF_ERROR(AddModuleStep(step, context, &probe_, &op));
  modules_[module].steps[backward ? 1 : 0].push_back(std::move(step));
  return Status();
}

Status Engine::CheckStep(uint32_t module, const char* name, uint32_t backward) {
  ENGINE_RETURN_IF_ERROR(CheckRegistering());
  ENGINE_RETURN_IF_ERROR(CheckModuleId(module));
  if (name == nullptr || *name == '\0') {
    return InvalidArgument("engine: a step of module '" +
                           modules_[module].name +
                           "' needs a name that is not empty");
  }
  if (backward > 1) {
    return InvalidArgument("engine: backward of '" + std::string(name) +
                           "' is " + std::to_string(backward) +
                           "; it must be 0 or 1");
  }
  return StartProbe();
}

Status Engine::AddOp(uint32_t module, const commsched_module_op_desc_t& desc,
                     uint32_t* out_op) {
  ENGINE_RETURN_IF_ERROR(CheckStep(module, desc.name, desc.backward));
  const bool backward = desc.backward == 1;
  const std::string what =
      "op '" + StepPrefix(backward, module) + desc.name + "'";
  ENGINE_RETURN_IF_ERROR(
      CheckArray(what, desc.accesses, desc.num_accesses, "accesses"));
  ENGINE_RETURN_IF_ERROR(
      CheckArray(what, desc.parameters, desc.num_parameters, "parameters"));
  ENGINE_RETURN_IF_ERROR(
      CheckArray(what, desc.gradients, desc.num_gradients, "gradients"));
  ModuleStep step(desc);
  ENGINE_RETURN_IF_ERROR(CheckUses(module, what, step.parameters));
  ENGINE_RETURN_IF_ERROR(CheckUses(module, what, step.gradients));
  if (!backward && !step.gradients.empty()) {
    return InvalidArgument("engine: " + what + " adds to " +
                           std::to_string(step.gradients.size()) +
                           " gradients; only ops of a backward can");
  }
  ENGINE_RETURN_IF_ERROR(AddStep(module, backward, std::move(step)));
  uint32_t index = 0;
  for (const ModuleStep& each : modules_[module].steps[backward ? 1 : 0]) {
    if (!each.is_collective) ++index;
  }
  *out_op = static_cast<uint32_t>(added_ops_.size());
  added_ops_.push_back({module, backward, index - 1});
  return Status();
}

Status Engine::AddCollective(uint32_t module,
                             const commsched_module_collective_desc_t& desc) {
  ENGINE_RETURN_IF_ERROR(CheckStep(module, desc.name, desc.backward));
  const bool backward = desc.backward == 1;
  ENGINE_RETURN_IF_ERROR(CheckArray(
      "collective '" + StepPrefix(backward, module) + desc.name + "'",
      desc.counts, desc.num_counts, "counts"));
  return AddStep(module, backward, ModuleStep(desc));
}

// ---- Running ----------------------------------------------------------------

// "op 3 'q' of module 1 'block', micro-batch 0"
std::string Engine::OpCall(const char* which, uint32_t op,
                           uint32_t micro_batch) const {
  std::string call =
      std::string("op_") + which + " of op " + std::to_string(op);
  if (op < added_ops_.size()) {
    const AddedOp& added = added_ops_[op];
    uint32_t index = 0;
    for (const ModuleStep& step :
         modules_[added.module].steps[added.backward ? 1 : 0]) {
      if (step.is_collective || index++ != added.index) continue;
      call += " '" + StepPrefix(added.backward, added.module) + step.name + "'";
    }
  }
  return call + ", micro-batch " + std::to_string(micro_batch);
}

// In a module with ops that are not over.
std::string Engine::ExpectedOpCall() const {
  const uint32_t micro_batch = cursor().pass().micro_batch;
  uint32_t op = 0;
  while (!IsNextOp(op, micro_batch)) ++op;
  return OpCall(phase_ == Phase::kInOp ? "end" : "begin", op, micro_batch);
}

bool Engine::IsNextOp(uint32_t op, uint32_t micro_batch) const {
  if (op >= added_ops_.size()) return false;
  const AddedOp& added = added_ops_[op];
  return added.index == inner_ &&
         cursor().IsAt({added.backward, added.module, micro_batch});
}

Status Engine::OpBegin(uint32_t op, uint32_t micro_batch) {
  if (phase_ != Phase::kInModule || !IsNextOp(op, micro_batch)) {
    return OutOfOrder(OpCall("begin", op, micro_batch));
  }
  ENGINE_RETURN_IF_ERROR(EndOpenOp());
  const commsched_op_id_t next = pass_ops().inner[inner_];
  ENGINE_RETURN_IF_ERROR(Before(next));
  open_op_ = next;
  phase_ = Phase::kInOp;
  return Status();
}

Status Engine::OpEnd(uint32_t op, uint32_t micro_batch) {
  if (phase_ != Phase::kInOp || !IsNextOp(op, micro_batch)) {
    return OutOfOrder(OpCall("end", op, micro_batch));
  }
  ENGINE_RETURN_IF_ERROR(EndOpenOp());
  phase_ = Phase::kInModule;
  ++inner_;
  return Status();
}

// What runs now, if the engine has an op for it.
Status Engine::EndOpenOp() {
  if (open_op_ == kNoId) return Status();
  Measure(open_op_);
  // It stays open if that fails, so that a second end fails, too.
  ENGINE_RETURN_IF_ERROR(After(open_op_));
  open_op_ = kNoId;
  return Status();
}

}  // namespace commsched::engine
