// The end of a step: the norm, the loss scale and the optimizer.

#include <algorithm>
#include <cmath>
#include <ranges>

#include "engine.h"

namespace commsched::engine {
namespace {

// Added to the norm before dividing, as PyTorch's clip_grad_norm_ does.
constexpr double kClipEpsilon = 1e-6;

}  // namespace

// ---- What a failure leaves --------------------------------------------------

Status Engine::RefusePoisoned(const std::string& call, const char* kind,
                              uint32_t bucket,
                              commsched_buffer_id_t buffer) const {
  if (buffer == kNoId) return Status();
  const Status failure = SessionFailure();
  if (failure.ok()) return failure;
  uint32_t poisoned = 0;
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_session_buffer_poisoned(session_.get(), buffer, &poisoned),
      "asking for a buffer's state"));
  if (poisoned == 0) return Status();
  return Status(failure.code(), "engine: " + call + " refuses buffer '" + kind +
                                    "." + std::to_string(bucket) +
                                    "', which a failed step has left poisoned" +
                                    ": " + failure.message());
}

Status Engine::RefusePoisonedBuckets(const std::string& call) const {
  for (uint32_t b = 0; b < graph_.buckets.size(); ++b) {
    const BucketIds& ids = graph_.buckets[b];
    ENGINE_RETURN_IF_ERROR(
        RefusePoisoned(call, "gradient_shard", b, ids.shard));
    ENGINE_RETURN_IF_ERROR(
        RefusePoisoned(call, "gradient_summand", b, ids.summand));
    ENGINE_RETURN_IF_ERROR(
        RefusePoisoned(call, "gradients", b, ids.gradients.front()));
    ENGINE_RETURN_IF_ERROR(
        RefusePoisoned(call, "parameters", b, ids.parameters));
    ENGINE_RETURN_IF_ERROR(
        RefusePoisoned(call, "parameter_shard", b, ids.parameter_shard));
  }
  for (uint32_t slot = 0; slot < graph_.staging.size(); ++slot) {
    ENGINE_RETURN_IF_ERROR(
        RefusePoisoned(call, "staging", slot, graph_.staging[slot]));
  }
  return Status();
}

// ---- The optimizer ----------------------------------------------------------

Status Engine::OptimizerStep(float lr) {
  if (!std::isfinite(lr) || lr < 0) {
    return InvalidArgument("engine: lr is " + std::to_string(lr) +
                           "; it must be 0 or more");
  }
  // Each op waits for what it reads, and learns there that it will not come. So
  // no bucket is stepped with what a failure left; say which it would be.
  Status stepped = StepBuckets(lr);
  if (stepped.ok() || !verdict_.ok() || SessionFailure().ok()) return stepped;
  ENGINE_RETURN_IF_ERROR(RefusePoisonedBuckets("optimizer_step"));
  return stepped;
}

Status Engine::StepBuckets(float lr) {
  if (recording_) {
    if (!EndsRecordedForward(/*backward=*/false, 0, 0)) {
      return OutOfOrder("optimizer_step");
    }
    ENGINE_RETURN_IF_ERROR(EndRecording());
  }
  if (phase_ != Phase::kBetweenModules || evaluating_ ||
      !CanPassTo(ops().size())) {
    return OutOfOrder("optimizer_step");
  }
  ENGINE_RETURN_IF_ERROR(PassTo(ops().size()));
  if (spec_.needs_norm()) {
    ENGINE_RETURN_IF_ERROR(ComputeNorm(lr));
  } else {
    SetCorrections();
  }
  for (size_t i = 0; i < graph_.first_use.size(); ++i) {
    const uint32_t b = graph_.first_use[i];
    if (!spec_.needs_norm()) ENGINE_RETURN_IF_ERROR(FinishGradients(b));
    ENGINE_RETURN_IF_ERROR(StepBucket(b, lr));
    if (offload_ != nullptr) ENGINE_RETURN_IF_ERROR(CopyNext(i));
  }
  phase_ = Phase::kStepped;
  return Status();
}

Status Engine::StepBucket(uint32_t bucket, float lr) {
  const int64_t asked_ns = offload_ == nullptr ? 0 : offload_->Now();
  Status verdict;
  const Status ran = Run(graph_.buckets[bucket].optimizer, [&] {
    if (offload_ != nullptr) offload_->NoteArrival(bucket, asked_ns);
    if (bucket == graph_.rate_bucket) verdict = SendRate(lr);
    if (!verdict.ok()) return;
    spec_.sgd ? Sgd(bucket, lr) : AdamW(bucket, lr);
  });
  return verdict.ok() ? ran : verdict;
}

Status Engine::FetchFirst() {
  if (offload_ == nullptr) return Status();
  for (uint32_t i = 0; i < offload_->num_slots(); ++i) {
    const uint32_t b = graph_.first_use[i];
    ENGINE_RETURN_IF_ERROR(offload_->Fetch(b, CostOf(graph_.buckets[b].fetch)));
  }
  return Status();
}

Status Engine::CopyNext(size_t index) {
  const uint32_t stepped = graph_.first_use[index];
  ENGINE_RETURN_IF_ERROR(
      offload_->Store(stepped, CostOf(graph_.buckets[stepped].store)));
  index += offload_->num_slots();
  if (index >= graph_.first_use.size()) return Status();
  const uint32_t next = graph_.first_use[index];
  return offload_->Fetch(next, CostOf(graph_.buckets[next].fetch));
}

// Adds the last micro-batch, unless it was reduced with the others.
Status Engine::FinishGradients(uint32_t bucket) {
  const commsched_op_id_t op = graph_.buckets[bucket].accumulate;
  return op == kNoId ? Status() : Accumulate(bucket, op, /*first=*/false);
}

// The buckets in the order in which their reductions arrive.
// Nothing is stepped with what CheckStep() refuses.
Status Engine::ComputeNorm(float lr) {
  for (uint32_t b : std::views::reverse(graph_.first_use)) {
    ENGINE_RETURN_IF_ERROR(FinishGradients(b));
    ENGINE_RETURN_IF_ERROR(Run(graph_.buckets[b].squares, [&] {
      Squares(b);
      if (spec_.gathers_block_sums() && b == graph_.first_use.back()) {
        local_sums_.data()[graph_.local_blocks] = SentRate(lr);
      }
    }));
  }
  if (spec_.reduces_norm()) {
    ENGINE_RETURN_IF_ERROR(Run(graph_.local_total, [&] {
      double* const rates = total_.data() + 1;
      std::fill_n(rates, total_.count() - 1, 0.0);
      rates[group_rank_] = SentRate(lr);
      *total_.data() = LocalTotal();
    }));
  }
  ENGINE_RETURN_IF_ERROR(Run(graph_.norm, [&] {
    SetControl(spec_.reduces_norm() ? *total_.data() : AddAllSums());
  }));
  return CheckStep();
}

void Engine::Squares(uint32_t bucket) {
  const BucketMemory& memory = memory_[bucket];
  double* sums = local_sums_.data() + graph_.sums_offset[bucket];
  const commsched_dtype_t dtype = spec_.reduced(layout_.buckets[bucket]);
  for (const Segment& segment : memory.segments) {
    kernels_.block_squares(
        kernels_.user, memory.my_gradients + segment.in_shard * SizeOf(dtype),
        dtype, segment.count, sums + segment.in_shard / kBlockElements);
  }
}

// Non-deterministic mode: the blocks of this rank in memory order.
double Engine::LocalTotal() const {
  double total = 0;
  for (uint64_t i = 0; i < graph_.local_blocks; ++i) {
    total += local_sums_.data()[i];
  }
  return total;
}

// Block by block within a parameter and then in the order of registration,
// which neither bucketing nor sharding changes.
double Engine::AddAllSums() const {
  const double* sums =
      spec_.gathers_block_sums() ? all_sums_.data() : local_sums_.data();
  double total = 0;
  for (uint32_t p = 0; p < parameters_.size(); ++p) {
    total += ParameterSum(p, sums);
  }
  return total;
}

double Engine::ParameterSum(uint32_t parameter, const double* sums) const {
  const Slot& slot = layout_.slots[parameter];
  const uint64_t blocks_per_shard =
      layout_.buckets[slot.bucket].count / spec_.num_shards() / kBlockElements;
  const uint64_t begin = slot.offset / kBlockElements;
  const uint64_t end =
      begin +
      (parameters_[parameter].count + kBlockElements - 1) / kBlockElements;
  double total = 0;
  for (uint64_t block = begin; block < end; ++block) {
    const uint64_t shard = block / blocks_per_shard;
    const uint64_t in_shard = block - shard * blocks_per_shard;
    total += sums[shard * graph_.local_count + graph_.sums_offset[slot.bucket] +
                  in_shard];
  }
  return total;
}

// A reduced gradient that is not finite makes the norm so, on every rank, and
// all skip the step.
void Engine::SetControl(double squared_norm) {
  LossScale& state = *loss_scale_.data();
  const double scaled_norm = std::sqrt(squared_norm);
  norm_ = scaled_norm / state.scale;
  has_norm_ = true;
  double factor = 1;
  const bool finite = std::isfinite(scaled_norm);
  if (spec_.clip && finite) {
    factor = std::min(1.0, double{desc_.clip_norm} / (norm_ + kClipEpsilon));
  }
  state.control.gradient_scale = factor / state.scale;
  state.control.skip = finite ? 0 : 1;
  state.Advance(!finite, spec_.scales_loss ? desc_.loss_scale_window : 0);
  SetCorrections();
}

void Engine::SetCorrections() {
  LossScale& state = *loss_scale_.data();
  const double t =
      static_cast<double>(step_offset_ + steps_begun_) - state.skipped_steps;
  state.control.correction1 = 1 - std::pow(double{desc_.beta1}, t);
  state.control.correction2 = 1 - std::pow(double{desc_.beta2}, t);
}

float Engine::DecayOf(uint32_t parameter) const {
  return parameters_[parameter].num_dims >= 2 ? desc_.weight_decay : 0.0f;
}

template <typename Args>
void Engine::SetArgs(uint32_t bucket, const Segment& segment,
                     Args& args) const {
  const BucketMemory& memory = memory_[bucket];
  args.master = memory.my_masters + segment.in_shard;
  args.gradient_dtype = spec_.reduced(layout_.buckets[bucket]);
  args.gradient =
      memory.my_gradients + segment.in_shard * SizeOf(args.gradient_dtype);
  args.copy_dtype = spec_.precision.parameters;
  if (memory.my_copy != nullptr) {
    args.copy = memory.my_copy + segment.in_shard * SizeOf(args.copy_dtype);
  }
  args.count = segment.count;
  args.control = &loss_scale_.data()->control;
  args.decay = DecayOf(segment.parameter);
}

void Engine::AdamW(uint32_t bucket, float lr) const {
  const BucketMemory& memory = memory_[bucket];
  commsched_adamw_args_t args = {};
  args.lr = lr;
  args.beta1 = desc_.beta1;
  args.beta2 = desc_.beta2;
  args.epsilon = desc_.epsilon;
  float* m = memory.my_state;
  float* v = m + ShardCount(bucket);
  for (const Segment& segment : memory.segments) {
    SetArgs(bucket, segment, args);
    args.m = m + segment.in_shard;
    args.v = v + segment.in_shard;
    kernels_.adamw(kernels_.user, &args);
  }
}

void Engine::Sgd(uint32_t bucket, float lr) const {
  const BucketMemory& memory = memory_[bucket];
  commsched_sgd_args_t args = {};
  args.lr = lr;
  args.momentum = desc_.momentum;
  args.nesterov = desc_.nesterov;
  for (const Segment& segment : memory.segments) {
    SetArgs(bucket, segment, args);
    if (spec_.moments > 0) {
      args.velocity = memory.my_state + segment.in_shard;
    }
    kernels_.sgd(kernels_.user, &args);
  }
}

}  // namespace commsched::engine
