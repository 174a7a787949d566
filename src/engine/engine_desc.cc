#include "engine_desc.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include "engine/tables/optimizer_table.h"
#include "engine/update/loss_scale.h"

namespace commsched::engine {
namespace {

// A power of two, so that to multiply by it and to divide by it is exact.
Status CheckLossScale(const commsched_engine_desc_t& desc) {
  const float scale = desc.loss_scale;
  int exponent = 0;
  if (scale == 0 || (scale >= kMinLossScale && scale <= kMaxLossScale &&
                     std::frexp(scale, &exponent) == 0.5f)) {
    return Status();
  }
  return InvalidArgument("engine: loss_scale is " + std::to_string(scale) +
                         "; it must be 0 or a power of two from 1 to 2^24");
}

Status CheckPool(const commsched_engine_desc_t& desc) {
  const commsched_pool_t* const pool = desc.optimizer_pool;
  if (pool == nullptr) {
    if (desc.offload_staging_bytes == 0) return Status();
    return InvalidArgument("engine: offload_staging_bytes is " +
                           std::to_string(desc.offload_staging_bytes) +
                           " without optimizer_pool");
  }
  const char* missing = nullptr;
  if (pool->write == nullptr) missing = "write";
  if (pool->read == nullptr) missing = "read";
  if (pool->reserve == nullptr) missing = "reserve";
  if (missing == nullptr) return Status();
  return InvalidArgument(std::string("engine: optimizer_pool.") + missing +
                         " is NULL");
}

Status CheckAllocator(const commsched_engine_desc_t& desc) {
  const commsched_engine_memory_t* const memory = desc.memory;
  if (memory == nullptr) return Status();
  if ((memory->allocate == nullptr) == (memory->release == nullptr) &&
      (memory->allocate_host == nullptr) == (memory->release_host == nullptr)) {
    return Status();
  }
  return InvalidArgument(
      "engine: memory has a function to allocate without one to release, or "
      "the other way round");
}

Status CheckComputeStream(const commsched_engine_desc_t& desc) {
  const commsched_stream_kind_t kind = desc.compute_stream.kind;
  if (kind == COMMSCHED_STREAM_CALLER ||
      (kind == COMMSCHED_STREAM_CUDA && IsOnDevice(desc))) {
    return Status();
  }
  return InvalidArgument(
      "engine: compute_stream is of kind " + std::to_string(kind) +
      "; on this rank's device it may be " +
      (IsOnDevice(desc) ? "CUDA (2) or CALLER (0)" : "CALLER (0) only"));
}

// What works on the host only.
Status CheckDevice(const commsched_engine_desc_t& desc) {
  const char* field = nullptr;
  if (desc.optimizer_pool != nullptr) field = "optimizer_pool";
  if (desc.measure_steps != 0) field = "measure_steps";
  if (field == nullptr || !IsOnDevice(desc)) return Status();
  return Status(COMMSCHED_UNIMPLEMENTED,
                std::string("engine: ") + field +
                    " is set for a rank that computes on a device, where it is "
                    "not there yet");
}

// "1e-07"
std::string TextOf(float value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", static_cast<double>(value));
  return text;
}

// Where others hold other parts of the model, as in tensor parallelism, a norm
// of the engine's own group would let one half skip what the other steps.
Status CheckNormOfGroup(const commsched_engine_desc_t& desc) {
  const int32_t size = commsched_group_size(desc.group);
  const int32_t world = commsched_context_world_size(desc.context);
  std::string field;
  if (desc.norm != 0) field = "norm is 1";
  if (desc.check_finite != 0) field = "check_finite is 1";
  if (desc.loss_scale > 0) {
    field = "loss_scale is " + TextOf(desc.loss_scale);
  }
  if (desc.clip_norm > 0) {
    field = "clip_norm is " + TextOf(desc.clip_norm);
  }
  if (size == world || field.empty() || desc.norm_group != nullptr) {
    return Status();
  }
  return InvalidArgument(
      "engine: " + field + ", and group has " + std::to_string(size) + " of " +
      std::to_string(world) +
      " ranks: other groups could clip differently, or take a step that this "
      "one skips. Set norm_group to the ranks that hold the other parts of the "
      "model, or to this rank alone if there are none");
}

// Each element is counted once only if no other rank is in both.
Status CheckNormGroup(const commsched_engine_desc_t& desc) {
  if (desc.norm_group == nullptr) return Status();
  const int32_t self = commsched_context_rank(desc.context);
  for (int32_t i = 0; i < commsched_group_size(desc.group); ++i) {
    const int32_t rank = commsched_group_world_rank(desc.group, i);
    for (int32_t j = 0; j < commsched_group_size(desc.norm_group); ++j) {
      if (commsched_group_world_rank(desc.norm_group, j) != rank ||
          rank == self) {
        continue;
      }
      return InvalidArgument("engine: rank " + std::to_string(rank) +
                             " is in group and in norm_group of rank " +
                             std::to_string(self) +
                             "; its gradients would count twice");
    }
  }
  return Status();
}

// The plan says it; whatever else stands here would be of no effect.
Status CheckSaidOnce(const commsched_engine_desc_t& desc) {
  const struct {
    const char* field;
    bool is_set;
  } fields[] = {
      {"zero_stage", desc.zero_stage != 0},
      {"micro_batches", desc.micro_batches != 0},
      {"bucket_bytes", desc.bucket_bytes != 0},
      {"edge_bucket_bytes", desc.edge_bucket_bytes != 0},
      {"bucket_merge", desc.bucket_merge != 0},
      {"plan", desc.plan != nullptr},
      {"profile", desc.profile != nullptr},
      {"max_live_bytes", desc.max_live_bytes != 0},
      {"persist_below", desc.persist_below != 0},
      {"accumulate_bytes", desc.accumulate_bytes != 0},
      {"prefetch_bytes", desc.prefetch_bytes != 0},
      {"offload_staging_bytes", desc.offload_staging_bytes != 0},
      {"parameter_dtype", desc.parameter_dtype != 0},
      {"reduce_dtype", desc.reduce_dtype != 0},
      {"check_finite", desc.check_finite != 0},
      {"norm", desc.norm != 0},
      {"option_sets", desc.option_sets != 0},
      {"gradient_ready", desc.gradient_ready != 0},
      {"absent_gradients", desc.absent_gradients != 0},
      {"cancel_all", desc.cancel_all != 0},
  };
  for (const auto& [field, is_set] : fields) {
    if (!is_set) continue;
    return InvalidArgument(std::string("engine: ") + field +
                           " is set beside step_plan, which says it");
  }
  return Status();
}

Status Differs(const char* field, const std::string& value,
               const std::string& planned) {
  return InvalidArgument(std::string("engine: ") + field + " is " + value +
                         "; the step plan is for " + planned);
}

}  // namespace

bool IsOnDevice(const commsched_engine_desc_t& desc) {
  return commsched_context_device(desc.context, nullptr) !=
         COMMSCHED_DEVICE_HOST;
}

Status CheckEngineDesc(const commsched_engine_desc_t& desc) {
  if (desc.context == nullptr)
    return InvalidArgument("engine: context is NULL");
  if (desc.group == nullptr) return InvalidArgument("engine: group is NULL");
  if (desc.model == nullptr && desc.step_plan == nullptr) {
    return InvalidArgument("engine: model is NULL");
  }
  if (desc.launch_timeout_ns < 0) {
    return InvalidArgument("engine: launch_timeout_ns is " +
                           std::to_string(desc.launch_timeout_ns) +
                           "; it must be 0 or more");
  }
  if (desc.optimizer != nullptr) {
    ENGINE_RETURN_IF_ERROR(CheckOptimizerTable(*desc.optimizer));
  }
  ENGINE_RETURN_IF_ERROR(CheckLossScale(desc));
  ENGINE_RETURN_IF_ERROR(CheckPool(desc));
  ENGINE_RETURN_IF_ERROR(CheckAllocator(desc));
  ENGINE_RETURN_IF_ERROR(CheckComputeStream(desc));
  ENGINE_RETURN_IF_ERROR(CheckDevice(desc));
  ENGINE_RETURN_IF_ERROR(CheckNotNegative("weight_decay", desc.weight_decay));
  ENGINE_RETURN_IF_ERROR(CheckNotNegative("clip_norm", desc.clip_norm));
  ENGINE_RETURN_IF_ERROR(CheckNormGroup(desc));
  return CheckNormOfGroup(desc);
}

Status CheckStepPlan(const commsched_engine_desc_t& desc,
                     const PlannedRole& planned) {
  ENGINE_RETURN_IF_ERROR(CheckSaidOnce(desc));
  const StepSpec& spec = planned.options->spec();
  if (desc.model != nullptr) {
    return InvalidArgument(
        "engine: model is set beside step_plan, which has one");
  }
  const int32_t ranks = commsched_group_size(desc.group);
  if (ranks != spec.world) {
    return Differs("the size of group", std::to_string(ranks),
                   std::to_string(spec.world));
  }
  if (desc.clip_norm > 0 && !spec.clip) {
    return Differs("clip_norm", TextOf(desc.clip_norm), "no clipping");
  }
  if ((desc.loss_scale > 0) != spec.scales_loss) {
    return Differs("loss_scale", TextOf(desc.loss_scale),
                   spec.scales_loss ? "one" : "none");
  }
  const int32_t members =
      desc.norm_group == nullptr ? 1 : commsched_group_size(desc.norm_group);
  if (members != spec.norm_members) {
    return Differs("the size of norm_group", std::to_string(members),
                   std::to_string(spec.norm_members));
  }
  const Optimizer optimizer(desc.optimizer);
  if (std::strcmp(optimizer.name(), spec.optimizer) != 0 ||
      optimizer.table().state_values != spec.moments) {
    return Differs("optimizer",
                   std::string("'") + optimizer.name() + "' with " +
                       std::to_string(optimizer.table().state_values) +
                       " values per weight",
                   std::string("'") + spec.optimizer + "' with " +
                       std::to_string(spec.moments));
  }
  if ((desc.optimizer_pool != nullptr) !=
      (planned.options->given().offloads != 0)) {
    return Differs("optimizer_pool",
                   desc.optimizer_pool == nullptr ? "NULL" : "set",
                   spec.offloads ? "one" : "none");
  }
  return Status();
}

commsched_step_plan_options_t StepOptionsOf(const commsched_engine_desc_t& desc,
                                            commsched_plan_options_t* plan) {
  *plan = desc.plan == nullptr ? commsched_plan_options_init() : *desc.plan;
  // Whatever a caller says, this is what its plans run on.
  plan->backend = commsched_context_backend(desc.context);
  // None of its collectives is lossy.
  plan->host_of_rank = nullptr;
  plan->num_ranks = 0;
  commsched_step_plan_options_t options = commsched_step_plan_options_init();
  options.zero_stage = desc.zero_stage;
  options.micro_batches = desc.micro_batches;
  options.bucket_bytes = desc.bucket_bytes;
  options.edge_bucket_bytes = desc.edge_bucket_bytes;
  options.max_live_bytes = desc.max_live_bytes;
  options.persist_below = desc.persist_below;
  options.accumulate_bytes = desc.accumulate_bytes;
  options.prefetch_bytes = desc.prefetch_bytes;
  options.offload_staging_bytes = desc.offload_staging_bytes;
  options.bucket_merge = desc.bucket_merge;
  options.parameter_dtype = desc.parameter_dtype;
  options.reduce_dtype = desc.reduce_dtype;
  options.clips = desc.clip_norm > 0 ? 1 : 0;
  options.scales_loss = desc.loss_scale > 0 ? 1 : 0;
  options.check_finite = desc.check_finite;
  options.norm = desc.norm;
  if (desc.norm_group != nullptr) {
    options.norm_members =
        static_cast<uint32_t>(commsched_group_size(desc.norm_group));
  }
  options.option_sets = desc.option_sets;
  options.gradient_ready = desc.gradient_ready;
  options.absent_gradients = desc.absent_gradients;
  options.cancel_all = desc.cancel_all;
  options.offloads = desc.optimizer_pool != nullptr ? 1 : 0;
  options.optimizer = desc.optimizer;
  options.plan = plan;
  options.profile = desc.profile;
  return options;
}

commsched_engine_desc_t WithDefaults(commsched_engine_desc_t desc,
                                     const StepOptions& options) {
  const commsched_step_plan_options_t& given = options.given();
  desc.zero_stage = given.zero_stage;
  desc.micro_batches = given.micro_batches;
  desc.bucket_bytes = given.bucket_bytes;
  desc.edge_bucket_bytes = given.edge_bucket_bytes;
  desc.max_live_bytes = given.max_live_bytes;
  desc.persist_below = given.persist_below;
  desc.accumulate_bytes = given.accumulate_bytes;
  desc.prefetch_bytes = given.prefetch_bytes;
  desc.offload_staging_bytes = given.offload_staging_bytes;
  desc.bucket_merge = given.bucket_merge;
  desc.parameter_dtype = given.parameter_dtype;
  desc.reduce_dtype = given.reduce_dtype;
  desc.check_finite = given.check_finite;
  desc.norm = given.norm;
  desc.option_sets = given.option_sets;
  desc.gradient_ready = given.gradient_ready;
  desc.absent_gradients = given.absent_gradients;
  desc.cancel_all = given.cancel_all;
  if (desc.loss_scale_window == 0) {
    desc.loss_scale_window = kDefaultLossScaleWindow;
  }
  if (desc.max_skipped_steps == 0) {
    desc.max_skipped_steps = kDefaultMaxSkippedSteps;
  }
  desc.model = nullptr;
  desc.step_plan = nullptr;
  desc.plan = nullptr;
  desc.profile = nullptr;
  desc.kernels = nullptr;
  desc.memory = nullptr;
  desc.optimizer = nullptr;
  desc.optimizer_pool = nullptr;
  desc.observers = nullptr;
  desc.flight_path = nullptr;
  desc.groups = nullptr;
  return desc;
}

}  // namespace commsched::engine
