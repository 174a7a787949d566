// What an engine is made of.

#include <algorithm>
#include <cstdio>
#include <limits>
#include <utility>

#include "engine.h"
#include "engine/tables/kernels.h"
#include "engine_desc.h"

namespace commsched::engine {
namespace {

commsched_engine_kernels_t KernelTable(
    const commsched_engine_kernels_t* given) {
  return given == nullptr ? commsched_engine_kernels_init() : *given;
}

commsched_engine_memory_t MemoryTable(const commsched_engine_memory_t* given) {
  return given == nullptr ? commsched_engine_memory_init() : *given;
}

commsched_pool_t Pool(const commsched_pool_t* given) {
  return given == nullptr ? commsched_pool_init() : *given;
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

// The number of this rank among those that hold the parts of the model.
uint32_t PartRank(const commsched_engine_desc_t& desc) {
  if (desc.norm_group == nullptr) return 0;
  return static_cast<uint32_t>(commsched_group_rank(desc.norm_group));
}

}  // namespace

Engine::Engine(const commsched_engine_desc_t& desc, PlannedRole role,
               std::shared_ptr<const Optimizer> optimizer,
               const DeviceTables& ours)
    : role_(std::move(role)),
      first_model_(role_.model),
      first_options_(role_.options),
      desc_(WithDefaults(desc)),
      on_device_(IsOnDevice(desc)),
      kernels_(KernelTable(desc.kernels), ours.kernels, desc.compute_stream),
      allocator_(MemoryTable(desc.memory), ours.memory),
      pool_(Pool(desc.optimizer_pool)),
      gradient_pool_(Pool(desc.gradient_pool)),
      observers_(desc.observers == nullptr ? "" : desc.observers),
      flight_path_(desc.flight_path == nullptr ? "" : desc.flight_path),
      kept_optimizer_(std::move(optimizer)),
      optimizer_(*kept_optimizer_),
      spec_(first_options_->spec()),
      group_rank_(static_cast<uint32_t>(commsched_group_rank(desc.group))),
      slice_(SliceOf(desc)),
      groups_(desc.groups, desc.groups + desc.num_groups),
      model_(*first_model_),
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
               .part_rank = PartRank(desc),
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
  if (!calls_.between_steps()) Abort("its engine was destroyed");
  // What is freed now is in use until then; of a device that has failed nothing
  // is.
  (void)kernels_.Synchronize();
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

}  // namespace commsched::engine
