// Modules that the caller leaves out: their ops run empty.

#include "engine.h"

namespace commsched::engine {

Status Engine::PassTo(uint64_t target) {
  while (cursor().index() < target) {
    ENGINE_RETURN_IF_ERROR(PassModule(/*is_left_out=*/true));
  }
  return Status();
}

// Its collectives go as ever. The gradients of what is left out are zeros. What
// it takes is not what the op costs.
Status Engine::PassModule(bool is_left_out) {
  const PassOps& ops = pass_ops();
  cursor().Begin(is_left_out);
  if (evaluating_) {
    ENGINE_RETURN_IF_ERROR(EvaluationModuleBegin(ops));
  } else {
    ENGINE_RETURN_IF_ERROR(BeginPassOps(ops));
  }
  HideBuckets();
  if (open_op_ != kNoId) {
    ENGINE_RETURN_IF_ERROR(bound_.After(open_op_));
    open_op_ = kNoId;
  }
  for (commsched_op_id_t inner : ops.inner) {
    ENGINE_RETURN_IF_ERROR(bound_.Before(inner));
    ENGINE_RETURN_IF_ERROR(bound_.After(inner));
  }
  ENGINE_RETURN_IF_ERROR(
      ConvertGradients(ops, bound_.conversions(cursor().index())));
  phase_ = Phase::kBetweenModules;
  cursor().Advance();
  return Status();
}

}  // namespace commsched::engine
