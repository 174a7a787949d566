#include "engine/model/model.h"

#include <algorithm>
#include <utility>

namespace commsched::engine {
namespace {

constexpr uint64_t kMaxElements = uint64_t{1} << 40;

Status CheckName(const char* object, const char* name) {
  if (name == nullptr || *name == '\0') {
    return InvalidArgument(std::string("engine: a ") + object +
                           " needs a name that is not empty");
  }
  return Status();
}

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

Status Model::AddModule(const char* name, double forward_flops,
                        double backward_flops, uint32_t* out_module) {
  ENGINE_RETURN_IF_ERROR(CheckName("module", name));
  ENGINE_RETURN_IF_ERROR(CheckNotNegative("forward_flops", forward_flops));
  ENGINE_RETURN_IF_ERROR(CheckNotNegative("backward_flops", backward_flops));
  if (!module_names_.insert(name).second) {
    return Status(
        COMMSCHED_ALREADY_EXISTS,
        std::string("engine: another module is called '") + name + "'");
  }
  *out_module = static_cast<uint32_t>(modules_.size());
  modules_.push_back({name, forward_flops, backward_flops, {}, {}});
  return Status();
}

Status Model::AddParameter(uint32_t module, const char* name,
                           const uint64_t* dims, uint32_t num_dims,
                           uint32_t* out_parameter) {
  ENGINE_RETURN_IF_ERROR(CheckName("parameter", name));
  if (module >= modules_.size()) {
    return Status(COMMSCHED_NOT_FOUND,
                  std::string("engine: parameter '") + name + "' in module " +
                      std::to_string(module) + "; there are " +
                      std::to_string(modules_.size()));
  }
  if (num_dims == 0) {
    return InvalidArgument(std::string("engine: parameter '") + name +
                           "' has no dimensions");
  }
  uint64_t total = num_elements_;
  uint64_t count = 1;
  for (uint32_t i = 0; i < num_dims; ++i) {
    if (dims[i] == 0) {
      return InvalidArgument(std::string("engine: parameter '") + name +
                             "': dimension " + std::to_string(i) + " is 0");
    }
    if (dims[i] > (kMaxElements - total) / count) {
      return Status(COMMSCHED_OUT_OF_RANGE,
                    std::string("engine: with parameter '") + name +
                        "' the model has more than 2^40 elements");
    }
    count *= dims[i];
  }
  if (!parameter_names_.insert(name).second) {
    return Status(
        COMMSCHED_ALREADY_EXISTS,
        std::string("engine: another parameter is called '") + name + "'");
  }
  *out_parameter = static_cast<uint32_t>(parameters_.size());
  modules_[module].used.push_back(*out_parameter);
  parameters_.push_back(
      {name, count, num_dims, module, {dims, dims + num_dims}});
  num_elements_ = total + count;
  return Status();
}

Status Model::CheckModule(uint32_t module) const {
  if (module < modules_.size()) return Status();
  return Status(COMMSCHED_NOT_FOUND,
                "engine: module " + std::to_string(module) + "; there are " +
                    std::to_string(modules_.size()));
}

Status Model::CheckParameter(uint32_t parameter) const {
  if (parameter < parameters_.size()) return Status();
  return Status(COMMSCHED_NOT_FOUND,
                "engine: parameter " + std::to_string(parameter) +
                    "; there are " + std::to_string(parameters_.size()));
}

Status Model::UseParameter(uint32_t module, uint32_t parameter) {
  ENGINE_RETURN_IF_ERROR(CheckParameter(parameter));
  ENGINE_RETURN_IF_ERROR(CheckModule(module));
  Module& user = modules_[module];
  const Parameter& used = parameters_[parameter];
  if (std::find(user.used.begin(), user.used.end(), parameter) !=
      user.used.end()) {
    return Status(COMMSCHED_ALREADY_EXISTS, "engine: module '" + user.name +
                                                "' uses parameter '" +
                                                used.name + "' already");
  }
  if (used.module > module) {
    return InvalidArgument(
        "engine: module '" + user.name + "' would use parameter '" + used.name +
        "', which the later module '" + modules_[used.module].name + "' owns");
  }
  user.used.push_back(parameter);
  return Status();
}

Status Model::Recompute(uint32_t first, uint32_t last) {
  ENGINE_RETURN_IF_ERROR(CheckModule(first));
  ENGINE_RETURN_IF_ERROR(CheckModule(last));
  if (first > last) {
    return InvalidArgument("engine: recompute from module " +
                           std::to_string(first) + " to " +
                           std::to_string(last) + ", which comes before it");
  }
  for (uint32_t m = first; m <= last; ++m) {
    if (modules_[m].segment == 0) continue;
    return Status(COMMSCHED_ALREADY_EXISTS,
                  "engine: module '" + modules_[m].name +
                      "' is recomputed with others already");
  }
  ++num_segments_;
  for (uint32_t m = first; m <= last; ++m) modules_[m].segment = num_segments_;
  return Status();
}

// ---- Within modules
// ----------------------------------------------------------

// A graph that has only what modules exchange, to which all of it is added
// first: what a graph refuses is refused when it is registered, and nothing
// else changes.
Status Model::StartProbe() {
  if (probe_.graph() != nullptr) return Status();
  return probe_.Create(group_size_);
}

Status Model::AddGroup(const char* name, commsched_group_t* group,
                       uint32_t* out_group) {
  ENGINE_RETURN_IF_ERROR(StartProbe());
  AddedGroup added = {name, group};
  ENGINE_RETURN_IF_ERROR(engine::AddGroup(added, &probe_));
  exchanges_.groups.push_back(std::move(added));
  *out_group = static_cast<uint32_t>(exchanges_.groups.size());
  return Status();
}

Status Model::AddActivation(const commsched_activation_desc_t& desc,
                            uint32_t* out_activation) {
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

Status Model::CheckUses(uint32_t module, const std::string& what,
                        const std::vector<uint32_t>& parameters) const {
  const std::vector<uint32_t>& used = modules_[module].used;
  for (uint32_t parameter : parameters) {
    ENGINE_RETURN_IF_ERROR(CheckParameter(parameter));
    if (std::find(used.begin(), used.end(), parameter) != used.end()) continue;
    return InvalidArgument("engine: " + what + " would use parameter '" +
                           parameters_[parameter].name + "', which module '" +
                           modules_[module].name + "' does not use");
  }
  return Status();
}

std::string Model::PrefixOfStep(bool backward, uint32_t module) const {
  return std::string(backward ? "backward." : "forward.") +
         modules_[module].name + ".";
}

Status Model::AddStep(uint32_t module, bool backward, ModuleStep step) {
  StepContext context;
  context.prefix = PrefixOfStep(backward, module);
  commsched_op_id_t op = kNoId;
  ENGINE_RETURN_IF_ERROR(AddModuleStep(step, context, &probe_, &op));
  modules_[module].steps[backward ? 1 : 0].push_back(std::move(step));
  return Status();
}

Status Model::CheckStep(uint32_t module, const char* name, uint32_t backward) {
  ENGINE_RETURN_IF_ERROR(CheckModule(module));
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

Status Model::AddOp(uint32_t module, const commsched_module_op_desc_t& desc,
                    uint32_t* out_op) {
  ENGINE_RETURN_IF_ERROR(CheckStep(module, desc.name, desc.backward));
  const bool backward = desc.backward == 1;
  const std::string what =
      "op '" + PrefixOfStep(backward, module) + desc.name + "'";
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
  *out_op = static_cast<uint32_t>(ops_.size());
  ops_.push_back({module, backward, index - 1});
  return Status();
}

Status Model::AddCollective(uint32_t module,
                            const commsched_module_collective_desc_t& desc) {
  ENGINE_RETURN_IF_ERROR(CheckStep(module, desc.name, desc.backward));
  const bool backward = desc.backward == 1;
  ENGINE_RETURN_IF_ERROR(CheckArray(
      "collective '" + PrefixOfStep(backward, module) + desc.name + "'",
      desc.counts, desc.num_counts, "counts"));
  return AddStep(module, backward, ModuleStep(desc));
}

// ---- For messages and plans
// --------------------------------------------------

std::string Model::TextOfOp(uint32_t op) const {
  std::string text = "op " + std::to_string(op);
  if (op >= ops_.size()) return text;
  const AddedOp& added = ops_[op];
  uint32_t index = 0;
  for (const ModuleStep& step :
       modules_[added.module].steps[added.backward ? 1 : 0]) {
    if (step.is_collective || index++ != added.index) continue;
    text += " '" + PrefixOfStep(added.backward, added.module) + step.name + "'";
  }
  return text;
}

std::vector<std::string> Model::ModuleNames() const {
  std::vector<std::string> names;
  for (const Module& module : modules_) names.push_back(module.name);
  return names;
}

std::vector<uint32_t> Model::Segments() const {
  std::vector<uint32_t> segments;
  for (const Module& module : modules_) segments.push_back(module.segment);
  return segments;
}

}  // namespace commsched::engine
