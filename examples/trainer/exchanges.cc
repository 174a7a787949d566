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

// NULL, as the C ABI wants it, if there is nothing.
template <typename T>
const T* DataOf(const std::vector<T>& values) {
  return values.empty() ? nullptr : values.data();
}

// An op without work that reads what has arrived.
ShardedStep WaitFor(const ShardedStep& exchange) {
  ShardedStep op;
  op.name = "wait_" + exchange.name;
  op.reads = {exchange.output};
  return op;
}

const commsched_engine_kernels_t& Kernels() {
  static const commsched_engine_kernels_t kernels =
      commsched_engine_cpu_kernels();
  return kernels;
}

template <commsched_dtype_t kDType>
void Narrow(const float* values, int64_t count, uint16_t* out) {
  Kernels().convert(Kernels().user, commsched_stream_caller(), out, kDType,
                    values, COMMSCHED_F32, static_cast<uint64_t>(count));
}

template <commsched_dtype_t kDType>
void Widen(const uint16_t* values, int64_t count, float* out) {
  Kernels().convert(Kernels().user, commsched_stream_caller(), out,
                    COMMSCHED_F32, values, kDType,
                    static_cast<uint64_t>(count));
}

bool AllEqual(const std::vector<uint64_t>& counts) {
  return std::all_of(counts.begin(), counts.end(),
                     [&](uint64_t count) { return count == counts[0]; });
}

}  // namespace

NarrowFormat NarrowFormatOf(commsched_dtype_t dtype) {
  if (dtype == COMMSCHED_BF16) {
    return {Narrow<COMMSCHED_BF16>, Widen<COMMSCHED_BF16>};
  }
  if (dtype == COMMSCHED_F16) {
    return {Narrow<COMMSCHED_F16>, Widen<COMMSCHED_F16>};
  }
  return {};
}

absl::Status Exchanges::Register(Gpt& gpt, const Setup& setup,
                                 commsched_engine_t* engine) {
  gpt_ = &gpt;
  setup_ = setup;
  engine_ = engine;
  first_op_.resize(static_cast<size_t>(gpt.num_modules()));
  if (gpt.travelling().empty()) return absl::OkStatus();
  TRAINER_RETURN_IF_ERROR(AddBuffers());
  for (int m = 0; m < gpt.num_modules(); ++m) {
    for (const bool backward : {false, true}) {
      first_op_[static_cast<size_t>(m)][backward ? 1 : 0] = num_ops_;
      for (const ShardedStep& step : gpt.steps(m, backward)) {
        if (!step.is_exchange()) {
          TRAINER_RETURN_IF_ERROR(AddOp(m, backward, step));
          continue;
        }
        TRAINER_RETURN_IF_ERROR(AddExchange(m, backward, step));
        if (setup.blocking)
          TRAINER_RETURN_IF_ERROR(AddOp(m, backward, WaitFor(step)));
      }
    }
  }
  return absl::OkStatus();
}

// Ids of activations are the indices of buffers.
absl::Status Exchanges::AddBuffers() {
  TRAINER_RETURN_IF_ERROR(FromEngine(
      commsched_engine_add_group(engine_, "sp", setup_.group, &group_)));
  for (const Travelling& buffer : gpt_->travelling()) {
    commsched_activation_desc_t desc = commsched_activation_desc_init();
    desc.name = buffer.name.c_str();
    desc.dtype = setup_.dtype;
    desc.count = static_cast<uint64_t>(buffer.count);
    desc.address = buffer.sent();
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
  desc.accesses = DataOf(accesses);
  desc.num_accesses = static_cast<uint32_t>(accesses.size());
  desc.parameters = DataOf(parameters);
  desc.num_parameters = static_cast<uint32_t>(parameters.size());
  desc.gradients = DataOf(gradients);
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

// Before the end of `step`, after which their reduction may begin.
void Exchanges::EndGradients(int module, const ShardedStep& step) {
  const int first =
      gpt_->architecture().modules[static_cast<size_t>(module)].owned[0];
  for (int gradient : step.completes) {
    setup_.wide->EndGradient(first + gradient);
  }
}

absl::Status Exchanges::Run(int module, bool backward, uint32_t micro_batch,
                            ParameterView parameters, GradientView gradients,
                            bool compute) {
  commsched_module_op_id_t op =
      first_op_[static_cast<size_t>(module)][backward ? 1 : 0];
  for (const ShardedStep& step : gpt_->steps(module, backward)) {
    if (step.is_exchange() && !setup_.blocking) continue;
    TRAINER_RETURN_IF_ERROR(
        FromEngine(commsched_engine_op_begin(engine_, op, micro_batch)));
    if (compute && !step.is_exchange()) {
      gpt_->RunStep(module, step, parameters, gradients);
      EndGradients(module, step);
    }
    TRAINER_RETURN_IF_ERROR(
        FromEngine(commsched_engine_op_end(engine_, op, micro_batch)));
    ++op;
  }
  return absl::OkStatus();
}

}  // namespace commsched::trainer
