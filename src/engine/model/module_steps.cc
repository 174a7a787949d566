#include "engine/model/module_steps.h"

#include <utility>

namespace commsched::engine {
namespace {

Status AddOp(const ModuleStep& step, const StepContext& context,
             GraphWriter* writer, commsched_op_id_t* out_op) {
  const std::string name = context.prefix + step.name;
  std::vector<commsched_access_t> accesses = step.accesses;
  for (commsched_access_t& access : accesses) {
    access.buffer += context.first_activation;
  }
  if (context.add_parameters) context.add_parameters(step, &accesses);
  commsched_compute_desc_t desc = commsched_compute_desc_init();
  desc.name = name.c_str();
  desc.accesses = DataOf(accesses);
  desc.num_accesses = static_cast<uint32_t>(accesses.size());
  if (context.after != kNoId) {
    desc.after = &context.after;
    desc.num_after = 1;
  }
  desc.flops = step.flops;
  return writer->AddCompute(desc, out_op);
}

// What a collective touches, as an op that does the same.
Status AddStandIn(const ModuleStep& step, const StepContext& context,
                  GraphWriter* writer) {
  ModuleStep op = step;
  op.accesses = {step.collective.input, step.collective.output};
  op.accesses[0].mode = COMMSCHED_READ;
  op.accesses[1].mode = COMMSCHED_WRITE;
  commsched_op_id_t id = kNoId;
  return AddOp(op, context, writer, &id);
}

Status AddCollective(const ModuleStep& step, const StepContext& context,
                     GraphWriter* writer) {
  const std::string name = context.prefix + step.name;
  const commsched_module_collective_desc_t& from = step.collective;
  commsched_collective_desc_t desc = commsched_collective_desc_init();
  desc.name = name.c_str();
  desc.kind = from.kind;
  desc.reduce_op = from.reduce_op;
  desc.group = from.group;
  desc.root = from.root;
  desc.input = from.input;
  desc.input.buffer += context.first_activation;
  desc.output = from.output;
  desc.output.buffer += context.first_activation;
  desc.counts = DataOf(step.counts);
  desc.num_counts = static_cast<uint32_t>(step.counts.size());
  desc.priority = from.priority;
  desc.peer_offset = from.peer_offset;
  commsched_op_id_t op = kNoId;
  return Status::FromCall(
      commsched_graph_add_collective(writer->graph(), &desc, &op),
      "adding a collective");
}

}  // namespace

ModuleStep::ModuleStep(const commsched_module_op_desc_t& desc)
    : name(desc.name),
      accesses(desc.accesses, desc.accesses + desc.num_accesses),
      parameters(desc.parameters, desc.parameters + desc.num_parameters),
      gradients(desc.gradients, desc.gradients + desc.num_gradients),
      flops(desc.flops) {}

ModuleStep::ModuleStep(const commsched_module_collective_desc_t& desc)
    : is_collective(true),
      name(desc.name),
      collective(desc),
      counts(desc.counts, desc.counts + desc.num_counts) {
  collective.name = nullptr;
  collective.counts = nullptr;
}

bool RunsIn(const ModuleStep& step, PassKind kind) {
  const bool adds = !step.is_collective && !step.gradients.empty();
  if (kind == PassKind::kBackwardInput) return !adds;
  return kind != PassKind::kBackwardWeight || adds;
}

uint64_t IndexOfOp(const std::vector<ModuleStep>& steps, PassKind kind,
                   uint64_t nth) {
  uint64_t index = 0;
  for (const ModuleStep& step : steps) {
    if (step.is_collective) continue;
    if (RunsIn(step, kind) && nth-- == 0) break;
    ++index;
  }
  return index;
}

uint64_t SizeOf(commsched_dtype_t dtype) {
  switch (dtype) {
    case COMMSCHED_F64:
    case COMMSCHED_I64:
      return 8;
    case COMMSCHED_F32:
    case COMMSCHED_I32:
      return 4;
    case COMMSCHED_F16:
    case COMMSCHED_BF16:
      return 2;
    case COMMSCHED_I8:
    case COMMSCHED_U8:
      return 1;
  }
  return 0;
}

uint64_t Activation::bytes() const { return count * SizeOf(dtype); }

commsched_binding_t BindingOf(const Activation& activation,
                              commsched_buffer_id_t buffer) {
  commsched_binding_t binding = {};
  binding.buffer = buffer;
  binding.address = activation.address;
  binding.bytes = activation.bytes();
  return binding;
}

Status AddGroup(const AddedGroup& group, GraphWriter* writer) {
  commsched_group_id_t id = 0;
  return writer->AddGroup(group.name.c_str(), group.num_ranks, &id);
}

Status AddActivation(const Activation& activation, GraphWriter* writer,
                     commsched_buffer_id_t* out_buffer) {
  return writer->AddBuffer(activation.name, activation.dtype, COMMSCHED_BOUND,
                           activation.count, out_buffer);
}

Status AddExchanges(const Exchanges& exchanges, GraphWriter* writer,
                    commsched_buffer_id_t* out_first) {
  for (const AddedGroup& group : exchanges.groups) {
    ENGINE_RETURN_IF_ERROR(AddGroup(group, writer));
  }
  for (size_t i = 0; i < exchanges.activations.size(); ++i) {
    commsched_buffer_id_t buffer = 0;
    ENGINE_RETURN_IF_ERROR(
        AddActivation(exchanges.activations[i], writer, &buffer));
    if (i == 0) *out_first = buffer;
  }
  return Status();
}

Status AddModuleStep(const ModuleStep& step, const StepContext& context,
                     GraphWriter* writer, commsched_op_id_t* out_op) {
  if (!step.is_collective) return AddOp(step, context, writer, out_op);
  if (step.collective.group == 0 && !context.knows_group) {
    return AddStandIn(step, context, writer);
  }
  return AddCollective(step, context, writer);
}

Status AddModuleSteps(const std::vector<ModuleStep>& steps, StepContext context,
                      GraphWriter* writer,
                      std::vector<commsched_op_id_t>* out_ops) {
  for (const ModuleStep& step : steps) {
    if (!RunsIn(step, context.kind)) continue;
    commsched_op_id_t op = kNoId;
    ENGINE_RETURN_IF_ERROR(AddModuleStep(step, context, writer, &op));
    if (step.is_collective) continue;
    out_ops->push_back(op);
    context.after = op;
  }
  return Status();
}

}  // namespace commsched::engine
