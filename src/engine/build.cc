// Creation and registration.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "engine.h"
#include "engine/tables/kernels.h"
#include "engine/update/loss_scale.h"

namespace commsched::engine {
namespace {

constexpr uint64_t kDefaultBucketBytes = uint64_t{25} << 20;

// The description with the documented meaning of 0 put in.
commsched_engine_desc_t WithDefaults(commsched_engine_desc_t desc) {
  if (desc.micro_batches == 0) desc.micro_batches = 1;
  if (desc.bucket_merge == COMMSCHED_BUCKET_MERGE_AUTO) {
    desc.bucket_merge = desc.bucket_bytes == 0 && desc.profile != nullptr
                            ? COMMSCHED_BUCKET_MERGE_ON
                            : COMMSCHED_BUCKET_MERGE_OFF;
  }
  if (desc.bucket_bytes == 0) desc.bucket_bytes = kDefaultBucketBytes;
  if (desc.loss_scale_window == 0) {
    desc.loss_scale_window = kDefaultLossScaleWindow;
  }
  if (desc.max_skipped_steps == 0) {
    desc.max_skipped_steps = kDefaultMaxSkippedSteps;
  }
  // The engine has copies.
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

std::string CopyOfName(const char* name) { return name == nullptr ? "" : name; }

// With the copies of its names, where it has names: an empty one is a name.
commsched_plan_options_t CorePlanOptions(const commsched_engine_desc_t& desc,
                                         const std::string& policy,
                                         const std::string& codec) {
  commsched_plan_options_t options =
      desc.plan == nullptr ? commsched_plan_options_init() : *desc.plan;
  if (options.policy != nullptr) options.policy = policy.c_str();
  if (options.codec != nullptr) options.codec = codec.c_str();
  // Whatever a caller says, this is what its plans run on.
  options.backend = commsched_context_backend(desc.context);
  // None of its collectives is lossy.
  options.host_of_rank = nullptr;
  options.num_ranks = 0;
  return options;
}

commsched_cost_profile_t Profile(const commsched_cost_profile_t* given) {
  return given == nullptr ? commsched_cost_profile_init() : *given;
}

commsched_engine_kernels_t KernelTable(
    const commsched_engine_kernels_t* given) {
  return given == nullptr ? commsched_engine_kernels_init() : *given;
}

commsched_engine_memory_t MemoryTable(const commsched_engine_memory_t* given) {
  return given == nullptr ? commsched_engine_memory_init() : *given;
}

bool IsOnDevice(const commsched_engine_desc_t& desc) {
  return commsched_context_device(desc.context, nullptr) !=
         COMMSCHED_DEVICE_HOST;
}

commsched_pool_t Pool(const commsched_pool_t* given) {
  return given == nullptr ? commsched_pool_init() : *given;
}

Precision MakePrecision(const commsched_engine_desc_t& desc) {
  const auto dtype = [](uint32_t value) {
    return static_cast<commsched_dtype_t>(value);
  };
  return {.parameters = dtype(desc.parameter_dtype),
          .reduced = dtype(desc.reduce_dtype)};
}

StepSpec MakeSpec(const commsched_engine_desc_t& desc,
                  const Optimizer& optimizer,
                  const commsched_plan_options_t& plan, bool has_pool) {
  StepSpec spec;
  spec.zero_stage = desc.zero_stage;
  spec.micro_batches = desc.micro_batches;
  spec.world = commsched_group_size(desc.group);
  spec.clip = desc.clip_norm > 0;
  spec.scales_loss = desc.loss_scale > 0;
  spec.check_finite = desc.check_finite != 0;
  spec.reads_norm = desc.norm != 0;
  if (desc.norm_group != nullptr) {
    spec.norm_members = commsched_group_size(desc.norm_group);
  }
  spec.option_sets = desc.option_sets;
  spec.deterministic = plan.deterministic != 0;
  spec.optimizer = optimizer.name();
  spec.optimizer_state = optimizer.memory_name();
  spec.moments = optimizer.table().state_values;
  spec.precision = MakePrecision(desc);
  spec.gradient_ready = desc.gradient_ready != 0;
  spec.offloads = has_pool && spec.state_values() > 0;
  return spec;
}

// Groups of an axis have no rank in common: the first tells them apart.
std::string SliceOf(const commsched_engine_desc_t& desc) {
  const int32_t size = commsched_group_size(desc.group);
  if (size == commsched_context_world_size(desc.context)) return "";
  int32_t first = std::numeric_limits<int32_t>::max();
  for (int32_t rank = 0; rank < size; ++rank) {
    first = std::min(first, commsched_group_world_rank(desc.group, rank));
  }
  return DefaultSlice(commsched_group_axis(desc.group), first);
}

Status CheckDType(const char* field, uint32_t value) {
  if (value == COMMSCHED_F32 || value == COMMSCHED_F16 ||
      value == COMMSCHED_BF16) {
    return Status();
  }
  return InvalidArgument(std::string("engine: ") + field + " is " +
                         std::to_string(value) +
                         "; it must be F32 (0), F16 (2) or BF16 (3)");
}

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

Status CheckStage3(const char* field, uint64_t value, uint32_t stage) {
  if (value == 0 || stage == 3) return Status();
  return InvalidArgument(std::string("engine: ") + field + " is " +
                         std::to_string(value) + " with zero_stage " +
                         std::to_string(stage) + "; it is of stage 3");
}

}  // namespace

Engine::Engine(const commsched_engine_desc_t& desc,
               std::shared_ptr<Model> model, const DeviceTables& ours)
    : desc_(WithDefaults(desc)),
      on_device_(IsOnDevice(desc)),
      kernels_(KernelTable(desc.kernels), ours.kernels, desc.compute_stream),
      allocator_(MemoryTable(desc.memory), ours.memory),
      policy_(CopyOfName(desc.plan == nullptr ? nullptr : desc.plan->policy)),
      codec_(CopyOfName(desc.plan == nullptr ? nullptr : desc.plan->codec)),
      plan_options_(CorePlanOptions(desc, policy_, codec_)),
      profile_(Profile(desc.profile)),
      pool_(Pool(desc.optimizer_pool)),
      observers_(desc.observers == nullptr ? "" : desc.observers),
      flight_path_(desc.flight_path == nullptr ? "" : desc.flight_path),
      optimizer_(desc.optimizer),
      spec_(MakeSpec(desc_, optimizer_, plan_options_,
                     desc.optimizer_pool != nullptr)),
      group_rank_(static_cast<uint32_t>(commsched_group_rank(desc.group))),
      slice_(SliceOf(desc)),
      groups_(desc.groups, desc.groups + desc.num_groups),
      kept_model_(std::move(model)),
      model_(*kept_model_),
      agreement_(&desc_),
      state_(&allocator_, &kernels_, group_rank_, on_device_),
      bound_(
          {.desc = &desc_,
           .observers = observers_.empty() ? nullptr : observers_.c_str(),
           .flight_path = flight_path_.empty() ? nullptr : flight_path_.c_str(),
           .kernels = &kernels_,
           .memory = &allocator_,
           .model = &model_,
           .groups = &groups_,
           .state = &state_,
           .agreement = &agreement_}),
      update_({.optimizer = &optimizer_.table(),
               .weight_decay = desc_.weight_decay,
               .clip_norm = desc_.clip_norm,
               .loss_scale = desc_.loss_scale,
               .loss_scale_window = desc_.loss_scale_window,
               .max_skipped_steps = desc_.max_skipped_steps,
               .rank = group_rank_,
               .on_device = on_device_,
               .kernels = &kernels_,
               .model = &model_,
               .groups = &groups_,
               .state = &state_,
               .ops = &bound_}),
      gather_(&allocator_, &kernels_),
      calls_({.model = &model_,
              .step = &spec_,
              .may_skip = desc_.allow_skipped_modules != 0,
              .kernels = &kernels_,
              .state = &state_,
              .bound = &bound_,
              .update = &update_,
              .agreement = &agreement_,
              .freeze = [this](Sequence sequence) {
                return Freeze(std::move(sequence));
              }}) {}

Engine::~Engine() {
  if (offload_ != nullptr) offload_->Settle();
  if (!on_device_) return;
  // Kernels of a step that other ranks do not end would never.
  if (calls_.built() && !calls_.between_steps())
    Abort("its engine was destroyed");
  // What is freed now is in use until then; of a device that has failed nothing
  // is.
  (void)kernels_.Synchronize();
}

Status Engine::CheckDesc(const commsched_engine_desc_t& desc) {
  if (desc.context == nullptr)
    return InvalidArgument("engine: context is NULL");
  if (desc.group == nullptr) return InvalidArgument("engine: group is NULL");
  if (desc.model == nullptr) return InvalidArgument("engine: model is NULL");
  if (desc.zero_stage > 3) {
    return InvalidArgument("engine: zero_stage is " +
                           std::to_string(desc.zero_stage) +
                           "; it must be 0 to 3");
  }
  ENGINE_RETURN_IF_ERROR(
      CheckStage3("max_live_bytes", desc.max_live_bytes, desc.zero_stage));
  ENGINE_RETURN_IF_ERROR(
      CheckStage3("persist_below", desc.persist_below, desc.zero_stage));
  ENGINE_RETURN_IF_ERROR(
      CheckStage3("prefetch_bytes", desc.prefetch_bytes, desc.zero_stage));
  if (desc.bucket_merge > COMMSCHED_BUCKET_MERGE_ON) {
    return InvalidArgument("engine: bucket_merge is " +
                           std::to_string(desc.bucket_merge) +
                           "; it must be 0 (auto), 1 (off) or 2 (on)");
  }
  if (desc.launch_timeout_ns < 0) {
    return InvalidArgument("engine: launch_timeout_ns is " +
                           std::to_string(desc.launch_timeout_ns) +
                           "; it must be 0 or more");
  }
  if (desc.profile != nullptr && desc.profile->op_cost_ns != nullptr) {
    return InvalidArgument(
        "engine: profile.op_cost_ns is not NULL; the engine makes the graph");
  }
  if (desc.optimizer != nullptr) {
    ENGINE_RETURN_IF_ERROR(CheckOptimizerTable(*desc.optimizer));
  }
  ENGINE_RETURN_IF_ERROR(CheckLossScale(desc));
  ENGINE_RETURN_IF_ERROR(CheckPool(desc));
  ENGINE_RETURN_IF_ERROR(CheckAllocator(desc));
  ENGINE_RETURN_IF_ERROR(CheckComputeStream(desc));
  ENGINE_RETURN_IF_ERROR(CheckDevice(desc));
  ENGINE_RETURN_IF_ERROR(CheckDType("parameter_dtype", desc.parameter_dtype));
  ENGINE_RETURN_IF_ERROR(CheckDType("reduce_dtype", desc.reduce_dtype));
  ENGINE_RETURN_IF_ERROR(CheckNotNegative("weight_decay", desc.weight_decay));
  ENGINE_RETURN_IF_ERROR(CheckNotNegative("clip_norm", desc.clip_norm));
  ENGINE_RETURN_IF_ERROR(CheckNormGroup(desc));
  return CheckNormOfGroup(desc);
}

Status Engine::TablesOf(const commsched_engine_desc_t& desc,
                        DeviceTables* out_tables) {
  int32_t device = 0;
  if (commsched_context_device(desc.context, &device) ==
      COMMSCHED_DEVICE_CUDA) {
    return CudaTables(device, out_tables);
  }
  *out_tables = {CpuKernels(), CpuMemory()};
  return Status();
}

Status Engine::CheckRegistering() const {
  if (!prepared_ && !calls_.built()) return Status();
  return FailedPrecondition(std::string("engine: it is already ") +
                            (calls_.built() ? "built" : "prepared") +
                            "; build is called once");
}

}  // namespace commsched::engine
