#include "examples/trainer/exchanges.h"

#include <algorithm>

#include "examples/trainer/c_status.h"
#include "examples/trainer/status_macros.h"

namespace commsched::trainer {
namespace {

// Exchanges are on the way to the next op; reductions and gathers can wait.
constexpr int32_t kExchangePriority = 1;

commsched_access_t AccessTo(const TravellingRegion& region,
                            commsched_access_mode_t mode) {
  commsched_access_t access = {};
  access.buffer = static_cast<uint32_t>(region.buffer);
  access.mode = mode;
  access.region = region.rows == 1 ? COMMSCHED_RANGE : COMMSCHED_TILE;
  access.offset = static_cast<uint64_t>(region.offset);
  access.count = static_cast<uint64_t>(region.columns);
  if (region.rows == 1) return access;
  access.rows = static_cast<uint64_t>(region.rows);
  access.stride = static_cast<uint64_t>(region.stride);
  return access;
}

std::vector<commsched_parameter_id_t> IdsFrom(int first,
                                              const std::vector<int>& counted) {
  std::vector<commsched_parameter_id_t> ids;
  for (int each : counted) {
    ids.push_back(static_cast<commsched_parameter_id_t>(first + each));
  }
  return ids;
}

// An op without work that reads what has arrived.
ShardedStep WaitFor(const ShardedStep& exchange) {
  ShardedStep op;
  op.name = "wait_" + exchange.name;
  op.reads = {exchange.output};
  return op;
}

bool AllEqual(const std::vector<uint64_t>& counts) {
  return std::all_of(counts.begin(), counts.end(),
                     [&](uint64_t count) { return count == counts[0]; });
}

}  // namespace

absl::Status Exchanges::Register(Gpt& gpt, bool blocking,
                                 commsched_group_t* group,
                                 commsched_engine_t* engine) {
  gpt_ = &gpt;
  blocking_ = blocking;
  engine_ = engine;
  first_op_.resize(static_cast<size_t>(gpt.num_modules()));
  if (gpt.travelling().empty()) return absl::OkStatus();
  TRAINER_RETURN_IF_ERROR(AddBuffers(group));
  for (int m = 0; m < gpt.num_modules(); ++m) {
    for (const bool backward : {false, true}) {
      first_op_[static_cast<size_t>(m)][backward ? 1 : 0] = num_ops_;
      for (const ShardedStep& step : gpt.steps(m, backward)) {
        if (!step.is_exchange()) {
          TRAINER_RETURN_IF_ERROR(AddOp(m, backward, step));
          continue;
        }
        TRAINER_RETURN_IF_ERROR(AddExchange(m, backward, step));
        if (blocking)
          TRAINER_RETURN_IF_ERROR(AddOp(m, backward, WaitFor(step)));
      }
    }
  }
  return absl::OkStatus();
}

// Ids of activations are the indices of buffers.
absl::Status Exchanges::AddBuffers(commsched_group_t* group) {
  TRAINER_RETURN_IF_ERROR(
      FromEngine(commsched_engine_add_group(engine_, "sp", group, &group_)));
  for (const Travelling& buffer : gpt_->travelling()) {
    commsched_activation_desc_t desc = commsched_activation_desc_init();
    desc.name = buffer.name.c_str();
    desc.dtype = COMMSCHED_F32;
    desc.count = static_cast<uint64_t>(buffer.count);
    desc.address = buffer.data;
    commsched_activation_id_t id = 0;
    TRAINER_RETURN_IF_ERROR(
        FromEngine(commsched_engine_add_activation(engine_, &desc, &id)));
  }
  return absl::OkStatus();
}

absl::Status Exchanges::AddOp(int module, bool backward,
                              const ShardedStep& step) {
  const int first =
      gpt_->architecture().modules[static_cast<size_t>(module)].owned[0];
  const std::vector<commsched_parameter_id_t> parameters =
      IdsFrom(first, step.parameters);
  const std::vector<commsched_parameter_id_t> gradients =
      IdsFrom(first, step.gradients);
  std::vector<commsched_access_t> accesses;
  for (const TravellingRegion& region : step.reads) {
    accesses.push_back(AccessTo(region, COMMSCHED_READ));
  }
  for (const TravellingRegion& region : step.writes) {
    accesses.push_back(AccessTo(region, COMMSCHED_WRITE));
  }
  commsched_module_op_desc_t desc = commsched_module_op_desc_init();
  desc.name = step.name.c_str();
  desc.accesses = accesses.data();
  desc.num_accesses = static_cast<uint32_t>(accesses.size());
  desc.parameters = parameters.data();
  desc.num_parameters = static_cast<uint32_t>(parameters.size());
  desc.gradients = gradients.data();
  desc.num_gradients = static_cast<uint32_t>(gradients.size());
  desc.backward = backward ? 1 : 0;
  desc.flops = step.flops;
  commsched_module_op_id_t id = 0;
  TRAINER_RETURN_IF_ERROR(FromEngine(commsched_engine_add_op(
      engine_, static_cast<uint32_t>(module), &desc, &id)));
  num_ops_ = id + 1;
  return absl::OkStatus();
}

absl::Status Exchanges::AddExchange(int module, bool backward,
                                    const ShardedStep& step) {
  commsched_module_collective_desc_t desc =
      commsched_module_collective_desc_init();
  desc.name = step.name.c_str();
  desc.kind = COMMSCHED_ALL_TO_ALL;
  desc.group = group_;
  desc.input = AccessTo(step.input, COMMSCHED_READ);
  desc.output = AccessTo(step.output, COMMSCHED_WRITE);
  desc.backward = backward ? 1 : 0;
  desc.priority = kExchangePriority;
  if (!AllEqual(step.counts)) {
    desc.counts = step.counts.data();
    desc.num_counts = static_cast<uint32_t>(step.counts.size());
  }
  return FromEngine(commsched_engine_add_collective(
      engine_, static_cast<uint32_t>(module), &desc));
}

absl::Status Exchanges::Run(int module, bool backward, uint32_t micro_batch,
                            ParameterView parameters, GradientView gradients,
                            bool compute) {
  commsched_module_op_id_t op =
      first_op_[static_cast<size_t>(module)][backward ? 1 : 0];
  for (const ShardedStep& step : gpt_->steps(module, backward)) {
    if (step.is_exchange() && !blocking_) continue;
    TRAINER_RETURN_IF_ERROR(
        FromEngine(commsched_engine_op_begin(engine_, op, micro_batch)));
    if (compute && !step.is_exchange()) {
      gpt_->RunStep(module, step, parameters, gradients);
    }
    TRAINER_RETURN_IF_ERROR(
        FromEngine(commsched_engine_op_end(engine_, op, micro_batch)));
    ++op;
  }
  return absl::OkStatus();
}

}  // namespace commsched::trainer
