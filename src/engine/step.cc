// The step.

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ranges>

#include "engine.h"

namespace commsched::engine {
namespace {

// Added to the norm before dividing, as PyTorch's clip_grad_norm_ does.
constexpr double kClipEpsilon = 1e-6;

int64_t ThreadCpuNs() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

// ---- Order of calls ---------------------------------------------------------

std::string Engine::ModuleCall(bool backward, const char* which,
                               uint32_t module, uint32_t micro_batch) const {
  std::string call = backward ? "backward_" : "forward_";
  call += which;
  call += " of module " + std::to_string(module);
  if (module < modules_.size()) call += " '" + modules_[module].name + "'";
  return call + ", micro-batch " + std::to_string(micro_batch);
}

std::string Engine::ExpectedCall() const {
  switch (phase_) {
    case Phase::kRegistering:
    case Phase::kPrepared:
      return "build";
    case Phase::kBetweenSteps:
      return "step_begin";
    case Phase::kStepped:
      return "step_end";
    case Phase::kInOp:
    case Phase::kInModule:
      if (phase_ == Phase::kInOp || inner_ < ops()[cursor_].inner.size()) {
        return ExpectedOpCall();
      }
      break;
    case Phase::kBetweenModules:
      break;
  }
  if (recording_) return ExpectedRecordedCall();
  uint64_t next = cursor_;
  while (next < ops().size() && ops()[next].forward < next && CanSkip(next)) {
    ++next;
  }
  if (next == ops().size()) {
    return evaluating_ ? "evaluation_end" : "optimizer_step";
  }
  const ModuleOp& op = ops()[next];
  const bool begun = phase_ == Phase::kInModule;
  const std::string call = ModuleCall(op.backward, begun ? "end" : "begin",
                                      op.module, op.micro_batch);
  return !begun && CanSkip(next) ? call + ", or a later call" : call;
}

// A session that has failed is why a caller is out of step with the engine, so
// that failure comes first.
Status Engine::SessionFailure() const {
  ENGINE_RETURN_IF_ERROR(record_failure_);
  if (order_recording_ != nullptr) {
    ENGINE_RETURN_IF_ERROR(order_recording_->status());
  }
  for (const SessionHandle* session : {&session_, &forward_session_}) {
    if (*session == nullptr) continue;
    ENGINE_RETURN_IF_ERROR(Status::FromCall(
        commsched_session_status(session->get()), "the session has failed"));
  }
  return Status();
}

Status Engine::OutOfOrder(const std::string& call) const {
  ENGINE_RETURN_IF_ERROR(SessionFailure());
  return FailedPrecondition("engine: " + call + " was called; expected " +
                            ExpectedCall());
}

bool Engine::IsNext(bool backward, uint32_t module,
                    uint32_t micro_batch) const {
  if (cursor_ == ops().size()) return false;
  const ModuleOp& op = ops()[cursor_];
  return op.backward == backward && op.module == module &&
         op.micro_batch == micro_batch;
}

// ---- Running ops ------------------------------------------------------------

Status Engine::Before(commsched_op_id_t op) {
  const commsched_status_t code =
      commsched_session_before(running(), op, commsched_stream_caller());
  if (code != COMMSCHED_OK) return Status::FromCall(code, "before an op");
  if (measuring()) op_begin_ns_ = ThreadCpuNs();
  return Status();
}

void Engine::Measure(commsched_op_id_t op) {
  if (!measuring()) return;
  int64_t& least = op_cost_ns_[op];
  least = std::min(least, ThreadCpuNs() - op_begin_ns_);
}

Status Engine::After(commsched_op_id_t op) {
  return Status::FromCall(
      commsched_session_after(running(), op, commsched_stream_caller()),
      "after an op");
}

template <typename Body>
Status Engine::Run(commsched_op_id_t op, Body&& body) {
  ENGINE_RETURN_IF_ERROR(Before(op));
  body();
  Measure(op);
  return After(op);
}

Status Engine::StepBegin() {
  if (phase_ != Phase::kBetweenSteps) return OutOfOrder("step_begin");
  ENGINE_RETURN_IF_ERROR(SessionFailure());  // Of evaluations, too.
  ENGINE_RETURN_IF_ERROR(
      recording_
          ? BeginRecordedPass()
          : Status::FromCall(commsched_session_step_begin(session_.get()),
                             "beginning a step"));
  phase_ = Phase::kBetweenModules;
  cursor_ = 0;
  drained_ = false;
  ++steps_begun_;
  return Status();
}

Status Engine::CheckVersion(const ModuleOp& op, uint32_t bucket,
                            commsched_buffer_id_t buffer,
                            uint64_t expected) const {
  uint64_t version = 0;
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_session_buffer_version(session_.get(), buffer, &version),
      "reading a bucket's version"));
  version += first_step_;
  if (version == expected) return Status();
  return FailedPrecondition(
      "engine: parameter bucket " + std::to_string(bucket) + " of module '" +
      modules_[op.module].name + "' was written by " + std::to_string(version) +
      " steps; " + (op.backward ? "backward" : "forward") + " needs that of " +
      std::to_string(expected));
}

// I12: after `before` the parameters must be those of the last step, and what
// is gathered must have been so in this step.
Status Engine::CheckVersions(const ModuleOp& op) const {
  const std::vector<uint32_t>& buckets = layout_.module_buckets[op.module];
  for (size_t i = 0; i < buckets.size(); ++i) {
    const uint32_t b = buckets[i];
    const BucketIds& ids = graph_.buckets[b];
    const bool gather = gathered(b);
    ENGINE_RETURN_IF_ERROR(CheckVersion(
        op, b, gather ? ids.parameter_shard : ids.parameters, steps_done_));
    if (!gather) continue;
    ENGINE_RETURN_IF_ERROR(CheckVersion(op, b, op.values[i], steps_done_ + 1));
  }
  return Status();
}

// Gathered buckets are whole while an op that uses them runs, and so are
// short-lived gradients. The module ops of an evaluation find them where the
// first of the step do.
void Engine::ShowBuckets() {
  const OpAddresses& at = addresses_[cursor_];
  const std::vector<uint32_t>& buckets =
      layout_.module_buckets[ops()[cursor_].module];
  for (size_t i = 0; i < buckets.size(); ++i) {
    BucketMemory& memory = memory_[buckets[i]];
    if (at.values[i] != nullptr) memory.all_parameters = at.values[i];
    if (at.gradients[i] != nullptr) memory.all_gradients = at.gradients[i];
  }
}

void Engine::HideModule(uint32_t module) {
  for (uint32_t b : layout_.module_buckets[module]) {
    if (gathered(b)) memory_[b].all_parameters = nullptr;
    if (short_lived_gradients(b)) memory_[b].all_gradients = nullptr;
  }
}

Status Engine::ModuleBegin(bool backward, uint32_t module,
                           uint32_t micro_batch) {
  if (recording_) {
    if (!backward && micro_batch == 0) return RecordForward(module);
    if (!EndsRecordedForward(backward, module, micro_batch)) {
      return OutOfOrder(ModuleCall(backward, "begin", module, micro_batch));
    }
    ENGINE_RETURN_IF_ERROR(EndRecording());
  }
  const uint64_t index = FindOp(backward, module, micro_batch);
  if (phase_ != Phase::kBetweenModules || !CanSkipTo(index)) {
    return OutOfOrder(ModuleCall(backward, "begin", module, micro_batch));
  }
  ENGINE_RETURN_IF_ERROR(SkipTo(index));
  const ModuleOp& op = ops()[cursor_];
  if (op.forward == cursor_) skipped_[cursor_] = 0;
  if (evaluating_) return EvaluationModuleBegin(op);
  ENGINE_RETURN_IF_ERROR(BeginStepOp(op));
  phase_ = Phase::kInModule;
  if (backward && spec_.zero_stage != 3) return Status();
  return CheckVersions(op);
}

// Its parameters are there then, and its gradients can be added to.
Status Engine::BeginStepOp(const ModuleOp& op) {
  for (const Accumulation& each : op.accumulations) {
    ENGINE_RETURN_IF_ERROR(Accumulate(each.bucket, each.op, each.first));
  }
  ENGINE_RETURN_IF_ERROR(Before(op.op));
  open_op_ = op.op;
  ShowBuckets();
  for (uint32_t b : op.zeroed) {
    kernels_.zero(kernels_.user, memory_[b].all_gradients,
                  layout_.buckets[b].count * SizeOf(spec_.precision.gradients));
  }
  return Status();
}

Status Engine::ModuleEnd(bool backward, uint32_t module, uint32_t micro_batch) {
  if (recording_) return RecordForwardEnd(backward, module, micro_batch);
  if (phase_ != Phase::kInModule || !IsNext(backward, module, micro_batch) ||
      inner_ < ops()[cursor_].inner.size()) {
    return OutOfOrder(ModuleCall(backward, "end", module, micro_batch));
  }
  HideBuckets();
  ENGINE_RETURN_IF_ERROR(EndOpenOp());
  ENGINE_RETURN_IF_ERROR(ConvertGradients(ops()[cursor_], addresses_[cursor_]));
  phase_ = Phase::kBetweenModules;
  ++cursor_;
  inner_ = 0;
  return Status();
}

Status Engine::StepEnd() {
  if (phase_ != Phase::kStepped) return OutOfOrder("step_end");
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_session_step_end(session_.get()), "ending a step"));
  phase_ = Phase::kBetweenSteps;
  ++steps_done_;
  return Status();
}

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
  if (stepped.ok() || SessionFailure().ok()) return stepped;
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
      !CanSkipTo(ops().size())) {
    return OutOfOrder("optimizer_step");
  }
  ENGINE_RETURN_IF_ERROR(SkipTo(ops().size()));
  if (!spec_.scales_loss) SetCorrections();
  if (spec_.needs_norm()) ENGINE_RETURN_IF_ERROR(ComputeNorm());
  for (uint32_t b : graph_.first_use) {
    if (!spec_.needs_norm()) ENGINE_RETURN_IF_ERROR(FinishGradients(b));
    ENGINE_RETURN_IF_ERROR(Run(graph_.buckets[b].optimizer,
                               [&] { spec_.sgd ? Sgd(b, lr) : AdamW(b, lr); }));
  }
  phase_ = Phase::kStepped;
  return Status();
}

Status Engine::Accumulate(uint32_t bucket, commsched_op_id_t op, bool first) {
  const BucketMemory& memory = memory_[bucket];
  const Precision& precision = spec_.precision;
  const auto combine = first ? kernels_.convert : kernels_.add;
  return Run(op, [&] {
    combine(kernels_.user, memory.shard.data(), precision.accumulated,
            memory.my_summand, precision.reduced,
            layout_.buckets[bucket].count / spec_.num_shards());
  });
}

// Of a backward: gradients that are not of the type they add up in, or travel.
Status Engine::ConvertGradients(const ModuleOp& op, const OpAddresses& at) {
  for (size_t i = 0; i < op.conversions.size(); ++i) {
    const Conversion& each = op.conversions[i];
    const auto& [from, into] = at.conversions[i];
    const auto combine = each.adds ? kernels_.add : kernels_.convert;
    ENGINE_RETURN_IF_ERROR(Run(each.op, [&, from = from, into = into] {
      combine(kernels_.user, into, each.into_dtype, from, each.from_dtype,
              each.count);
    }));
  }
  return Status();
}

// Adds the last micro-batch, unless it was reduced with the others.
Status Engine::FinishGradients(uint32_t bucket) {
  const commsched_op_id_t op = graph_.buckets[bucket].accumulate;
  return op == kNoId ? Status() : Accumulate(bucket, op, /*first=*/false);
}

// The buckets in the order in which their reductions arrive.
Status Engine::ComputeNorm() {
  for (uint32_t b : std::views::reverse(graph_.first_use)) {
    ENGINE_RETURN_IF_ERROR(FinishGradients(b));
    ENGINE_RETURN_IF_ERROR(Run(graph_.buckets[b].squares, [&] { Squares(b); }));
  }
  if (spec_.reduces_norm()) {
    ENGINE_RETURN_IF_ERROR(
        Run(graph_.local_total, [&] { *total_.data() = LocalTotal(); }));
  }
  return Run(graph_.norm, [&] {
    SetControl(spec_.reduces_norm() ? *total_.data() : AddAllSums());
  });
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
  for (uint64_t i = 0; i < local_sums_.count(); ++i) {
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
    total += sums[shard * graph_.local_blocks +
                  graph_.sums_offset[slot.bucket] + in_shard];
  }
  return total;
}

// A reduced gradient that is not finite makes the norm so, on every rank.
void Engine::SetControl(double squared_norm) {
  LossScale& state = *loss_scale_.data();
  const double scaled_norm = std::sqrt(squared_norm);
  norm_ = scaled_norm / state.scale;
  has_norm_ = true;
  double factor = 1;
  if (spec_.clip) {
    factor = std::min(1.0, double{desc_.clip_norm} / (norm_ + kClipEpsilon));
  }
  state.control.gradient_scale = factor / state.scale;
  if (!spec_.scales_loss) return;
  const bool overflowed = !std::isfinite(scaled_norm);
  state.control.skip = overflowed ? 1 : 0;
  state.Advance(overflowed, desc_.loss_scale_window);
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
  float* m = memory.state.data();
  float* v = m + memory.state.count() / 2;
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
      args.velocity = memory.state.data() + segment.in_shard;
    }
    kernels_.sgd(kernels_.user, &args);
  }
}

}  // namespace commsched::engine
