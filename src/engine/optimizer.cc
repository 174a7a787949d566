// The end of a step: the norm, the loss scale and the optimizer.

#include <algorithm>
#include <cmath>
#include <ranges>

#include "engine.h"

namespace commsched::engine {
Status Engine::OptimizerStep(float lr) {
  if (!std::isfinite(lr) || lr < 0) {
    return InvalidArgument("engine: lr is " + std::to_string(lr) +
                           "; it must be 0 or more");
  }
  // Each op waits for what it reads, and learns there that it will not come. So
  // no bucket is stepped with what a failure left; say which it would be.
  Status stepped = StepBuckets(lr);
  if (stepped.ok() || !verdict_.ok() || SessionFailure().ok()) return stepped;
  ENGINE_RETURN_IF_ERROR(PoisonFor("optimizer_step").RefuseAll());
  return stepped;
}

Status Engine::StepBuckets(float lr) {
  if (recording_) {
    if (!EndsRecordedForward(/*backward=*/false, 0, 0)) {
      return OutOfOrder("optimizer_step");
    }
    ENGINE_RETURN_IF_ERROR(EndRecording());
  }
  if (phase_ != Phase::kBetweenModules || evaluating_ || !cursor().CanEnd()) {
    return OutOfOrder("optimizer_step");
  }
  ENGINE_RETURN_IF_ERROR(PassTo(cursor().passes().size()));
  if (spec_.needs_norm()) {
    ENGINE_RETURN_IF_ERROR(ComputeNorm(lr));
  } else {
    ENGINE_RETURN_IF_ERROR(Decide(nullptr, 0));
  }
  for (size_t i = 0; i < graph().first_use.size(); ++i) {
    const uint32_t b = graph().first_use[i];
    if (!spec_.needs_norm()) ENGINE_RETURN_IF_ERROR(FinishGradients(b));
    ENGINE_RETURN_IF_ERROR(StepBucket(b, lr));
    if (offload_ != nullptr) ENGINE_RETURN_IF_ERROR(CopyNext(i));
  }
  phase_ = Phase::kStepped;
  return Status();
}

Status Engine::StepBucket(uint32_t bucket, float lr) {
  const int64_t asked_ns = offload_ == nullptr ? 0 : offload_->Now();
  return bound_.Run(graph().buckets[bucket].optimizer, [&] {
    if (offload_ != nullptr) offload_->NoteArrival(bucket, asked_ns);
    if (bucket == graph().rate_bucket) ENGINE_RETURN_IF_ERROR(SendRate(lr));
    return spec_.sgd ? Sgd(bucket, lr) : AdamW(bucket, lr);
  });
}

Status Engine::FetchFirst() {
  if (offload_ == nullptr) return Status();
  for (uint32_t i = 0; i < offload_->num_slots(); ++i) {
    const uint32_t b = graph().first_use[i];
    ENGINE_RETURN_IF_ERROR(
        offload_->Fetch(b, bound_.CostOf(graph().buckets[b].fetch)));
  }
  return Status();
}

Status Engine::CopyNext(size_t index) {
  const uint32_t stepped = graph().first_use[index];
  ENGINE_RETURN_IF_ERROR(
      offload_->Store(stepped, bound_.CostOf(graph().buckets[stepped].store)));
  index += offload_->num_slots();
  if (index >= graph().first_use.size()) return Status();
  const uint32_t next = graph().first_use[index];
  return offload_->Fetch(next, bound_.CostOf(graph().buckets[next].fetch));
}

// Adds the last micro-batch, unless it was reduced with the others.
Status Engine::FinishGradients(uint32_t bucket) {
  const commsched_op_id_t op = graph().buckets[bucket].accumulate;
  return op == kNoId ? Status() : Accumulate(bucket, op, /*first=*/false);
}

// Takes the buckets in the order in which their reductions arrive. On the host
// nothing is stepped with what CheckReports() refuses.
Status Engine::ComputeNorm(float lr) {
  has_norm_ = true;
  for (uint32_t b : std::views::reverse(graph().first_use)) {
    ENGINE_RETURN_IF_ERROR(FinishGradients(b));
    ENGINE_RETURN_IF_ERROR(bound_.Run(graph().buckets[b].squares, [&] {
      ENGINE_RETURN_IF_ERROR(Squares(b));
      if (!spec_.gathers_block_sums() || b != graph().first_use.back()) {
        return Status();
      }
      return kernels_.Fill(
          state_.norm().local_sums.data() + graph().local_blocks, SentRate(lr),
          1);
    }));
  }
  if (spec_.reduces_norm()) {
    ENGINE_RETURN_IF_ERROR(
        bound_.Run(graph().local_total, [&] { return LocalTotal(lr); }));
  }
  ENGINE_RETURN_IF_ERROR(bound_.Run(graph().norm, [&] { return EndNorm(); }));
  return CheckReports();
}

Status Engine::Squares(uint32_t bucket) {
  const BucketMemory& memory = state_.bucket(bucket);
  double* sums = state_.norm().local_sums.data() + graph().sums_offset[bucket];
  const commsched_dtype_t dtype = spec_.reduced(layout().buckets[bucket]);
  for (const Segment& segment : memory.segments) {
    ENGINE_RETURN_IF_ERROR(kernels_.BlockSquares(
        memory.my_gradients + segment.in_shard * SizeOf(dtype), dtype,
        segment.count, sums + segment.in_shard / kBlockElements));
  }
  return Status();
}

// Non-deterministic mode: the blocks of this rank in memory order, and where
// the ranks' learning rates add up with those of nobody else.
Status Engine::LocalTotal(float lr) {
  double* const rates = state_.norm().total.data() + 1;
  ENGINE_RETURN_IF_ERROR(
      kernels_.Fill(rates, 0, state_.norm().total.count() - 1));
  ENGINE_RETURN_IF_ERROR(kernels_.Fill(rates + group_rank_, SentRate(lr), 1));
  return norm_sums_.Add(kernels_, state_.norm().local_sums.data(),
                        state_.norm().total.data());
}

// By parameter, and then in the order of registration, which neither bucketing
// nor sharding changes.
Status Engine::EndNorm() {
  const double* rates = nullptr;
  if (spec_.reduces_norm()) {
    ENGINE_RETURN_IF_ERROR(Decide(state_.norm().total.data(), 1));
    rates = state_.norm().total.data() + 1;
  } else {
    const double* const sums = spec_.gathers_block_sums()
                                   ? state_.norm().all_sums.data()
                                   : state_.norm().local_sums.data();
    ENGINE_RETURN_IF_ERROR(
        norm_sums_.Add(kernels_, sums, state_.norm().part_sums.data()));
    ENGINE_RETURN_IF_ERROR(Decide(state_.norm().part_sums.data(),
                                  state_.norm().part_sums.count()));
    if (spec_.gathers_block_sums()) {
      ENGINE_RETURN_IF_ERROR(
          rates_in_sums_.Add(kernels_, sums, state_.norm().sent_rates.data()));
      rates = state_.norm().sent_rates.data();
    }
  }
  return reports_.Send(kernels_, step_offset_ + steps_begun_, state_.control(),
                       rates);
}

std::vector<commsched_run_t> Engine::BlocksOf(uint32_t parameter) const {
  const Slot& slot = layout().slots[parameter];
  const uint64_t blocks_per_shard =
      step_plan_->ShardCount(slot.bucket) / kBlockElements;
  uint64_t block = slot.offset / kBlockElements;
  const uint64_t end =
      block + (model_.parameters()[parameter].count + kBlockElements - 1) /
                  kBlockElements;
  std::vector<commsched_run_t> runs;
  while (block < end) {
    const uint64_t shard = block / blocks_per_shard;
    const uint64_t in_shard = block - shard * blocks_per_shard;
    const uint64_t count = std::min(end - block, blocks_per_shard - in_shard);
    runs.push_back({shard * graph().local_count +
                        graph().sums_offset[slot.bucket] + in_shard,
                    count});
    block += count;
  }
  return runs;
}

Status Engine::Decide(const double* sums, uint64_t count) {
  commsched_decide_args_t args = {};
  args.state = state_.control();
  args.sums = sums;
  args.count = count;
  args.clip_norm = spec_.clip ? double{desc_.clip_norm} : 0;
  args.beta1 = desc_.beta1;
  args.beta2 = desc_.beta2;
  args.step = static_cast<double>(step_offset_ + steps_begun_);
  args.window = spec_.scales_loss ? desc_.loss_scale_window : 0;
  args.max_skipped_in_row = desc_.max_skipped_steps;
  return kernels_.Decide(args);
}

float Engine::DecayOf(uint32_t parameter) const {
  return model_.parameters()[parameter].num_dims >= 2 ? desc_.weight_decay
                                                      : 0.0f;
}

template <typename Args>
void Engine::SetArgs(uint32_t bucket, const Segment& segment,
                     Args& args) const {
  const BucketMemory& memory = state_.bucket(bucket);
  args.master = memory.my_masters + segment.in_shard;
  args.gradient_dtype = spec_.reduced(layout().buckets[bucket]);
  args.gradient =
      memory.my_gradients + segment.in_shard * SizeOf(args.gradient_dtype);
  args.copy_dtype = spec_.precision.parameters;
  if (memory.my_copy != nullptr) {
    args.copy = memory.my_copy + segment.in_shard * SizeOf(args.copy_dtype);
  }
  args.count = segment.count;
  args.control = &state_.control()->control;
  args.decay = DecayOf(segment.parameter);
}

Status Engine::AdamW(uint32_t bucket, float lr) const {
  const BucketMemory& memory = state_.bucket(bucket);
  commsched_adamw_args_t args = {};
  args.lr = lr;
  args.beta1 = desc_.beta1;
  args.beta2 = desc_.beta2;
  args.epsilon = desc_.epsilon;
  float* m = memory.my_state;
  float* v = m + step_plan_->ShardCount(bucket);
  for (const Segment& segment : memory.segments) {
    SetArgs(bucket, segment, args);
    args.m = m + segment.in_shard;
    args.v = v + segment.in_shard;
    ENGINE_RETURN_IF_ERROR(kernels_.Adamw(args));
  }
  return Status();
}

Status Engine::Sgd(uint32_t bucket, float lr) const {
  const BucketMemory& memory = state_.bucket(bucket);
  commsched_sgd_args_t args = {};
  args.lr = lr;
  args.momentum = desc_.momentum;
  args.nesterov = desc_.nesterov;
  for (const Segment& segment : memory.segments) {
    SetArgs(bucket, segment, args);
    if (spec_.moments > 0) {
      args.velocity = memory.my_state + segment.in_shard;
    }
    ENGINE_RETURN_IF_ERROR(kernels_.Sgd(args));
  }
  return Status();
}

}  // namespace commsched::engine
