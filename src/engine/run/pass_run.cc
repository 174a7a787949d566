#include "engine/run/pass_run.h"

#include <algorithm>
#include <string>
#include <vector>

namespace commsched::engine {

Status PassRun::Begin(bool evaluating, uint64_t index) {
  evaluating_ = evaluating;
  index_ = index;
  ops_ = evaluating ? &plan_->forward().pass_ops[index]
                    : &plan_->graph().pass_ops[index];
  next_ = 0;
  is_sent_.assign(ops_->ready.size(), 0);
  said_.assign(spec_.model->modules()[pass().module].used.size(), 0);
  if (evaluating && !spec_.bound->evaluation_meets()) return Status();
  if (!evaluating) ENGINE_RETURN_IF_ERROR(spec_.update->TakeTurns(index));
  for (const Accumulation& each : ops_->accumulations) {
    ENGINE_RETURN_IF_ERROR(
        spec_.update->Accumulate(each.bucket, each.op, each.first));
  }
  ENGINE_RETURN_IF_ERROR(spec_.bound->Before(ops_->op));
  open_op_ = ops_->op;
  spec_.bound->ShowBuckets(evaluating, index, pass().module);
  for (uint32_t b : ops_->zeroed) ENGINE_RETURN_IF_ERROR(Zero(b));
  return Status();
}

Status PassRun::Zero(uint32_t bucket) {
  const Bucket& of = plan_->layout().buckets[bucket];
  return spec_.kernels->Zero(spec_.state->bucket(bucket).all_gradients,
                             of.count * SizeOf(of.dtype));
}

Status PassRun::ZeroAll() {
  if (evaluating_ || !AddsGradients(pass().kind)) return Status();
  for (uint32_t b : plan_->layout().module_buckets[pass().module]) {
    if (plan_->layout().buckets[b].frozen) continue;
    ENGINE_RETURN_IF_ERROR(Zero(b));
  }
  return Status();
}

Status PassRun::End() {
  ENGINE_RETURN_IF_ERROR(EndOpenOp());
  NoteGradients();
  return Finish();
}

void PassRun::NoteGradients() {
  if (evaluating_ || !AddsGradients(pass().kind)) return;
  const std::vector<uint32_t>& used =
      spec_.model->modules()[pass().module].used;
  for (size_t u = 0; u < used.size(); ++u) {
    if (said_[u] != kAbsent) spec_.update->NoteGradient(used[u]);
  }
}

Status PassRun::Finish() {
  for (size_t i = 0; i < ops_->ready.size(); ++i) {
    ENGINE_RETURN_IF_ERROR(Send(i));
  }
  spec_.state->HideBuckets(*plan_, pass().module);
  if (ops_->tail == kNoId) {
    ENGINE_RETURN_IF_ERROR(ConvertGradients());
  } else {
    ENGINE_RETURN_IF_ERROR(spec_.bound->Before(ops_->tail));
    ENGINE_RETURN_IF_ERROR(spec_.bound->After(ops_->tail));
  }
  if (evaluating_) return Status();
  return spec_.update->TakeTurns(index_ + 1, /*adds=*/false);
}

// ---- Gradients that are ready -----------------------------------------------

Status PassRun::Ready(uint32_t parameter) {
  if (has_op()) {
    return FailedPrecondition("engine: gradient_ready of '" +
                              spec_.model->parameters()[parameter].name +
                              "' before the ops of module '" +
                              spec_.model->modules()[pass().module].name +
                              "' are over");
  }
  ENGINE_RETURN_IF_ERROR(Note("gradient_ready", parameter, kReady));
  spec_.update->NoteGradient(parameter);
  return SendReady();
}

// What is absent is ready, too.
Status PassRun::Absent(uint32_t parameter) {
  ENGINE_RETURN_IF_ERROR(Note("gradient_absent", parameter, kAbsent));
  return has_op() ? Status() : SendReady();
}

Status PassRun::CheckUnsaid(uint32_t parameter) const {
  return RefuseSaid("gradient_begin", parameter);
}

size_t PassRun::UseOf(uint32_t parameter) const {
  const std::vector<uint32_t>& used =
      spec_.model->modules()[pass().module].used;
  return static_cast<size_t>(std::find(used.begin(), used.end(), parameter) -
                             used.begin());
}

Status PassRun::RefuseSaid(const char* call, uint32_t parameter) const {
  const uint8_t said = said_[UseOf(parameter)];
  if (said == 0) return Status();
  return FailedPrecondition(
      std::string("engine: ") + call + " of '" +
      spec_.model->parameters()[parameter].name + "', which was " +
      (said == kReady ? "ready" : "absent") + " in this pass before");
}

Status PassRun::Note(const char* call, uint32_t parameter, uint8_t said) {
  ENGINE_RETURN_IF_ERROR(RefuseSaid(call, parameter));
  said_[UseOf(parameter)] = said;
  return Status();
}

bool PassRun::IsReady(uint32_t bucket) const {
  const std::vector<uint32_t>& used =
      spec_.model->modules()[pass().module].used;
  for (size_t u = 0; u < used.size(); ++u) {
    const bool here = plan_->layout().slots[used[u]].bucket == bucket;
    if (here && said_[u] == 0) return false;
  }
  return true;
}

Status PassRun::SendReady() {
  for (size_t i = 0; i < ops_->ready.size(); ++i) {
    if (!IsReady(ops_->ready[i].bucket)) break;
    ENGINE_RETURN_IF_ERROR(Send(i));
  }
  return Status();
}

Status PassRun::Send(size_t index) {
  if (is_sent_[index] != 0) return Status();
  is_sent_[index] = 1;
  const BucketReady& ready = ops_->ready[index];
  ENGINE_RETURN_IF_ERROR(EndOpenOp());
  ENGINE_RETURN_IF_ERROR(spec_.bound->Before(ready.op));
  if (cancelled_) ENGINE_RETURN_IF_ERROR(Zero(ready.bucket));
  ENGINE_RETURN_IF_ERROR(spec_.bound->After(ready.op));
  return ConvertGradients(ready.bucket);
}

Status PassRun::BeginOp() {
  ENGINE_RETURN_IF_ERROR(EndOpenOp());
  ENGINE_RETURN_IF_ERROR(spec_.bound->Before(ops_->inner[next_]));
  open_op_ = ops_->inner[next_];
  return Status();
}

Status PassRun::EndOp() {
  ENGINE_RETURN_IF_ERROR(EndOpenOp());
  ++next_;
  return Status();
}

// What runs now, if the engine has an op for it.
Status PassRun::EndOpenOp() {
  if (open_op_ == kNoId) return Status();
  spec_.bound->Measure(open_op_);
  // It stays open if that fails, so that a second end fails, too.
  ENGINE_RETURN_IF_ERROR(spec_.bound->After(open_op_));
  open_op_ = kNoId;
  return Status();
}

Status PassRun::RunEmpty(bool evaluating, uint64_t index) {
  ENGINE_RETURN_IF_ERROR(Begin(evaluating, index));
  if (cancelled_) ENGINE_RETURN_IF_ERROR(ZeroAll());
  if (open_op_ != kNoId) {
    ENGINE_RETURN_IF_ERROR(spec_.bound->After(open_op_));
    open_op_ = kNoId;
  }
  ENGINE_RETURN_IF_ERROR(RunOpsEmpty());
  return Finish();
}

Status PassRun::RunOpsEmpty() {
  for (; next_ < ops_->inner.size(); ++next_) {
    ENGINE_RETURN_IF_ERROR(spec_.bound->Before(ops_->inner[next_]));
    ENGINE_RETURN_IF_ERROR(spec_.bound->After(ops_->inner[next_]));
  }
  return Status();
}

// Memory of gradients may be touched in the op of the pass and, once that is
// over, in those ops of its module that add to them. What none of these adds to
// has been sent.
Status PassRun::Cancel() {
  if (open_op_ != kNoId && open_op_ == ops_->op) {
    ENGINE_RETURN_IF_ERROR(ZeroAll());
    ENGINE_RETURN_IF_ERROR(EndOpenOp());
    ENGINE_RETURN_IF_ERROR(RunOpsEmpty());
  }
  while (has_op()) {
    if (open_op_ == kNoId) ENGINE_RETURN_IF_ERROR(BeginOp());
    ENGINE_RETURN_IF_ERROR(ZeroInOp());
    ENGINE_RETURN_IF_ERROR(EndOp());
  }
  return Finish();
}

// Zeroes the gradients that the op which has begun adds to.
Status PassRun::ZeroInOp() {
  if (!AddsGradients(pass().kind)) return Status();
  uint64_t op = 0;
  for (const ModuleStep& step : StepsHere()) {
    if (step.is_collective || op++ != next_op()) continue;
    for (uint32_t b : plan_->layout().BucketsOf(step.gradients)) {
      ENGINE_RETURN_IF_ERROR(Zero(b));
    }
  }
  return Status();
}

// Converts gradients of a backward that are not of the type in which they add
// up, or travel. Once a step is cancelled there is nothing in their sum.
Status PassRun::ConvertGradients(uint32_t bucket) {
  const std::vector<Conversion>& conversions = ops_->conversions;
  for (size_t i = 0; i < conversions.size(); ++i) {
    const Conversion& each = conversions[i];
    if (bucket != kNoId && each.bucket != bucket) continue;
    const auto& [from, into] = spec_.bound->conversions(index_)[i];
    ENGINE_RETURN_IF_ERROR(spec_.bound->Run(each.op, [&, from = from,
                                                      into = into] {
      if (cancelled_ && each.adds) {
        return spec_.kernels->Zero(into, each.count * SizeOf(each.into_dtype));
      }
      const auto combine = each.adds ? &Kernels::Add : &Kernels::Convert;
      return (spec_.kernels->*combine)(into, each.into_dtype, from,
                                       each.from_dtype, each.count);
    }));
  }
  return Status();
}

}  // namespace commsched::engine
