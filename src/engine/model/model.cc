#include "engine/model/model.h"

#include <algorithm>
#include <utility>

namespace commsched::engine {
namespace {

constexpr uint64_t kMaxElements = uint64_t{1} << 40;

Status CheckName(const char* object, const char* name) {
  if (name == nullptr || *name == '\0') {
    return InvalidArgument(std::string("model: a ") + object +
                           " needs a name that is not empty");
  }
  return Status();
}

Status CheckArray(const std::string& what, const void* array, uint32_t count,
                  const char* field) {
  if ((array != nullptr) == (count != 0)) return Status();
  if (array != nullptr) {
    return InvalidArgument("model: " + what + " is given " + field +
                           ", but num_" + field + " is 0: set both or none");
  }
  return InvalidArgument("model: " + what + " has " + std::to_string(count) +
                         " " + field + ", which are NULL");
}

Status CheckFlag(const std::string& parameter, const char* field,
                 uint32_t value) {
  if (value <= 1) return Status();
  return InvalidArgument(std::string("model: ") + field + " of parameter '" +
                         parameter + "' is " + std::to_string(value) +
                         "; it must be 0 or 1");
}

Status CheckDType(const commsched_parameter_desc_t& desc) {
  if (desc.dtype == COMMSCHED_F32 ||
      (desc.has_dtype == 1 &&
       (desc.dtype == COMMSCHED_F16 || desc.dtype == COMMSCHED_BF16))) {
    return Status();
  }
  const std::string what = std::string("model: dtype of parameter '") +
                           desc.name + "' is " + std::to_string(desc.dtype);
  if (desc.has_dtype == 0)
    return InvalidArgument(what + ", and has_dtype is 0");
  return InvalidArgument(what + "; it must be F32 (0), F16 (2) or BF16 (3)");
}

// Elements of a parameter, of which `room` are left.
Status CountElements(const commsched_parameter_desc_t& desc, uint64_t room,
                     uint64_t* out_count) {
  const std::string what = std::string("parameter '") + desc.name + "'";
  if (desc.dims == nullptr && desc.num_dims > 0) {
    return InvalidArgument("model: " + what + " has " +
                           std::to_string(desc.num_dims) +
                           " dims, which are NULL");
  }
  uint64_t count = 1;
  for (uint32_t i = 0; i < desc.num_dims; ++i) {
    if (desc.dims[i] == 0) count = 0;
  }
  for (uint32_t i = 0; count > 0 && i < desc.num_dims; ++i) {
    if (desc.dims[i] > room / count) {
      return Status(
          COMMSCHED_OUT_OF_RANGE,
          "model: with " + what + " the model has more than 2^40 elements");
    }
    count *= desc.dims[i];
  }
  if (count > room) {
    return Status(
        COMMSCHED_OUT_OF_RANGE,
        "model: with " + what + " the model has more than 2^40 elements");
  }
  *out_count = count;
  return Status();
}

}  // namespace

Status Model::CheckOpen() const {
  if (!closed_.load(std::memory_order_relaxed)) return Status();
  return FailedPrecondition(
      "model: nothing can be added, since a step plan is made of it");
}

Status Model::AddModule(const char* name, double forward_flops,
                        double backward_flops, uint32_t* out_module) {
  ENGINE_RETURN_IF_ERROR(CheckName("module", name));
  ENGINE_RETURN_IF_ERROR(CheckNotNegative("forward_flops", forward_flops));
  ENGINE_RETURN_IF_ERROR(CheckNotNegative("backward_flops", backward_flops));
  if (!module_names_.insert(name).second) {
    return Status(
        COMMSCHED_ALREADY_EXISTS,
        std::string("model: another module is called '") + name + "'");
  }
  *out_module = static_cast<uint32_t>(modules_.size());
  modules_.push_back({name, forward_flops, backward_flops, {}, {}});
  return Status();
}

Status Model::AddParameter(const commsched_parameter_desc_t& desc,
                           uint32_t* out_parameter) {
  ENGINE_RETURN_IF_ERROR(CheckName("parameter", desc.name));
  const std::string name = desc.name;
  if (desc.module >= modules_.size()) {
    return Status(COMMSCHED_NOT_FOUND,
                  "model: parameter '" + name + "' in module " +
                      std::to_string(desc.module) + "; there are " +
                      std::to_string(modules_.size()));
  }
  if (desc.replicated_over > exchanges_.groups.size()) {
    return Status(COMMSCHED_NOT_FOUND,
                  "model: parameter '" + name + "' is replicated over group " +
                      std::to_string(desc.replicated_over) + "; there are " +
                      std::to_string(exchanges_.groups.size()));
  }
  ENGINE_RETURN_IF_ERROR(CheckFlag(name, "has_dtype", desc.has_dtype));
  ENGINE_RETURN_IF_ERROR(CheckFlag(name, "frozen", desc.frozen));
  ENGINE_RETURN_IF_ERROR(CheckFlag(name, "atomic", desc.atomic));
  ENGINE_RETURN_IF_ERROR(CheckDType(desc));
  uint64_t count = 0;
  ENGINE_RETURN_IF_ERROR(
      CountElements(desc, kMaxElements - num_elements_, &count));
  Parameter added = {.name = name,
                     .count = count,
                     .num_dims = desc.num_dims,
                     .module = desc.module,
                     .dims = {desc.dims, desc.dims + desc.num_dims},
                     .option_set = desc.option_set,
                     .atomic = desc.atomic == 1,
                     .replicated_over = desc.replicated_over,
                     .has_dtype = desc.has_dtype == 1,
                     .dtype = static_cast<commsched_dtype_t>(desc.dtype),
                     .frozen = desc.frozen == 1};
  if (!parameter_names_.insert(name).second) {
    return Status(COMMSCHED_ALREADY_EXISTS,
                  "model: another parameter is called '" + name + "'");
  }
  *out_parameter = static_cast<uint32_t>(parameters_.size());
  modules_[desc.module].used.push_back(*out_parameter);
  num_elements_ += added.count;
  parameters_.push_back(std::move(added));
  return Status();
}

Status Model::CheckModule(uint32_t module) const {
  if (module < modules_.size()) return Status();
  return Status(COMMSCHED_NOT_FOUND, "model: module " + std::to_string(module) +
                                         "; there are " +
                                         std::to_string(modules_.size()));
}

Status Model::CheckParameter(uint32_t parameter) const {
  if (parameter < parameters_.size()) return Status();
  return Status(COMMSCHED_NOT_FOUND,
                "model: parameter " + std::to_string(parameter) +
                    "; there are " + std::to_string(parameters_.size()));
}

Status Model::UseParameter(uint32_t module, uint32_t parameter) {
  ENGINE_RETURN_IF_ERROR(CheckParameter(parameter));
  ENGINE_RETURN_IF_ERROR(CheckModule(module));
  Module& user = modules_[module];
  const Parameter& used = parameters_[parameter];
  if (std::find(user.used.begin(), user.used.end(), parameter) !=
      user.used.end()) {
    return Status(COMMSCHED_ALREADY_EXISTS, "model: module '" + user.name +
                                                "' uses parameter '" +
                                                used.name + "' already");
  }
  if (used.module > module) {
    return InvalidArgument(
        "model: module '" + user.name + "' would use parameter '" + used.name +
        "', which the later module '" + modules_[used.module].name + "' owns");
  }
  user.used.push_back(parameter);
  return Status();
}

Status Model::Recompute(uint32_t first, uint32_t last) {
  ENGINE_RETURN_IF_ERROR(CheckModule(first));
  ENGINE_RETURN_IF_ERROR(CheckModule(last));
  if (first > last) {
    return InvalidArgument("model: recompute from module " +
                           std::to_string(first) + " to " +
                           std::to_string(last) + ", which comes before it");
  }
  for (uint32_t m = first; m <= last; ++m) {
    if (modules_[m].segment == 0) continue;
    return Status(COMMSCHED_ALREADY_EXISTS,
                  "model: module '" + modules_[m].name +
                      "' is recomputed with others already");
  }
  if (!passes_.empty()) {
    return FailedPrecondition("engine: recompute of module '" +
                              modules_[first].name +
                              "' with passes that were set; RECOMPUTE is a "
                              "pass of their list");
  }
  ++num_segments_;
  for (uint32_t m = first; m <= last; ++m) modules_[m].segment = num_segments_;
  return Status();
}

// ---- Within modules ---------------------------------------------------------

// A graph that has only what modules exchange, to which all of it is added
// first: what a graph refuses is refused when it is registered, and nothing
// else changes. The size of the engine's group is not known yet.
Status Model::StartProbe() {
  if (probe_.graph() != nullptr) return Status();
  return probe_.Create(/*group_size=*/1);
}

Status Model::AddGroup(const char* name, int32_t num_ranks,
                       uint32_t* out_group) {
  ENGINE_RETURN_IF_ERROR(StartProbe());
  AddedGroup added = {name, num_ranks};
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
  if (reinterpret_cast<uintptr_t>(desc.address) % alignment != 0) {
    return InvalidArgument("model: activation '" + added.name +
                           "' has an address that is not a multiple of " +
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
    return InvalidArgument("model: " + what + " would use parameter '" +
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
  context.knows_group = false;
  commsched_op_id_t op = kNoId;
  ENGINE_RETURN_IF_ERROR(AddModuleStep(step, context, &probe_, &op));
  modules_[module].steps[backward ? 1 : 0].push_back(std::move(step));
  return Status();
}

Status Model::CheckStep(uint32_t module, const char* name, uint32_t backward) {
  ENGINE_RETURN_IF_ERROR(CheckModule(module));
  if (name == nullptr || *name == '\0') {
    return InvalidArgument("model: a step of module '" + modules_[module].name +
                           "' needs a name that is not empty");
  }
  if (backward > 1) {
    return InvalidArgument("model: backward of '" + std::string(name) +
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
  for (uint32_t parameter : step.gradients) {
    if (!parameters_[parameter].frozen) continue;
    return InvalidArgument("model: " + what + " adds to the gradient of '" +
                           parameters_[parameter].name +
                           "', which is frozen and has none");
  }
  if (!backward && !step.gradients.empty()) {
    return InvalidArgument("model: " + what + " adds to " +
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

// ---- For messages and plans -------------------------------------------------

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

Status Model::CheckCount(const char* call, uint32_t parameter,
                         uint64_t count) const {
  const Parameter& p = parameters_[parameter];
  if (count == p.count) return Status();
  return InvalidArgument(std::string("engine: ") + call + " of '" + p.name +
                         "' with " + std::to_string(count) +
                         " elements; it has " + std::to_string(p.count));
}

std::string Model::TextOfCall(const char* which, const PassCall& call) const {
  return CallText(
      which,
      {.kind = call.kind,
       .module = call.module,
       .micro_batch = call.micro_batch},
      call.module < modules_.size() ? modules_[call.module].name : "");
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
