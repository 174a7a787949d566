// Modules that the caller leaves out: their ops run empty.

#include <utility>

#include "engine.h"

namespace commsched::engine {

// A forward may be left out, and whatever else there is of a module whose
// forward was, or will be on the way to `index`.
bool Engine::CanSkip(uint64_t index) const {
  if (desc_.allow_skipped_modules == 0) return false;
  const ModuleOp& op = ops()[index];
  return op.forward >= cursor_ || skipped_[op.forward] != 0;
}

bool Engine::CanSkipTo(uint64_t index) const {
  if (index > ops().size()) return false;
  for (uint64_t i = cursor_; i < index; ++i) {
    if (!CanSkip(i)) return false;
  }
  return true;
}

// The first from the cursor on that can run, mostly the one at the cursor;
// beyond all if there is none. What comes after the first forward needs it.
uint64_t Engine::FindOp(bool backward, uint32_t module,
                        uint32_t micro_batch) const {
  for (uint64_t i = cursor_; i < ops().size(); ++i) {
    const ModuleOp& op = ops()[i];
    if (op.backward == backward && op.module == module &&
        op.micro_batch == micro_batch &&
        !((backward || op.again) && CanSkip(i))) {
      return i;
    }
  }
  return ops().size() + 1;
}

Status Engine::SkipTo(uint64_t index) {
  while (cursor_ < index) ENGINE_RETURN_IF_ERROR(SkipModule());
  return Status();
}

// Its collectives go as ever, and its gradients are zeros. What it takes is not
// what the op costs.
Status Engine::SkipModule() {
  const ModuleOp& op = ops()[cursor_];
  if (op.forward == cursor_) skipped_[cursor_] = 1;
  if (evaluating_) {
    ENGINE_RETURN_IF_ERROR(EvaluationModuleBegin(op));
  } else {
    ENGINE_RETURN_IF_ERROR(BeginStepOp(op));
  }
  HideBuckets();
  if (open_op_ != kNoId) {
    ENGINE_RETURN_IF_ERROR(After(std::exchange(open_op_, kNoId)));
  }
  for (commsched_op_id_t inner : op.inner) {
    ENGINE_RETURN_IF_ERROR(Before(inner));
    ENGINE_RETURN_IF_ERROR(After(inner));
  }
  ENGINE_RETURN_IF_ERROR(ConvertGradients(op, addresses_[cursor_]));
  phase_ = Phase::kBetweenModules;
  ++cursor_;
  return Status();
}

}  // namespace commsched::engine
