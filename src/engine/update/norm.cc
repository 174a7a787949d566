// The norm of a step, and what is decided by it.

#include <algorithm>
#include <limits>
#include <ranges>

#include "engine/update/update.h"

namespace commsched::engine {
namespace {

// Where the sums of a parameter's blocks are.
std::vector<commsched_run_t> BlocksOf(const StepPlan& plan, const Model& model,
                                      uint32_t parameter) {
  const Slot& slot = plan.layout().slots[parameter];
  if (plan.layout().buckets[slot.bucket].frozen) return {};
  const uint64_t blocks_per_shard =
      plan.ShardCount(slot.bucket) / kBlockElements;
  uint64_t block = slot.offset / kBlockElements;
  const uint64_t end =
      block + (model.parameters()[parameter].count + kBlockElements - 1) /
                  kBlockElements;
  std::vector<commsched_run_t> runs;
  while (block < end) {
    const uint64_t shard = block / blocks_per_shard;
    const uint64_t in_shard = block - shard * blocks_per_shard;
    const uint64_t count = std::min(end - block, blocks_per_shard - in_shard);
    runs.push_back({shard * plan.graph().local_count +
                        plan.graph().sums_offset[slot.bucket] + in_shard,
                    count});
    block += count;
  }
  return runs;
}

// The blocks of this rank's shards that it counts, in memory order: all of them
// unless other ranks count some.
std::vector<commsched_run_t> CountedBlocks(
    const StepPlan& plan, const RankState& state,
    const std::vector<bool>& counted_here) {
  if (std::count(counted_here.begin(), counted_here.end(), false) == 0) {
    return {{0, plan.graph().local_blocks}};
  }
  std::vector<commsched_run_t> runs;
  for (uint32_t b = 0; b < state.buckets().size(); ++b) {
    for (const Segment& each : state.bucket(b).segments) {
      if (!counted_here[each.parameter] || plan.layout().buckets[b].frozen) {
        continue;
      }
      runs.push_back(
          {plan.graph().sums_offset[b] + each.in_shard / kBlockElements,
           (each.count + kBlockElements - 1) / kBlockElements});
    }
  }
  return runs;
}

}  // namespace

// Where the sums are that a norm is made of.
Status Update::PrepareNorm() {
  ENGINE_RETURN_IF_ERROR(spec_.state->Keep(1, &unclipped_));
  counted_here_.clear();
  for (const Parameter& each : spec_.model->parameters()) {
    counted_here_.push_back(
        !plan_->spec().gathers_parts() || each.replicated_over == 0 ||
        commsched_group_rank((*spec_.groups)[each.replicated_over - 1]) == 0);
  }
  if (plan_->spec().gathers_parts()) ENGINE_RETURN_IF_ERROR(PrepareParts());
  if (plan_->spec().reduces_norm()) {
    return norm_sums_.Init(
        spec_.state, kernels_,
        {CountedBlocks(*plan_, *spec_.state, counted_here_)});
  }
  std::vector<std::vector<commsched_run_t>> parts;
  for (uint32_t p = 0; p < spec_.model->parameters().size(); ++p) {
    parts.push_back(BlocksOf(*plan_, *spec_.model, p));
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

// Which parameters, or in a sum over the ranks which one, are this part's; and
// where what the parts tell is to lie.
Status Update::PrepareParts() {
  std::vector<std::vector<commsched_run_t>> sorted;
  const uint64_t count = plan_->spec().part_count();
  const uint64_t all = spec_.state->norm().parts.count();
  for (uint64_t i = 0; i < all; i += count) sorted.push_back({{i, 1}});
  for (uint64_t i = 0; i < all; ++i) {
    if (i % count != 0) sorted.push_back({{i, 1}});
  }
  ENGINE_RETURN_IF_ERROR(spec_.state->Keep(all, &sorted_parts_));
  ENGINE_RETURN_IF_ERROR(sort_parts_.Init(spec_.state, kernels_, sorted));
  if (plan_->spec().reduces_norm()) {
    return counted_.Init(spec_.state, kernels_, {{{0, 1}}});
  }
  std::vector<commsched_run_t> counted;
  for (uint32_t p = 0; p < spec_.model->parameters().size(); ++p) {
    if (counted_here_[p]) counted.push_back({p, 1});
  }
  return counted_.Init(spec_.state, kernels_, {counted});
}

// Says so with the flags or, without them, where the ranks exchange sums.
Status Update::CancelStep() {
  const StepSpec& spec = plan_->spec();
  if (spec.has_flags()) {
    flags_.Cancel();
    return Status();
  }
  if (!spec.needs_norm() || norm_begun_) {
    return FailedPrecondition(
        std::string("engine: step_cancel of all ranks, who hear of it with the "
                    "norm; ") +
        (norm_begun_ ? "that of this step was read: set cancel_all"
                     : "none is computed: set cancel_all or check_finite"));
  }
  const bool told =
      spec.world == 1 || spec.gathers_block_sums() || spec.reduces_norm();
  counted_bucket_ = kNoId;
  for (uint32_t b = 0; b < spec_.state->buckets().size(); ++b) {
    for (const Segment& each : spec_.state->bucket(b).segments) {
      if (!counted_here_[each.parameter]) continue;
      counted_bucket_ = b;
      counted_block_ = graph().sums_offset[b] + each.in_shard / kBlockElements;
    }
  }
  if (!told || counted_bucket_ == kNoId) {
    return FailedPrecondition(
        told ? "engine: step_cancel of all ranks, by one that counts no part "
               "of any parameter: set cancel_all"
             : "engine: step_cancel of all ranks in stage 0, in which no rank "
               "sends sums of its own: set cancel_all");
  }
  cancelled_ = true;
  return Status();
}

// Takes the buckets in the order in which their reductions arrive.
Status Update::SendSums() {
  if (sums_sent_) return Status();
  ENGINE_RETURN_IF_ERROR(TakeTurns(graph().passes.size()));
  ENGINE_RETURN_IF_ERROR(copies_.BeginSquares());
  for (uint32_t b : std::views::reverse(graph().first_use)) {
    ENGINE_RETURN_IF_ERROR(FinishGradients(b));
    const int64_t asked_ns = copies_.Now();
    ENGINE_RETURN_IF_ERROR(spec_.ops->Run(graph().buckets[b].squares, [&] {
      copies_.NoteSquares(b, asked_ns);
      ENGINE_RETURN_IF_ERROR(Squares(b));
      // No sum of squares is negative: with this one that of all is -inf or, if
      // a gradient is not finite, no number, and either way nobody steps.
      if (cancelled_ && b == counted_bucket_) {
        ENGINE_RETURN_IF_ERROR(kernels_.Fill(
            spec_.state->norm().local_sums.data() + counted_block_,
            -std::numeric_limits<double>::infinity(), 1));
      }
      if (!plan_->spec().gathers_block_sums() ||
          b != graph().first_use.back()) {
        return Status();
      }
      return SendValues(spec_.state->norm().local_sums.data() +
                        graph().local_blocks);
    }));
    ENGINE_RETURN_IF_ERROR(copies_.AfterSquares(b));
  }
  if (plan_->spec().reduces_norm()) {
    // The blocks of this rank in memory order, and where the ranks' learning
    // rates add up with those of nobody else.
    ENGINE_RETURN_IF_ERROR(spec_.ops->Run(graph().local_total, [&] {
      const Array<double>& total = spec_.state->norm().total;
      double* const rates = total.data() + 1;
      ENGINE_RETURN_IF_ERROR(kernels_.Fill(rates, 0, total.count() - 1));
      ENGINE_RETURN_IF_ERROR(SendValues(rates + spec_.rank * values_.size()));
      return norm_sums_.Add(kernels_, spec_.state->norm().local_sums.data(),
                            total.data());
    }));
  }
  if (plan_->spec().gathers_parts()) {
    ENGINE_RETURN_IF_ERROR(spec_.ops->Run(graph().add_part, [&] {
      Sums sums;
      double* const part = spec_.state->norm().part.data();
      ENGINE_RETURN_IF_ERROR(AddUpPart(&sums));
      ENGINE_RETURN_IF_ERROR(SendValues(part + 1));
      return counted_.Add(kernels_, sums.values, part);
    }));
  }
  sums_sent_ = true;
  return Status();
}

Status Update::ReceiveSums() {
  if (norm_begun_) return Status();
  ENGINE_RETURN_IF_ERROR(
      plan_->spec().has_flags()
          ? spec_.ops->Run(graph().norm_sums, [] { return Status(); })
          : spec_.ops->Before(graph().norm));
  norm_begun_ = true;
  return Status();
}

// On the host nothing is stepped with what CheckReports() refuses.
Status Update::EndNorm(float clip_norm) {
  has_norm_ = true;
  norm_begun_ = false;
  if (clip_norm == 0) clip_norm = spec_.clip_norm;
  if (plan_->spec().has_flags()) {
    ENGINE_RETURN_IF_ERROR(spec_.ops->Before(graph().norm));
  }
  ENGINE_RETURN_IF_ERROR(spec_.ops->Finish(graph().norm, [&] {
    Sums sums;
    ENGINE_RETURN_IF_ERROR(AddUp(&sums));
    ENGINE_RETURN_IF_ERROR(AddCancelled(&sums));
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
    const double* const of_parts =
        plan_->spec().gathers_parts()
            ? sorted_parts_ + plan_->spec().norm_members
            : nullptr;
    return reports_.Send(kernels_, step_, spec_.state->control(),
                         {rates, of_parts, step_ - (values_are_late_ ? 1 : 0)});
  }));
  return CheckReports();
}

// What update decides with, but for the clipping.
Status Update::ReadNorm(double* out_norm) {
  ENGINE_RETURN_IF_ERROR(SendSums());
  ENGINE_RETURN_IF_ERROR(ReceiveSums());
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

// ---- Flags ------------------------------------------------------------------

// For plans without a norm: a step counts unless it was cancelled.
Status Update::ReadFlags() {
  ENGINE_RETURN_IF_ERROR(spec_.ops->Run(graph().read_flags, [&] {
    ENGINE_RETURN_IF_ERROR(
        Decide({flags_.cancelled(), 1}, 0, spec_.state->control()));
    return reports_.Send(kernels_, step_, spec_.state->control(), {});
  }));
  return CheckReports();
}

// One that is 0 changes nothing.
Status Update::AddCancelled(Sums* sums) const {
  if (!plan_->spec().has_flags()) return Status();
  ENGINE_RETURN_IF_ERROR(
      kernels_.Copy(told_, sums->values, sums->count * sizeof(double)));
  ENGINE_RETURN_IF_ERROR(
      kernels_.Copy(told_ + sums->count, flags_.cancelled(), sizeof(double)));
  *sums = {told_, sums->count + 1};
  return Status();
}

// ---- Sums -------------------------------------------------------------------

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

Status Update::SendValues(double* into) const {
  for (size_t i = 0; i < values_.size(); ++i) {
    ENGINE_RETURN_IF_ERROR(kernels_.Fill(into + i, values_[i], 1));
  }
  return Status();
}

Status Update::AddUp(Sums* out_sums) const {
  if (!plan_->spec().gathers_parts()) return AddUpPart(out_sums);
  *out_sums = {sorted_parts_,
               static_cast<uint64_t>(plan_->spec().norm_members)};
  return sort_parts_.Add(kernels_, spec_.state->norm().parts.data(),
                         sorted_parts_);
}

// Adds up by parameter, and then in the order of registration, which neither
// bucketing nor sharding changes.
Status Update::AddUpPart(Sums* out_sums) const {
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
  args.factor = plan_->spec().gradient_factor();
  return kernels_.Decide(args);
}

}  // namespace commsched::engine
