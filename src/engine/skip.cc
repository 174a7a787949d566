// Modules that the caller leaves out, or that do not come yet: their ops run
// empty.

#include "engine.h"

namespace commsched::engine {

// On the way to `target`: a forward that may be left out, or come later;
// whatever else there is of a module whose forward was left out, or will be on
// the way; and what has been run already.
bool Engine::CanPass(uint64_t index, uint64_t target) const {
  const ModuleOp& op = ops()[index];
  if (ComesLate(index, target)) return true;
  if (op.forward >= cursor_) return desc_.allow_skipped_modules != 0;
  switch (fates_[op.forward]) {
    case Fate::kPlanned:
      return false;
    case Fate::kAwaited:
    case Fate::kLeftOut:
      return desc_.allow_skipped_modules != 0;
    case Fate::kLate:
      return fates_[index] == Fate::kLate;
  }
  return false;
}

bool Engine::CanPassTo(uint64_t target) const {
  if (target > ops().size()) return false;
  for (uint64_t i = cursor_; i < target; ++i) {
    if (!CanPass(i, target)) return false;
  }
  if (!disordered_) return true;
  if (num_awaited_ > 0 && desc_.allow_skipped_modules == 0 &&
      !InOneForward(cursor_, target)) {
    return false;
  }
  return target == ops().size() || !ops()[target].backward ||
         WasRecomputed(target);
}

// The first from the cursor on that can run, mostly the one at the cursor;
// beyond all if there is none. What comes after the first forward needs it.
uint64_t Engine::FindOp(bool backward, uint32_t module,
                        uint32_t micro_batch) const {
  for (uint64_t i = cursor_; i < ops().size(); ++i) {
    const ModuleOp& op = ops()[i];
    if (!IsPass(op, backward, module, micro_batch) ||
        fates_[i] == Fate::kLate) {
      continue;
    }
    if (op.forward == i) return i;
    const Fate fate = fates_[op.forward];
    if (op.forward < cursor_ &&
        (fate == Fate::kPlanned || fate == Fate::kLate)) {
      return i;
    }
  }
  return ops().size() + 1;
}

Status Engine::PassTo(uint64_t target) {
  if (num_awaited_ > 0 && !InOneForward(cursor_, target)) LeaveOutAwaited();
  while (cursor_ < target) {
    Fate fate = fates_[cursor_];
    if (ComesLate(cursor_, target)) {
      fate = Fate::kAwaited;
    } else if (ops()[cursor_].forward == cursor_) {
      fate = Fate::kLeftOut;
    }
    ENGINE_RETURN_IF_ERROR(PassModule(fate));
  }
  return Status();
}

// Its collectives go as ever. The gradients of what is left out are zeros. What
// it takes is not what the op costs.
Status Engine::PassModule(Fate fate) {
  const ModuleOp& op = ops()[cursor_];
  if (fate != Fate::kPlanned) disordered_ = true;
  fates_[cursor_] = fate;
  if (evaluating_) {
    ENGINE_RETURN_IF_ERROR(EvaluationModuleBegin(op));
  } else {
    ENGINE_RETURN_IF_ERROR(BeginStepOp(op));
  }
  if (fate == Fate::kAwaited) {
    if (op.forward == cursor_) ++num_awaited_;
    ENGINE_RETURN_IF_ERROR(KeepValues(op));
  }
  if (op.backward && fate == Fate::kLate) {
    ENGINE_RETURN_IF_ERROR(AddLateGradients(op));
  }
  HideBuckets();
  if (open_op_ != kNoId) {
    ENGINE_RETURN_IF_ERROR(After(open_op_));
    open_op_ = kNoId;
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
