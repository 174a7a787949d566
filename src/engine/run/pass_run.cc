#include "engine/run/pass_run.h"

#include <vector>

namespace commsched::engine {

Status PassRun::Begin(bool evaluating, uint64_t index) {
  evaluating_ = evaluating;
  index_ = index;
  ops_ = evaluating ? &plan_->forward().pass_ops[index]
                    : &plan_->graph().pass_ops[index];
  next_ = 0;
  if (evaluating && !spec_.bound->evaluation_meets()) return Status();
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
  return spec_.kernels->Zero(spec_.state->bucket(bucket).all_gradients,
                             plan_->layout().buckets[bucket].count *
                                 SizeOf(plan_->spec().precision.parameters));
}

Status PassRun::ZeroAll() {
  if (evaluating_ || !AddsGradients(pass().kind)) return Status();
  for (uint32_t b : plan_->layout().module_buckets[pass().module]) {
    ENGINE_RETURN_IF_ERROR(Zero(b));
  }
  return Status();
}

Status PassRun::End() {
  spec_.state->HideBuckets(*plan_, pass().module);
  ENGINE_RETURN_IF_ERROR(EndOpenOp());
  return ConvertGradients();
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
  spec_.state->HideBuckets(*plan_, pass().module);
  if (open_op_ != kNoId) {
    ENGINE_RETURN_IF_ERROR(spec_.bound->After(open_op_));
    open_op_ = kNoId;
  }
  ENGINE_RETURN_IF_ERROR(RunOpsEmpty());
  return ConvertGradients();
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
  if (open_op_ == ops_->op) {
    ENGINE_RETURN_IF_ERROR(ZeroAll());
    ENGINE_RETURN_IF_ERROR(EndOpenOp());
    ENGINE_RETURN_IF_ERROR(RunOpsEmpty());
  }
  while (has_op()) {
    if (open_op_ == kNoId) ENGINE_RETURN_IF_ERROR(BeginOp());
    ENGINE_RETURN_IF_ERROR(ZeroInOp());
    ENGINE_RETURN_IF_ERROR(EndOp());
  }
  spec_.state->HideBuckets(*plan_, pass().module);
  return ConvertGradients();
}

// Of the op that has begun.
Status PassRun::ZeroInOp() {
  if (!AddsGradients(pass().kind)) return Status();
  uint64_t op = 0;
  for (const ModuleStep& step :
       spec_.model->modules()[pass().module].steps[1]) {
    if (step.is_collective || op++ != next_) continue;
    for (uint32_t b : plan_->layout().BucketsOf(step.gradients)) {
      ENGINE_RETURN_IF_ERROR(Zero(b));
    }
  }
  return Status();
}

// Of a backward: gradients that are not of the type they add up in, or travel.
// Once a step is cancelled there is nothing in their sum.
Status PassRun::ConvertGradients() {
  const std::vector<Conversion>& conversions = ops_->conversions;
  for (size_t i = 0; i < conversions.size(); ++i) {
    const Conversion& each = conversions[i];
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
