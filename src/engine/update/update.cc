#include "engine/update/update.h"

#include <algorithm>
#include <ranges>

namespace commsched::engine {

// ---- Before the first step --------------------------------------------------

Status Update::Prepare(const StepPlan& plan) {
  plan_ = &plan;
  segments_.clear();
  for (uint32_t b = 0; b < spec_.state->buckets().size(); ++b) {
    segments_.push_back(SegmentsOf(b));
  }
  LossScale state;
  if (plan.spec().scales_loss) state.scale = spec_.loss_scale;
  ENGINE_RETURN_IF_ERROR(SetState(state));
  const StepSpec& spec = plan.spec();
  if (spec.needs_norm()) ENGINE_RETURN_IF_ERROR(PrepareNorm());
  if (!spec.needs_norm() && !spec.gathers_rates()) return Status();
  return reports_.Init(spec_.state, static_cast<uint64_t>(spec.world));
}

std::vector<commsched_optimizer_segment_t> Update::SegmentsOf(
    uint32_t bucket) const {
  std::vector<commsched_optimizer_segment_t> segments;
  for (const Segment& each : spec_.state->bucket(bucket).segments) {
    const Parameter& parameter = spec_.model->parameters()[each.parameter];
    segments.push_back(
        {.parameter = each.parameter,
         .num_dims = parameter.num_dims,
         .dims = parameter.dims.data(),
         .begin = each.in_shard,
         .count = each.count,
         .in_parameter =
             each.in_bucket - plan_->layout().slots[each.parameter].offset,
         .lr = 0,
         .decay = parameter.num_dims >= 2 ? spec_.weight_decay : 0,
         .beta1 = spec_.optimizer->beta1,
         .beta2 = spec_.optimizer->beta2,
         .control = &spec_.state->control()->control});
  }
  return segments;
}

void Update::Bind(const StepPlan* plan, Offload* offload) {
  plan_ = plan;
  offload_ = offload;
}

Status Update::SetState(const LossScale& state) {
  reported_ = state;
  return spec_.state->SetControl(reported_);
}

// Where the sums are that a norm is made of.
Status Update::PrepareNorm() {
  if (plan_->spec().reduces_norm()) {
    return norm_sums_.Init(spec_.state, kernels_,
                           {{{0, graph().local_blocks}}});
  }
  std::vector<std::vector<commsched_run_t>> parts;
  for (uint32_t p = 0; p < spec_.model->parameters().size(); ++p) {
    parts.push_back(BlocksOf(p));
  }
  ENGINE_RETURN_IF_ERROR(norm_sums_.Init(spec_.state, kernels_, parts));
  if (!plan_->spec().gathers_block_sums()) return Status();
  std::vector<std::vector<commsched_run_t>> rates;
  for (uint64_t rank = 0; rank < plan_->spec().num_shards(); ++rank) {
    rates.push_back({{rank * graph().local_count + graph().local_blocks, 1}});
  }
  return rates_in_sums_.Init(spec_.state, kernels_, rates);
}

std::vector<commsched_run_t> Update::BlocksOf(uint32_t parameter) const {
  const Slot& slot = plan_->layout().slots[parameter];
  const uint64_t blocks_per_shard =
      plan_->ShardCount(slot.bucket) / kBlockElements;
  uint64_t block = slot.offset / kBlockElements;
  const uint64_t end = block + (spec_.model->parameters()[parameter].count +
                                kBlockElements - 1) /
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

// ---- The step ---------------------------------------------------------------

Status Update::Accumulate(uint32_t bucket, commsched_op_id_t op, bool first) {
  const BucketMemory& memory = spec_.state->bucket(bucket);
  const Precision& precision = plan_->spec().precision;
  const auto combine = first ? &Kernels::Convert : &Kernels::Add;
  return spec_.ops->Run(op, [&] {
    return (kernels_.*combine)(memory.of(BufferKind::kShard).data(), kSumDType,
                               memory.my_summand, precision.reduced,
                               plan_->ShardCount(bucket));
  });
}

Status Update::Step(uint64_t step, float lr) {
  step_ = step;
  const bool needs_norm = plan_->spec().needs_norm();
  ENGINE_RETURN_IF_ERROR(needs_norm ? ComputeNorm(lr) : Decide(nullptr, 0));
  for (size_t i = 0; i < graph().first_use.size(); ++i) {
    const uint32_t b = graph().first_use[i];
    if (!needs_norm) ENGINE_RETURN_IF_ERROR(FinishGradients(b));
    ENGINE_RETURN_IF_ERROR(StepBucket(b, lr));
    if (offload_ != nullptr) ENGINE_RETURN_IF_ERROR(CopyNext(i));
  }
  return Status();
}

Status Update::StepBucket(uint32_t bucket, float lr) {
  const int64_t asked_ns = offload_ == nullptr ? 0 : offload_->Now();
  return spec_.ops->Run(graph().buckets[bucket].optimizer, [&] {
    if (offload_ != nullptr) offload_->NoteArrival(bucket, asked_ns);
    if (bucket == graph().rate_bucket) ENGINE_RETURN_IF_ERROR(SendRate(lr));
    for (commsched_optimizer_segment_t& each : segments_[bucket]) each.lr = lr;
    const commsched_optimizer_bucket_t stepped = BucketFor(bucket);
    const commsched_status_t code =
        spec_.optimizer->step(spec_.optimizer, kernels_.stream(), &stepped);
    if (code == COMMSCHED_OK) return Status();
    return Status(code, std::string("optimizer '") + spec_.optimizer->name +
                            "': " + commsched_last_error());
  });
}

commsched_optimizer_bucket_t Update::BucketFor(uint32_t bucket) const {
  const BucketMemory& memory = spec_.state->bucket(bucket);
  const std::vector<commsched_optimizer_segment_t>& segments =
      segments_[bucket];
  return {
      .bucket = bucket,
      .num_segments = static_cast<uint32_t>(segments.size()),
      .segments = segments.data(),
      .shard_count = plan_->ShardCount(bucket),
      .masters = memory.my_masters,
      .gradients = memory.my_gradients,
      .copy = memory.my_copy,
      .state = memory.my_state,
      .gradient_dtype = plan_->spec().reduced(plan_->layout().buckets[bucket]),
      .copy_dtype = plan_->spec().precision.parameters,
      .kernels = &kernels_};
}

Status Update::FetchFirst() {
  if (offload_ == nullptr) return Status();
  for (uint32_t i = 0; i < offload_->num_slots(); ++i) {
    const uint32_t b = graph().first_use[i];
    ENGINE_RETURN_IF_ERROR(
        offload_->Fetch(b, spec_.ops->CostOf(graph().buckets[b].fetch)));
  }
  return Status();
}

Status Update::CopyNext(size_t index) {
  const uint32_t stepped = graph().first_use[index];
  ENGINE_RETURN_IF_ERROR(offload_->Store(
      stepped, spec_.ops->CostOf(graph().buckets[stepped].store)));
  index += offload_->num_slots();
  if (index >= graph().first_use.size()) return Status();
  const uint32_t next = graph().first_use[index];
  return offload_->Fetch(next, spec_.ops->CostOf(graph().buckets[next].fetch));
}

// Adds the last micro-batch, unless it was reduced with the others.
Status Update::FinishGradients(uint32_t bucket) {
  const commsched_op_id_t op = graph().buckets[bucket].accumulate;
  return op == kNoId ? Status() : Accumulate(bucket, op, /*first=*/false);
}

// Takes the buckets in the order in which their reductions arrive. On the host
// nothing is stepped with what CheckReports() refuses.
Status Update::ComputeNorm(float lr) {
  has_norm_ = true;
  for (uint32_t b : std::views::reverse(graph().first_use)) {
    ENGINE_RETURN_IF_ERROR(FinishGradients(b));
    ENGINE_RETURN_IF_ERROR(spec_.ops->Run(graph().buckets[b].squares, [&] {
      ENGINE_RETURN_IF_ERROR(Squares(b));
      if (!plan_->spec().gathers_block_sums() ||
          b != graph().first_use.back()) {
        return Status();
      }
      return kernels_.Fill(
          spec_.state->norm().local_sums.data() + graph().local_blocks,
          SentRate(lr), 1);
    }));
  }
  if (plan_->spec().reduces_norm()) {
    ENGINE_RETURN_IF_ERROR(
        spec_.ops->Run(graph().local_total, [&] { return LocalTotal(lr); }));
  }
  ENGINE_RETURN_IF_ERROR(
      spec_.ops->Run(graph().norm, [&] { return EndNorm(); }));
  return CheckReports();
}

Status Update::Squares(uint32_t bucket) {
  const BucketMemory& memory = spec_.state->bucket(bucket);
  double* sums =
      spec_.state->norm().local_sums.data() + graph().sums_offset[bucket];
  const commsched_dtype_t dtype =
      plan_->spec().reduced(plan_->layout().buckets[bucket]);
  for (const Segment& segment : memory.segments) {
    ENGINE_RETURN_IF_ERROR(kernels_.BlockSquares(
        memory.my_gradients + segment.in_shard * SizeOf(dtype), dtype,
        segment.count, sums + segment.in_shard / kBlockElements));
  }
  return Status();
}

// Non-deterministic mode: the blocks of this rank in memory order, and where
// the ranks' learning rates add up with those of nobody else.
Status Update::LocalTotal(float lr) {
  double* const rates = spec_.state->norm().total.data() + 1;
  ENGINE_RETURN_IF_ERROR(
      kernels_.Fill(rates, 0, spec_.state->norm().total.count() - 1));
  ENGINE_RETURN_IF_ERROR(kernels_.Fill(rates + spec_.rank, SentRate(lr), 1));
  return norm_sums_.Add(kernels_, spec_.state->norm().local_sums.data(),
                        spec_.state->norm().total.data());
}

// By parameter, and then in the order of registration, which neither bucketing
// nor sharding changes.
Status Update::EndNorm() {
  const double* rates = nullptr;
  if (plan_->spec().reduces_norm()) {
    ENGINE_RETURN_IF_ERROR(Decide(spec_.state->norm().total.data(), 1));
    rates = spec_.state->norm().total.data() + 1;
  } else {
    const double* const sums = plan_->spec().gathers_block_sums()
                                   ? spec_.state->norm().all_sums.data()
                                   : spec_.state->norm().local_sums.data();
    ENGINE_RETURN_IF_ERROR(
        norm_sums_.Add(kernels_, sums, spec_.state->norm().part_sums.data()));
    ENGINE_RETURN_IF_ERROR(Decide(spec_.state->norm().part_sums.data(),
                                  spec_.state->norm().part_sums.count()));
    if (plan_->spec().gathers_block_sums()) {
      ENGINE_RETURN_IF_ERROR(rates_in_sums_.Add(
          kernels_, sums, spec_.state->norm().sent_rates.data()));
      rates = spec_.state->norm().sent_rates.data();
    }
  }
  return reports_.Send(kernels_, step_, spec_.state->control(), rates);
}

Status Update::Decide(const double* sums, uint64_t count) {
  commsched_decide_args_t args = {};
  args.state = spec_.state->control();
  args.sums = sums;
  args.count = count;
  args.clip_norm = plan_->spec().clip ? double{spec_.clip_norm} : 0;
  args.beta1 = double{spec_.optimizer->beta1};
  args.beta2 = double{spec_.optimizer->beta2};
  args.step = static_cast<double>(step_);
  args.window = plan_->spec().scales_loss ? spec_.loss_scale_window : 0;
  args.max_skipped_in_row = spec_.max_skipped_steps;
  return kernels_.Decide(args);
}

}  // namespace commsched::engine
