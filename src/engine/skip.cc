// Modules that the caller leaves out: their ops run empty.

#include "engine.h"

namespace commsched::engine {

// A forward may be left out, and whatever else there is of a module whose
// forward was left out, or will be on the way.
bool Engine::CanPass(uint64_t index) const {
  if (desc_.allow_skipped_modules == 0) return false;
  const uint32_t forward = passes()[index].forward;
  return forward >= cursor_ || left_out_[forward] != 0;
}

bool Engine::CanPassTo(uint64_t target) const {
  if (target > passes().size()) return false;
  for (uint64_t i = cursor_; i < target; ++i) {
    if (!CanPass(i)) return false;
  }
  return true;
}

// The first from the cursor on that can run, mostly the one at the cursor;
// beyond all if there is none. What comes after the first forward needs it.
uint64_t Engine::FindOp(bool backward, uint32_t module,
                        uint32_t micro_batch) const {
  for (uint64_t i = cursor_; i < passes().size(); ++i) {
    const Pass& pass = passes()[i];
    if (!IsPass(pass, backward, module, micro_batch)) continue;
    const bool ran = pass.forward < cursor_ && left_out_[pass.forward] == 0;
    if (pass.forward == i || ran) return i;
  }
  return passes().size() + 1;
}

Status Engine::PassTo(uint64_t target) {
  while (cursor_ < target) {
    ENGINE_RETURN_IF_ERROR(PassModule(/*is_left_out=*/true));
  }
  return Status();
}

// Its collectives go as ever. The gradients of what is left out are zeros. What
// it takes is not what the op costs.
Status Engine::PassModule(bool is_left_out) {
  const PassOps& ops = pass_ops()[cursor_];
  if (passes()[cursor_].forward == cursor_)
    left_out_[cursor_] = is_left_out ? 1 : 0;
  if (evaluating_) {
    ENGINE_RETURN_IF_ERROR(EvaluationModuleBegin(ops));
  } else {
    ENGINE_RETURN_IF_ERROR(BeginPassOps(ops));
  }
  HideBuckets();
  if (open_op_ != kNoId) {
    ENGINE_RETURN_IF_ERROR(After(open_op_));
    open_op_ = kNoId;
  }
  for (commsched_op_id_t inner : ops.inner) {
    ENGINE_RETURN_IF_ERROR(Before(inner));
    ENGINE_RETURN_IF_ERROR(After(inner));
  }
  ENGINE_RETURN_IF_ERROR(ConvertGradients(ops, addresses_[cursor_]));
  phase_ = Phase::kBetweenModules;
  ++cursor_;
  return Status();
}

}  // namespace commsched::engine
