#include "engine/update/update.h"

#include <algorithm>
#include <cmath>
#include <ranges>

namespace commsched::engine {
namespace {

// A set's beta, if it has one.
float BetaOr(float beta, float otherwise) {
  return beta > 0 ? beta : otherwise;
}

}  // namespace

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
  values_.assign(spec.agreed_values(), 0);
  of_sets_.assign(spec.option_sets, nullptr);
  for (commsched_step_state_t*& of_set : of_sets_) {
    ENGINE_RETURN_IF_ERROR(spec_.state->Keep(1, &of_set));
  }
  if (spec.needs_norm()) ENGINE_RETURN_IF_ERROR(PrepareNorm());
  if (!spec.needs_norm() && !spec.gathers_rates()) return Status();
  return reports_.Init(
      spec_.state, spec.agreed_values() * static_cast<uint64_t>(spec.world));
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
         .decay = 0,
         .beta1 = 0,
         .beta2 = 0,
         .control = nullptr});
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
  ENGINE_RETURN_IF_ERROR(spec_.state->Keep(1, &unclipped_));
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
    for (uint64_t i = 0; i < values_.size(); ++i) {
      rates.push_back(
          {{rank * graph().local_count + graph().local_blocks + i, 1}});
    }
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

Status Update::CheckArgs(const commsched_engine_update_args_t& args) const {
  ENGINE_RETURN_IF_ERROR(CheckNotNegative("lr", double{args.lr}));
  ENGINE_RETURN_IF_ERROR(CheckNotNegative("clip_norm", double{args.clip_norm}));
  if (args.clip_norm > 0 && !plan_->spec().needs_norm()) {
    return InvalidArgument(
        "engine: clip_norm of update is " + std::to_string(args.clip_norm) +
        ", but no norm is computed: set norm or clip_norm of the engine's "
        "description");
  }
  if (args.num_sets == 0) return Status();
  if (args.num_sets != of_sets_.size()) {
    return InvalidArgument("engine: update was given values of " +
                           std::to_string(args.num_sets) +
                           " option sets; option_sets of the engine is " +
                           std::to_string(of_sets_.size()));
  }
  if (args.sets == nullptr) {
    return InvalidArgument("engine: sets of update are NULL");
  }
  for (uint32_t i = 0; i < args.num_sets; ++i) {
    const auto check = [&](const char* name, float value, bool is_fraction) {
      if (std::isfinite(value) && value >= 0 && (!is_fraction || value < 1)) {
        return Status();
      }
      return InvalidArgument(
          "engine: " + std::string(name) + " of option set " +
          std::to_string(i) + " is " + std::to_string(value) +
          (is_fraction ? "; it must be in [0, 1)" : "; it must be 0 or more"));
    };
    const commsched_option_values_t& set = args.sets[i];
    ENGINE_RETURN_IF_ERROR(check("lr_scale", set.lr_scale, false));
    ENGINE_RETURN_IF_ERROR(check("decay", set.decay, false));
    ENGINE_RETURN_IF_ERROR(check("beta1", set.beta1, true));
    ENGINE_RETURN_IF_ERROR(check("beta2", set.beta2, true));
  }
  return Status();
}

Status Update::Step(uint64_t step, const commsched_engine_update_args_t& args) {
  step_ = step;
  const bool needs_norm = plan_->spec().needs_norm();
  // Where the norm was read, that of the step before has gone with it.
  values_are_late_ = norm_begun_ && !plan_->spec().gathers_rates();
  if (!values_are_late_) SetAgreedValues(args, &values_);
  if (needs_norm) {
    ENGINE_RETURN_IF_ERROR(BeginNorm());
    ENGINE_RETURN_IF_ERROR(EndNorm(args.clip_norm));
  } else {
    ENGINE_RETURN_IF_ERROR(Decide({}, 0, spec_.state->control()));
  }
  ENGINE_RETURN_IF_ERROR(DecideSets(args));
  for (size_t i = 0; i < graph().first_use.size(); ++i) {
    const uint32_t b = graph().first_use[i];
    if (!needs_norm) ENGINE_RETURN_IF_ERROR(FinishGradients(b));
    ENGINE_RETURN_IF_ERROR(StepBucket(b, args));
    if (offload_ != nullptr) ENGINE_RETURN_IF_ERROR(CopyNext(i));
  }
  SetAgreedValues(args, &values_);
  return Status();
}

Status Update::DecideSets(const commsched_engine_update_args_t& args) {
  for (uint32_t i = 0; i < args.num_sets; ++i) {
    const commsched_option_values_t& set = args.sets[i];
    if (set.beta1 == 0 && set.beta2 == 0) continue;
    ENGINE_RETURN_IF_ERROR(kernels_.Copy(of_sets_[i], spec_.state->control(),
                                         sizeof(commsched_step_state_t)));
    commsched_decide_args_t decide = {};
    decide.state = of_sets_[i];
    decide.step = static_cast<double>(step_);
    decide.beta1 = double{BetaOr(set.beta1, spec_.optimizer->beta1)};
    decide.beta2 = double{BetaOr(set.beta2, spec_.optimizer->beta2)};
    ENGINE_RETURN_IF_ERROR(kernels_.Decide(decide));
  }
  return Status();
}

void Update::SetSegments(uint32_t bucket,
                         const commsched_engine_update_args_t& args) {
  for (commsched_optimizer_segment_t& each : segments_[bucket]) {
    each.lr = args.lr;
    each.decay = each.num_dims >= 2 ? spec_.weight_decay : 0;
    each.beta1 = spec_.optimizer->beta1;
    each.beta2 = spec_.optimizer->beta2;
    each.control = &spec_.state->control()->control;
    if (args.num_sets == 0) continue;
    const uint32_t index = spec_.model->parameters()[each.parameter].option_set;
    const commsched_option_values_t& set = args.sets[index];
    each.lr = args.lr * set.lr_scale;
    each.decay = set.decay;
    each.beta1 = BetaOr(set.beta1, each.beta1);
    each.beta2 = BetaOr(set.beta2, each.beta2);
    if (set.beta1 > 0 || set.beta2 > 0)
      each.control = &of_sets_[index]->control;
  }
}

Status Update::StepBucket(uint32_t bucket,
                          const commsched_engine_update_args_t& args) {
  const int64_t asked_ns = offload_ == nullptr ? 0 : offload_->Now();
  return spec_.ops->Run(graph().buckets[bucket].optimizer, [&] {
    if (offload_ != nullptr) offload_->NoteArrival(bucket, asked_ns);
    if (bucket == graph().rate_bucket) ENGINE_RETURN_IF_ERROR(SendRates());
    SetSegments(bucket, args);
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

// Takes the buckets in the order in which their reductions arrive.
Status Update::BeginNorm() {
  if (norm_begun_) return Status();
  for (uint32_t b : std::views::reverse(graph().first_use)) {
    ENGINE_RETURN_IF_ERROR(FinishGradients(b));
    ENGINE_RETURN_IF_ERROR(spec_.ops->Run(graph().buckets[b].squares, [&] {
      ENGINE_RETURN_IF_ERROR(Squares(b));
      if (!plan_->spec().gathers_block_sums() ||
          b != graph().first_use.back()) {
        return Status();
      }
      return SendValues(spec_.state->norm().local_sums.data() +
                        graph().local_blocks);
    }));
  }
  if (plan_->spec().reduces_norm()) {
    ENGINE_RETURN_IF_ERROR(
        spec_.ops->Run(graph().local_total, [&] { return LocalTotal(); }));
  }
  ENGINE_RETURN_IF_ERROR(spec_.ops->Before(graph().norm));
  norm_begun_ = true;
  return Status();
}

// On the host nothing is stepped with what CheckReports() refuses.
Status Update::EndNorm(float clip_norm) {
  has_norm_ = true;
  norm_begun_ = false;
  if (clip_norm == 0) clip_norm = spec_.clip_norm;
  ENGINE_RETURN_IF_ERROR(spec_.ops->Finish(graph().norm, [&] {
    Sums sums;
    ENGINE_RETURN_IF_ERROR(AddUp(&sums));
    ENGINE_RETURN_IF_ERROR(Decide(sums, clip_norm, spec_.state->control()));
    const double* rates = nullptr;
    if (plan_->spec().reduces_norm()) {
      rates = spec_.state->norm().total.data() + 1;
    } else if (plan_->spec().gathers_block_sums()) {
      rates = spec_.state->norm().sent_rates.data();
      ENGINE_RETURN_IF_ERROR(
          rates_in_sums_.Add(kernels_, spec_.state->norm().all_sums.data(),
                             spec_.state->norm().sent_rates.data()));
    }
    return reports_.Send(kernels_, step_, spec_.state->control(),
                         {rates, step_ - (values_are_late_ ? 1 : 0)});
  }));
  return CheckReports();
}

// What update decides with, but for the clipping.
Status Update::ReadNorm(double* out_norm) {
  ENGINE_RETURN_IF_ERROR(BeginNorm());
  Sums sums;
  ENGINE_RETURN_IF_ERROR(AddUp(&sums));
  ENGINE_RETURN_IF_ERROR(kernels_.Copy(unclipped_, spec_.state->control(),
                                       sizeof(commsched_step_state_t)));
  ENGINE_RETURN_IF_ERROR(Decide(sums, 0, unclipped_));
  commsched_step_state_t state = {};
  ENGINE_RETURN_IF_ERROR(kernels_.Copy(&state, unclipped_, sizeof(state)));
  ENGINE_RETURN_IF_ERROR(kernels_.Synchronize());
  *out_norm = state.norm;
  return Status();
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
Status Update::LocalTotal() {
  double* const rates = spec_.state->norm().total.data() + 1;
  ENGINE_RETURN_IF_ERROR(
      kernels_.Fill(rates, 0, spec_.state->norm().total.count() - 1));
  ENGINE_RETURN_IF_ERROR(SendValues(rates + spec_.rank * values_.size()));
  return norm_sums_.Add(kernels_, spec_.state->norm().local_sums.data(),
                        spec_.state->norm().total.data());
}

Status Update::SendValues(double* into) const {
  for (size_t i = 0; i < values_.size(); ++i) {
    ENGINE_RETURN_IF_ERROR(kernels_.Fill(into + i, values_[i], 1));
  }
  return Status();
}

// By parameter, and then in the order of registration, which neither bucketing
// nor sharding changes.
Status Update::AddUp(Sums* out_sums) const {
  NormMemory& norm = spec_.state->norm();
  if (plan_->spec().reduces_norm()) {
    *out_sums = {norm.total.data(), 1};
    return Status();
  }
  const double* const sums = plan_->spec().gathers_block_sums()
                                 ? norm.all_sums.data()
                                 : norm.local_sums.data();
  *out_sums = {norm.part_sums.data(), norm.part_sums.count()};
  return norm_sums_.Add(kernels_, sums, norm.part_sums.data());
}

Status Update::Decide(const Sums& sums, float clip_norm,
                      commsched_step_state_t* state) const {
  commsched_decide_args_t args = {};
  args.state = state;
  args.sums = sums.values;
  args.count = sums.count;
  args.clip_norm = double{clip_norm};
  args.beta1 = double{spec_.optimizer->beta1};
  args.beta2 = double{spec_.optimizer->beta2};
  args.step = static_cast<double>(step_);
  args.window = plan_->spec().scales_loss ? spec_.loss_scale_window : 0;
  args.max_skipped_in_row = spec_.max_skipped_steps;
  return kernels_.Decide(args);
}

}  // namespace commsched::engine
