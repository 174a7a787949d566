#include "engine_desc.h"

#include <cmath>
#include <cstdio>
#include <string>

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

Status CheckPool(const char* field, const commsched_pool_t* pool) {
  if (pool == nullptr) return Status();
  const char* missing = nullptr;
  if (pool->write == nullptr) missing = "write";
  if (pool->read == nullptr) missing = "read";
  if (pool->reserve == nullptr) missing = "reserve";
  if (missing == nullptr) return Status();
  return InvalidArgument(std::string("engine: ") + field + "." + missing +
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
  if (desc.gradient_pool != nullptr) field = "gradient_pool";
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
Status CheckNormOfGroup(const commsched_engine_desc_t& desc,
                        const StepSpec& spec) {
  const int32_t size = commsched_group_size(desc.group);
  const int32_t world = commsched_context_world_size(desc.context);
  std::string field;
  if (spec.reads_norm) field = "norm is 1";
  if (spec.check_finite) field = "check_finite is 1";
  if (spec.scales_loss) field = "loss_scale is " + TextOf(desc.loss_scale);
  if (spec.clip) field = "clip_norm is " + TextOf(desc.clip_norm);
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
  if (desc.context == nullptr) {
    return InvalidArgument("engine: context is NULL");
  }
  if (desc.group == nullptr) return InvalidArgument("engine: group is NULL");
  if (desc.step_plan == nullptr) {
    return InvalidArgument("engine: step_plan is NULL");
  }
  if (desc.launch_timeout_ns < 0) {
    return InvalidArgument("engine: launch_timeout_ns is " +
                           std::to_string(desc.launch_timeout_ns) +
                           "; it must be 0 or more");
  }
  ENGINE_RETURN_IF_ERROR(CheckLossScale(desc));
  ENGINE_RETURN_IF_ERROR(CheckPool("optimizer_pool", desc.optimizer_pool));
  ENGINE_RETURN_IF_ERROR(CheckPool("gradient_pool", desc.gradient_pool));
  ENGINE_RETURN_IF_ERROR(CheckAllocator(desc));
  ENGINE_RETURN_IF_ERROR(CheckComputeStream(desc));
  ENGINE_RETURN_IF_ERROR(CheckDevice(desc));
  ENGINE_RETURN_IF_ERROR(CheckNotNegative("weight_decay", desc.weight_decay));
  ENGINE_RETURN_IF_ERROR(CheckNotNegative("clip_norm", desc.clip_norm));
  return CheckNormGroup(desc);
}

Status CheckFitsStepPlan(const commsched_engine_desc_t& desc,
                         const StepOptions& planned) {
  const StepSpec& spec = planned.spec();
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
  const bool offloads = planned.given().offloads != 0;
  if ((desc.optimizer_pool != nullptr) != offloads) {
    return Differs("optimizer_pool",
                   desc.optimizer_pool == nullptr ? "NULL" : "set",
                   offloads ? "one" : "none");
  }
  if ((desc.gradient_pool != nullptr) != spec.offloads_gradients) {
    return Differs("gradient_pool",
                   desc.gradient_pool == nullptr ? "NULL" : "set",
                   spec.offloads_gradients ? "one" : "none");
  }
  return CheckNormOfGroup(desc, spec);
}

commsched_engine_desc_t WithDefaults(commsched_engine_desc_t desc) {
  if (desc.loss_scale_window == 0) {
    desc.loss_scale_window = kDefaultLossScaleWindow;
  }
  if (desc.max_skipped_steps == 0) {
    desc.max_skipped_steps = kDefaultMaxSkippedSteps;
  }
  desc.step_plan = nullptr;
  desc.kernels = nullptr;
  desc.memory = nullptr;
  desc.optimizer_pool = nullptr;
  desc.gradient_pool = nullptr;
  desc.observers = nullptr;
  desc.flight_path = nullptr;
  desc.groups = nullptr;
  return desc;
}

}  // namespace commsched::engine
