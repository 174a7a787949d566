// The step, and what may be called between steps.

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstring>

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
    case Phase::kBetweenModules:
    case Phase::kInModule:
      break;
  }
  if (cursor_ == graph_.module_ops.size()) return "optimizer_step";
  const ModuleOp& op = graph_.module_ops[cursor_];
  return ModuleCall(op.backward, phase_ == Phase::kInModule ? "end" : "begin",
                    op.module, op.micro_batch);
}

// A session that has failed is why a caller is out of step with the engine, so
// that failure comes first.
Status Engine::SessionFailure() const {
  if (session_ == nullptr) return Status();
  return Status::FromCall(commsched_session_status(session_.get()),
                          "the session has failed");
}

Status Engine::OutOfOrder(const std::string& call) const {
  ENGINE_RETURN_IF_ERROR(SessionFailure());
  return FailedPrecondition("engine: " + call + " was called; expected " +
                            ExpectedCall());
}

bool Engine::IsNext(bool backward, uint32_t module,
                    uint32_t micro_batch) const {
  if (cursor_ == graph_.module_ops.size()) return false;
  const ModuleOp& op = graph_.module_ops[cursor_];
  return op.backward == backward && op.module == module &&
         op.micro_batch == micro_batch;
}

// ---- Running ops ------------------------------------------------------------

Status Engine::Before(commsched_op_id_t op) {
  const commsched_status_t code =
      commsched_session_before(session_.get(), op, commsched_stream_caller());
  if (code != COMMSCHED_OK) return Status::FromCall(code, "before an op");
  if (steps_begun_ <= desc_.measure_steps) op_begin_ns_ = ThreadCpuNs();
  return Status();
}

Status Engine::After(commsched_op_id_t op) {
  if (steps_begun_ <= desc_.measure_steps) {
    int64_t& least = op_cost_ns_[op];
    least = std::min(least, ThreadCpuNs() - op_begin_ns_);
  }
  return Status::FromCall(
      commsched_session_after(session_.get(), op, commsched_stream_caller()),
      "after an op");
}

template <typename Body>
Status Engine::Run(commsched_op_id_t op, Body&& body) {
  ENGINE_RETURN_IF_ERROR(Before(op));
  body();
  return After(op);
}

Status Engine::StepBegin() {
  if (phase_ != Phase::kBetweenSteps) return OutOfOrder("step_begin");
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_session_step_begin(session_.get()), "beginning a step"));
  phase_ = Phase::kBetweenModules;
  cursor_ = 0;
  drained_ = false;
  ++steps_begun_;
  return Status();
}

// I12: after `before` the parameters must be those of the last step.
Status Engine::CheckVersions(const ModuleOp& op) const {
  for (uint32_t b : layout_.module_buckets[op.module]) {
    uint64_t version = 0;
    ENGINE_RETURN_IF_ERROR(Status::FromCall(
        commsched_session_buffer_version(
            session_.get(), graph_.buckets[b].parameters, &version),
        "reading a bucket's version"));
    if (version == steps_done_) continue;
    return FailedPrecondition(
        "engine: parameter bucket " + std::to_string(b) + " of module '" +
        modules_[op.module].name + "' has the values of step " +
        std::to_string(version) + "; forward needs those of step " +
        std::to_string(steps_done_));
  }
  return Status();
}

Status Engine::ModuleBegin(bool backward, uint32_t module,
                           uint32_t micro_batch) {
  if (phase_ != Phase::kBetweenModules ||
      !IsNext(backward, module, micro_batch)) {
    return OutOfOrder(ModuleCall(backward, "begin", module, micro_batch));
  }
  const ModuleOp& op = graph_.module_ops[cursor_];
  ENGINE_RETURN_IF_ERROR(Before(op.op));
  phase_ = Phase::kInModule;
  if (!backward) return CheckVersions(op);
  for (uint32_t b : op.zeroed) {
    kernels_.zero(kernels_.user, memory_[b].all_gradients,
                  layout_.buckets[b].count);
  }
  return Status();
}

Status Engine::ModuleEnd(bool backward, uint32_t module, uint32_t micro_batch) {
  if (phase_ != Phase::kInModule || !IsNext(backward, module, micro_batch)) {
    return OutOfOrder(ModuleCall(backward, "end", module, micro_batch));
  }
  ENGINE_RETURN_IF_ERROR(After(graph_.module_ops[cursor_].op));
  phase_ = Phase::kBetweenModules;
  ++cursor_;
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
    ENGINE_RETURN_IF_ERROR(RefusePoisoned(call, "gradients", b, ids.gradients));
    ENGINE_RETURN_IF_ERROR(
        RefusePoisoned(call, "parameters", b, ids.parameters));
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
  if (phase_ != Phase::kBetweenModules || cursor_ != graph_.module_ops.size()) {
    return OutOfOrder("optimizer_step");
  }
  if (spec_.clip) ENGINE_RETURN_IF_ERROR(ComputeNorm());
  commsched_adamw_args_t args = {};
  args.lr = lr;
  args.beta1 = desc_.beta1;
  args.beta2 = desc_.beta2;
  args.epsilon = desc_.epsilon;
  const double t = static_cast<double>(steps_begun_);
  args.correction1 = static_cast<float>(1 - std::pow(double{desc_.beta1}, t));
  args.correction2 = static_cast<float>(1 - std::pow(double{desc_.beta2}, t));
  for (uint32_t b = 0; b < memory_.size(); ++b) {
    ENGINE_RETURN_IF_ERROR(
        Run(graph_.buckets[b].optimizer, [&] { AdamW(b, args); }));
  }
  phase_ = Phase::kStepped;
  return Status();
}

// The buckets in the order in which their reductions arrive.
Status Engine::ComputeNorm() {
  for (uint32_t b = static_cast<uint32_t>(memory_.size()); b-- > 0;) {
    ENGINE_RETURN_IF_ERROR(Run(graph_.buckets[b].squares, [&] { Squares(b); }));
  }
  if (spec_.reduces_norm()) {
    ENGINE_RETURN_IF_ERROR(
        Run(graph_.local_total, [&] { *total_.data() = LocalTotal(); }));
  }
  return Run(graph_.norm, [&] {
    SetFactor(spec_.reduces_norm() ? *total_.data() : AddAllSums());
  });
}

void Engine::Squares(uint32_t bucket) {
  const BucketMemory& memory = memory_[bucket];
  double* sums = local_sums_.data() + graph_.sums_offset[bucket];
  for (const Segment& segment : memory.segments) {
    kernels_.block_squares(
        kernels_.user, memory.my_gradients + segment.in_shard, segment.count,
        sums + segment.in_shard / kBlockElements);
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

void Engine::SetFactor(double squared_norm) {
  norm_ = std::sqrt(squared_norm);
  has_norm_ = true;
  *factor_.data() =
      std::min(1.0, double{desc_.clip_norm} / (norm_ + kClipEpsilon));
}

void Engine::AdamW(uint32_t bucket, commsched_adamw_args_t args) const {
  const BucketMemory& memory = memory_[bucket];
  float* m = memory.state.data();
  float* v = m + memory.state.count() / 2;
  args.gradient_scale = spec_.clip ? static_cast<float>(*factor_.data()) : 1.0f;
  for (const Segment& segment : memory.segments) {
    args.master = memory.my_parameters + segment.in_shard;
    args.m = m + segment.in_shard;
    args.v = v + segment.in_shard;
    args.gradient = memory.my_gradients + segment.in_shard;
    args.count = segment.count;
    args.decay = parameters_[segment.parameter].num_dims >= 2
                     ? desc_.weight_decay
                     : 0.0f;
    kernels_.adamw(kernels_.user, &args);
  }
}

// ---- Between steps ----------------------------------------------------------

Status Engine::Drain() {
  if (phase_ != Phase::kBetweenSteps) return OutOfOrder("drain");
  ENGINE_RETURN_IF_ERROR(
      Status::FromCall(commsched_session_drain(session_.get()), "draining"));
  drained_ = true;
  return Status();
}

Status Engine::CheckDrained(const char* call) const {
  if (phase_ == Phase::kBetweenSteps && drained_) return Status();
  ENGINE_RETURN_IF_ERROR(SessionFailure());
  if (phase_ == Phase::kBetweenSteps) {
    return FailedPrecondition(std::string("engine: ") + call + " after step " +
                              std::to_string(steps_done_) + " without a drain");
  }
  return OutOfOrder(call);
}

Status Engine::CheckValues(const char* call, uint32_t parameter,
                           uint64_t count) const {
  ENGINE_RETURN_IF_ERROR(CheckParameterId(parameter));
  ENGINE_RETURN_IF_ERROR(CheckDrained(call));
  const Parameter& p = parameters_[parameter];
  if (count == p.count) return Status();
  return InvalidArgument(std::string("engine: ") + call + " of '" + p.name +
                         "' with " + std::to_string(count) +
                         " elements; it has " + std::to_string(p.count));
}

float* Engine::ParameterValues(uint32_t parameter) const {
  const Slot& slot = layout_.slots[parameter];
  return memory_[slot.bucket].parameters.data() + slot.offset;
}

Status Engine::SetParameter(uint32_t parameter, const float* values,
                            uint64_t count) {
  ENGINE_RETURN_IF_ERROR(CheckValues("set_parameter", parameter, count));
  std::memcpy(ParameterValues(parameter), values, count * sizeof(float));
  return Status();
}

Status Engine::GetParameter(uint32_t parameter, float* out_values,
                            uint64_t count) {
  ENGINE_RETURN_IF_ERROR(CheckParameterId(parameter));
  if (built()) {
    const uint32_t bucket = layout_.slots[parameter].bucket;
    ENGINE_RETURN_IF_ERROR(RefusePoisoned(
        "get_parameter of '" + parameters_[parameter].name + "'", "parameters",
        bucket, graph_.buckets[bucket].parameters));
  }
  ENGINE_RETURN_IF_ERROR(CheckValues("get_parameter", parameter, count));
  std::memcpy(out_values, ParameterValues(parameter), count * sizeof(float));
  return Status();
}

Status Engine::ParameterAddress(uint32_t parameter, const float** out_values,
                                float** out_gradient) {
  ENGINE_RETURN_IF_ERROR(CheckParameterId(parameter));
  if (!built()) return OutOfOrder("parameter_address");
  const Slot& slot = layout_.slots[parameter];
  *out_values = ParameterValues(parameter);
  *out_gradient = memory_[slot.bucket].all_gradients + slot.offset;
  return Status();
}

Status Engine::GradientNorm(double* out_norm) const {
  if (!spec_.clip) {
    return FailedPrecondition(
        "engine: gradient_norm with clip_norm 0: no norm is computed");
  }
  if (!has_norm_) {
    return FailedPrecondition("engine: gradient_norm before a first step");
  }
  *out_norm = norm_;
  return Status();
}

Status Engine::OpCosts(int64_t* out_ns, uint64_t num_ops) const {
  ENGINE_RETURN_IF_ERROR(CheckDrained("op_costs"));
  if (desc_.measure_steps == 0 || steps_done_ == 0) {
    return FailedPrecondition("engine: op_costs with measure_steps " +
                              std::to_string(desc_.measure_steps) + " after " +
                              std::to_string(steps_done_) + " steps");
  }
  if (num_ops != num_ops_) {
    return InvalidArgument("engine: op_costs with room for " +
                           std::to_string(num_ops) + " ops; the graph has " +
                           std::to_string(num_ops_));
  }
  std::vector<int64_t> costs(num_ops);
  ENGINE_RETURN_IF_ERROR(
      Status::FromCall(commsched_session_collective_cpu_ns(
                           session_.get(), costs.data(), num_ops),
                       "reading the cost of collectives"));
  for (uint64_t op = 0; op < num_ops; ++op) {
    const bool measured =
        op_cost_ns_[op] != std::numeric_limits<int64_t>::max();
    costs[op] = measured ? op_cost_ns_[op]
                         : costs[op] / static_cast<int64_t>(steps_done_);
  }
  std::copy(costs.begin(), costs.end(), out_ns);
  return Status();
}

}  // namespace commsched::engine
