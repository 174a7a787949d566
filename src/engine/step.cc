// The step.

#include <time.h>

#include <algorithm>
#include <optional>

#include "engine.h"

namespace commsched::engine {
namespace {

int64_t ThreadCpuNs() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

// ---- Order of calls ---------------------------------------------------------

std::string Engine::ModuleCall(bool backward, const char* which,
                               uint32_t module, uint32_t micro_batch) const {
  return CallText(
      which,
      {.module = module, .micro_batch = micro_batch, .backward = backward},
      module < model_.modules().size() ? model_.modules()[module].name : "");
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
      if (phase_ == Phase::kInOp || inner_ < pass_ops().inner.size()) {
        return ExpectedOpCall();
      }
      break;
    case Phase::kBetweenModules:
      break;
  }
  if (recording_) return ExpectedRecordedCall();
  if (phase_ == Phase::kInModule) return cursor().ExpectedEnd();
  return cursor().Expected(evaluating_ ? "evaluation_end" : "optimizer_step");
}

// A session that has failed is why a caller is out of step with the engine, so
// that failure comes first.
Status Engine::SessionFailure() const {
  ENGINE_RETURN_IF_ERROR(record_failure_);
  ENGINE_RETURN_IF_ERROR(verdict_);
  if (offload_ != nullptr) ENGINE_RETURN_IF_ERROR(offload_->failure());
  return FailureOfSessions();
}

Status Engine::FailureOfSessions() const {
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

Status Engine::OutOfOrder(const std::string& call, const char* advice) const {
  ENGINE_RETURN_IF_ERROR(SessionFailure());
  return FailedPrecondition("engine: " + call + " was called; expected " +
                            ExpectedCall() + advice);
}

// What helps where the order of modules has changed for good, if the call can
// be part of an order, and that can be recorded.
const char* Engine::AdviceOnOrder(uint32_t module, uint32_t micro_batch) const {
  if (module >= model_.modules().size() ||
      micro_batch > cursor().passes().back().micro_batch ||
      !CheckCanRecord().ok()) {
    return "";
  }
  return "; a program whose order has changed for good calls "
         "commsched_engine_record_order() between steps";
}

// ---- Running ops ------------------------------------------------------------

Status Engine::Before(commsched_op_id_t op) {
  const commsched_status_t code =
      commsched_session_before(running(), op, kernels_.stream());
  if (code != COMMSCHED_OK) return FromSession(code, "before an op");
  if (measuring()) op_begin_ns_ = ThreadCpuNs();
  return Status();
}

void Engine::Measure(commsched_op_id_t op) {
  if (!measuring()) return;
  int64_t& least = op_cost_ns_[op];
  least = std::min(least, ThreadCpuNs() - op_begin_ns_);
}

Status Engine::After(commsched_op_id_t op) {
  return FromSession(commsched_session_after(running(), op, kernels_.stream()),
                     "after an op");
}

Status Engine::FromSession(commsched_status_t code, const char* context) const {
  if (code == COMMSCHED_OK) return Status();
  if (offload_ != nullptr) ENGINE_RETURN_IF_ERROR(offload_->failure());
  return Status::FromCall(code, context);
}

Status Engine::BeginSessionStep() {
  return FromSession(commsched_session_step_begin(session_.get()),
                     "beginning a step");
}

Status Engine::StepBegin() {
  if (phase_ != Phase::kBetweenSteps) return OutOfOrder("step_begin");
  ENGINE_RETURN_IF_ERROR(SessionFailure());  // Of evaluations, too.
  ENGINE_RETURN_IF_ERROR(CheckReports());
  if (unchecked_.load(std::memory_order_relaxed)) {
    ENGINE_RETURN_IF_ERROR(CompareValues());
  }
  ENGINE_RETURN_IF_ERROR(recording_ ? BeginRecordedPass() : BeginSessionStep());
  phase_ = Phase::kBetweenModules;
  step_cursor_.Restart();
  drained_ = false;
  ++steps_begun_;
  return recording_ ? Status() : FetchFirst();
}

Status Engine::CheckVersion(const Pass& pass, uint32_t bucket,
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
      model_.modules()[pass.module].name + "' holds the values after " +
      std::to_string(version) + " steps; " +
      (pass.backward ? "backward" : "forward") + " needs those after " +
      std::to_string(expected));
}

// I12: after `before` the parameters must be those of the last step, and what
// is gathered must have been so in this step. A stream has that before it by
// the plan's proof, of which the host hears later.
Status Engine::CheckVersions() const {
  if (kernels_.stream().kind != COMMSCHED_STREAM_CALLER) return Status();
  const Pass& pass = cursor().pass();
  const PassOps& ops = pass_ops();
  const std::vector<uint32_t>& buckets = layout().module_buckets[pass.module];
  for (size_t i = 0; i < buckets.size(); ++i) {
    const uint32_t b = buckets[i];
    const BucketIds& ids = graph().buckets[b];
    const bool gather = gathered(b);
    ENGINE_RETURN_IF_ERROR(
        CheckVersion(pass, b, ids.of(BufferKind::kParameters), steps_done_));
    if (!gather) continue;
    ENGINE_RETURN_IF_ERROR(
        CheckVersion(pass, b, ops.values[i], steps_done_ + 1));
  }
  return Status();
}

// Gathered buckets are whole while an op that uses them runs, and so are
// short-lived gradients. The passes of an evaluation find them where the
// first of the step do.
void Engine::ShowBuckets() {
  const PassAddresses& at = addresses_[cursor().index()];
  const std::vector<uint32_t>& buckets =
      layout().module_buckets[cursor().pass().module];
  for (size_t i = 0; i < buckets.size(); ++i) {
    BucketMemory& memory = state_.bucket(buckets[i]);
    if (at.values[i] != nullptr) memory.all_parameters = at.values[i];
    if (at.gradients[i] != nullptr) memory.all_gradients = at.gradients[i];
  }
}

void Engine::HideModule(uint32_t module) {
  for (uint32_t b : layout().module_buckets[module]) {
    if (gathered(b)) state_.bucket(b).all_parameters = nullptr;
    if (short_lived_gradients(b)) state_.bucket(b).all_gradients = nullptr;
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
  if (phase_ != Phase::kBetweenModules) {
    return OutOfOrder(ModuleCall(backward, "begin", module, micro_batch));
  }
  const std::optional<uint64_t> index =
      cursor().Next({backward, module, micro_batch});
  if (!index.has_value()) {
    return OutOfOrder(ModuleCall(backward, "begin", module, micro_batch),
                      AdviceOnOrder(module, micro_batch));
  }
  ENGINE_RETURN_IF_ERROR(PassTo(*index));
  cursor().Begin(/*left_out=*/false);
  const PassOps& ops = pass_ops();
  if (evaluating_) return EvaluationModuleBegin(ops);
  ENGINE_RETURN_IF_ERROR(BeginPassOps(ops));
  phase_ = Phase::kInModule;
  if (backward && spec_.zero_stage != 3) return Status();
  return CheckVersions();
}

// Its parameters are there then, and its gradients can be added to.
Status Engine::BeginPassOps(const PassOps& ops) {
  for (const Accumulation& each : ops.accumulations) {
    ENGINE_RETURN_IF_ERROR(Accumulate(each.bucket, each.op, each.first));
  }
  ENGINE_RETURN_IF_ERROR(Before(ops.op));
  open_op_ = ops.op;
  ShowBuckets();
  for (uint32_t b : ops.zeroed) {
    ENGINE_RETURN_IF_ERROR(kernels_.Zero(
        state_.bucket(b).all_gradients,
        layout().buckets[b].count * SizeOf(spec_.precision.parameters)));
  }
  return Status();
}

Status Engine::ModuleEnd(bool backward, uint32_t module, uint32_t micro_batch) {
  if (recording_) return RecordForwardEnd(backward, module, micro_batch);
  if (phase_ != Phase::kInModule ||
      !cursor().IsAt({backward, module, micro_batch}) ||
      inner_ < pass_ops().inner.size()) {
    return OutOfOrder(ModuleCall(backward, "end", module, micro_batch));
  }
  HideBuckets();
  ENGINE_RETURN_IF_ERROR(EndOpenOp());
  ENGINE_RETURN_IF_ERROR(
      ConvertGradients(pass_ops(), addresses_[cursor().index()]));
  phase_ = Phase::kBetweenModules;
  cursor().Advance();
  inner_ = 0;
  return Status();
}

Status Engine::StepEnd() {
  if (phase_ != Phase::kStepped) return OutOfOrder("step_end");
  ENGINE_RETURN_IF_ERROR(
      FromSession(commsched_session_step_end(session_.get()), "ending a step"));
  phase_ = Phase::kBetweenSteps;
  ++steps_done_;
  return Status();
}

// ---- Gradients of micro-batches ---------------------------------------------

Status Engine::Accumulate(uint32_t bucket, commsched_op_id_t op, bool first) {
  const BucketMemory& memory = state_.bucket(bucket);
  const Precision& precision = spec_.precision;
  const auto combine = first ? &Kernels::Convert : &Kernels::Add;
  return Run(op, [&] {
    return (kernels_.*combine)(memory.of(BufferKind::kShard).data(), kSumDType,
                               memory.my_summand, precision.reduced,
                               ShardCount(bucket));
  });
}

// Of a backward: gradients that are not of the type they add up in, or travel.
Status Engine::ConvertGradients(const PassOps& ops, const PassAddresses& at) {
  for (size_t i = 0; i < ops.conversions.size(); ++i) {
    const Conversion& each = ops.conversions[i];
    const auto& [from, into] = at.conversions[i];
    const auto combine = each.adds ? &Kernels::Add : &Kernels::Convert;
    ENGINE_RETURN_IF_ERROR(Run(each.op, [&, from = from, into = into] {
      return (kernels_.*combine)(into, each.into_dtype, from, each.from_dtype,
                                 each.count);
    }));
  }
  return Status();
}

}  // namespace commsched::engine
