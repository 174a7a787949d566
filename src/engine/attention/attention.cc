#include "engine/attention/attention.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "engine/attention/checks.h"

namespace commsched::engine {
namespace {

constexpr std::align_val_t kMemoryAlignment{kAttentionAlignment};

// Exchanges are on the way to the next op; reductions and gathers can wait.
constexpr int32_t kExchangePriority = 1;

constexpr const char* kBufferNames[] = {
    "q_out",  "k_out", "v_out", "o_out", "do_out", "do_in", "dq_out", "dk_out",
    "dv_out", "dq_in", "dk_in", "dv_in", "q",      "k",     "v",      "o"};

// What a call of the C ABI has just returned on this thread.
Status FromEngine(commsched_status_t code) {
  if (code == COMMSCHED_OK) return Status();
  return Status(code, commsched_last_error());
}

// NULL, as the C ABI wants it, if there is nothing.
template <typename T>
const T* OrNull(const std::vector<T>& values) {
  return values.empty() ? nullptr : values.data();
}

// An op without work that reads what has arrived.
AttentionStep WaitFor(const AttentionStep& exchange) {
  AttentionStep op;
  op.name = "wait_" + exchange.name;
  op.reads = {exchange.output};
  return op;
}

bool AllEqual(const std::vector<uint64_t>& counts) {
  return std::all_of(counts.begin(), counts.end(),
                     [&](uint64_t count) { return count == counts[0]; });
}

}  // namespace

void Attention::FreeMemory::operator()(float* memory) const {
  ::operator delete(memory, kMemoryAlignment);
}

Status Attention::GetInfo(const commsched_attention_desc_t& desc,
                          commsched_attention_info_t* out) {
  AttentionShape shape;
  ENGINE_RETURN_IF_ERROR(ReadShape(desc, &shape));
  const AttentionSteps steps(shape);
  *out = commsched_attention_info_init();
  out->memory_bytes = AttentionMemory(steps, desc.dtype, nullptr).bytes();
  const auto count = [&](bool backward, uint32_t* ops, uint32_t* collectives) {
    for (const AttentionStep& step : steps.of(backward)) {
      if (step.is_exchange()) ++*collectives;
      if (!step.is_exchange() || desc.blocking != 0) ++*ops;
    }
  };
  count(/*backward=*/false, &out->forward_ops, &out->forward_collectives);
  count(/*backward=*/true, &out->backward_ops, &out->backward_collectives);
  return Status();
}

Status Attention::Create(const commsched_attention_desc_t& desc,
                         const commsched_attention_kernels_t& kernels,
                         std::unique_ptr<Attention>* out) {
  AttentionShape shape;
  ENGINE_RETURN_IF_ERROR(ReadShape(desc, &shape));
  ENGINE_RETURN_IF_ERROR(CheckKernels(kernels));
  const uint64_t bytes =
      AttentionMemory(AttentionSteps(shape), desc.dtype, nullptr).bytes();
  ENGINE_RETURN_IF_ERROR(CheckMemory(desc, bytes));
  Memory owned;
  auto* base = static_cast<float*>(desc.memory);
  if (base == nullptr) {
    owned.reset(static_cast<float*>(::operator new(bytes, kMemoryAlignment)));
    base = owned.get();
  }
  std::memset(base, 0, bytes);
  out->reset(new Attention(shape, desc, kernels, std::move(owned), base));
  return Status();
}

Attention::Attention(const AttentionShape& shape,
                     const commsched_attention_desc_t& desc,
                     const commsched_attention_kernels_t& kernels, Memory owned,
                     float* base)
    : steps_(shape),
      dtype_(desc.dtype),
      blocking_(desc.blocking != 0),
      kernels_(kernels),
      owned_(std::move(owned)),
      memory_(steps_, dtype_, base),
      compute_(steps_, memory_, dtype_, kernels_) {}

Status Attention::Register(
    commsched_model_t* model, const char* axis, commsched_group_t* group,
    const std::vector<commsched_attention_layer_t>& layers) {
  const AttentionShape& shape = steps_.shape();
  if (model_ != nullptr) {
    return FailedPrecondition("attention: it is registered already");
  }
  if (static_cast<int64_t>(layers.size()) != shape.layers) {
    return InvalidArgument(
        "attention: num_layers is " + std::to_string(layers.size()) +
        "; the description has " + std::to_string(shape.layers));
  }
  if (commsched_group_size(group) != shape.ranks ||
      commsched_group_rank(group) != shape.rank) {
    return InvalidArgument(
        "attention: this is rank " +
        std::to_string(commsched_group_rank(group)) + " of a group of " +
        std::to_string(commsched_group_size(group)) +
        "; the description says rank " + std::to_string(shape.rank) + " of " +
        std::to_string(shape.ranks));
  }
  model_ = model;
  ENGINE_RETURN_IF_ERROR(
      FromEngine(commsched_model_add_group(model, axis, shape.ranks, &group_)));
  ENGINE_RETURN_IF_ERROR(AddActivations(layers));
  layers_.resize(layers.size());
  for (size_t l = 0; l < layers.size(); ++l) {
    for (const bool backward : {false, true}) {
      ENGINE_RETURN_IF_ERROR(AddDirection(layers[l], static_cast<int64_t>(l),
                                          backward,
                                          &layers_[l][backward ? 1 : 0]));
    }
  }
  return Status();
}

Status Attention::AddActivations(
    const std::vector<commsched_attention_layer_t>& layers) {
  const std::vector<AttentionMemory::Piece>& pieces = memory_.pieces();
  for (size_t i = 0; i < pieces.size(); ++i) {
    std::string name;
    size_t buffer = i;
    if (i >= kSharedBuffers) {
      const size_t layer = (i - kSharedBuffers) / kLayerBuffers;
      buffer = kSharedBuffers + (i - kSharedBuffers) % kLayerBuffers;
      if (!steps_.shape().recompute) {
        if (layers[layer].name == nullptr) {
          return InvalidArgument("attention: the name of layer " +
                                 std::to_string(layer) + " is NULL");
        }
        name = std::string(layers[layer].name) + ".";
      }
    }
    name += kBufferNames[buffer];
    commsched_activation_desc_t desc = commsched_activation_desc_init();
    desc.name = name.c_str();
    desc.dtype = dtype_;
    desc.count = static_cast<uint64_t>(pieces[i].count);
    desc.address = pieces[i].sent;
    commsched_activation_id_t id = 0;
    ENGINE_RETURN_IF_ERROR(
        FromEngine(commsched_model_add_activation(model_, &desc, &id)));
    if (i == 0) first_activation_ = id;
  }
  return Status();
}

Status Attention::AddDirection(const commsched_attention_layer_t& layer,
                               int64_t index, bool backward, Direction* out) {
  const std::vector<AttentionStep>& steps = steps_.of(backward);
  out->completes = CompletionsOf(layer, steps);
  bool first = true;
  const auto add = [&](const AttentionStep& op) -> Status {
    ENGINE_RETURN_IF_ERROR(AddOp(layer, index, backward, op));
    if (std::exchange(first, false)) out->first_op = last_op_;
    return Status();
  };
  for (const AttentionStep& step : steps) {
    if (!step.is_exchange()) {
      ENGINE_RETURN_IF_ERROR(add(step));
      continue;
    }
    ENGINE_RETURN_IF_ERROR(AddExchange(layer, index, backward, step));
    if (blocking_) ENGINE_RETURN_IF_ERROR(add(WaitFor(step)));
  }
  return Status();
}

Status Attention::AddOp(const commsched_attention_layer_t& layer, int64_t index,
                        bool backward, const AttentionStep& step) {
  const ParameterIds parameters = ParametersOf(layer, step);
  const ParameterIds gradients = GradientsOf(layer, step);
  std::vector<commsched_access_t> accesses;
  for (const AttentionRegion& region : step.reads) {
    accesses.push_back(AccessTo(region, index, COMMSCHED_READ));
  }
  for (const AttentionRegion& region : step.writes) {
    accesses.push_back(AccessTo(region, index, COMMSCHED_WRITE));
  }
  commsched_module_op_desc_t desc = commsched_module_op_desc_init();
  desc.name = step.name.c_str();
  desc.accesses = OrNull(accesses);
  desc.num_accesses = static_cast<uint32_t>(accesses.size());
  desc.parameters = OrNull(parameters);
  desc.num_parameters = static_cast<uint32_t>(parameters.size());
  desc.gradients = OrNull(gradients);
  desc.num_gradients = static_cast<uint32_t>(gradients.size());
  desc.backward = backward ? 1 : 0;
  desc.flops = step.flops;
  return FromEngine(
      commsched_model_add_op(model_, layer.module, &desc, &last_op_));
}

Status Attention::AddExchange(const commsched_attention_layer_t& layer,
                              int64_t index, bool backward,
                              const AttentionStep& step) {
  commsched_module_collective_desc_t desc =
      commsched_module_collective_desc_init();
  desc.name = step.name.c_str();
  desc.kind = COMMSCHED_ALL_TO_ALL;
  desc.group = group_;
  desc.input = AccessTo(step.input, index, COMMSCHED_READ);
  desc.output = AccessTo(step.output, index, COMMSCHED_WRITE);
  desc.backward = backward ? 1 : 0;
  desc.priority = kExchangePriority;
  if (!AllEqual(step.counts)) {
    desc.counts = step.counts.data();
    desc.num_counts = static_cast<uint32_t>(step.counts.size());
  }
  return FromEngine(
      commsched_model_add_collective(model_, layer.module, &desc));
}

commsched_access_t Attention::AccessTo(const AttentionRegion& region,
                                       int64_t layer,
                                       commsched_access_mode_t mode) const {
  commsched_access_t access = {};
  access.buffer = first_activation_ +
                  static_cast<uint32_t>(memory_.IndexOf(region.buffer, layer));
  access.mode = mode;
  access.region = region.rows == 1 ? COMMSCHED_RANGE : COMMSCHED_TILE;
  access.offset = static_cast<uint64_t>(region.offset);
  access.count = static_cast<uint64_t>(region.columns);
  if (region.rows == 1) return access;
  access.rows = static_cast<uint64_t>(region.rows);
  access.stride = static_cast<uint64_t>(region.stride);
  return access;
}

Status Attention::Run(commsched_engine_t* engine, uint32_t layer, bool backward,
                      uint32_t micro_batch,
                      const commsched_attention_block_t* block) {
  if (layers_.empty()) {
    return FailedPrecondition("attention: it is not registered");
  }
  if (layer >= layers_.size()) {
    return InvalidArgument("attention: layer is " + std::to_string(layer) +
                           "; there are " + std::to_string(layers_.size()));
  }
  if (block != nullptr) ENGINE_RETURN_IF_ERROR(CheckBlock(*block, backward));
  const Direction& direction = layers_[layer][backward ? 1 : 0];
  const std::vector<AttentionStep>& steps = steps_.of(backward);
  commsched_module_op_id_t op = direction.first_op;
  for (size_t s = 0; s < steps.size(); ++s) {
    if (steps[s].is_exchange() && !blocking_) continue;
    ENGINE_RETURN_IF_ERROR(
        FromEngine(commsched_engine_op_begin(engine, op, micro_batch)));
    if (block != nullptr && !steps[s].is_exchange()) {
      ENGINE_RETURN_IF_ERROR(
          RunOp(layer, steps[s], direction.completes[s], *block));
    }
    ENGINE_RETURN_IF_ERROR(
        FromEngine(commsched_engine_op_end(engine, op, micro_batch)));
    ++op;
  }
  return Status();
}

Status Attention::RunOp(uint32_t layer, const AttentionStep& step,
                        const ParameterIds& completes,
                        const commsched_attention_block_t& block) {
  ENGINE_RETURN_IF_ERROR(compute_.Run(layer, step, block));
  if (kernels_.gradient_complete == nullptr) return Status();
  for (commsched_parameter_id_t id : completes) {
    ENGINE_RETURN_IF_ERROR(
        FromEngine(kernels_.gradient_complete(kernels_.user, id)));
  }
  return Status();
}

}  // namespace commsched::engine
