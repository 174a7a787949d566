// Ops within modules: running them.

#include "engine.h"

namespace commsched::engine {

// "op 3 'q' of module 1 'block', micro-batch 0"
std::string Engine::OpCall(const char* which, uint32_t op,
                           uint32_t micro_batch) const {
  return std::string("op_") + which + " of " + model_.TextOfOp(op) +
         ", micro-batch " + std::to_string(micro_batch);
}

// In a module with ops that are not over.
std::string Engine::ExpectedOpCall() const {
  const uint32_t micro_batch = cursor().pass().micro_batch;
  uint32_t op = 0;
  while (!IsNextOp(op, micro_batch)) ++op;
  return OpCall(phase_ == Phase::kInOp ? "end" : "begin", op, micro_batch);
}

bool Engine::IsNextOp(uint32_t op, uint32_t micro_batch) const {
  if (op >= model_.ops().size()) return false;
  const AddedOp& added = model_.ops()[op];
  return added.index == inner_ &&
         cursor().IsAt({added.backward, added.module, micro_batch});
}

Status Engine::OpBegin(uint32_t op, uint32_t micro_batch) {
  if (phase_ != Phase::kInModule || !IsNextOp(op, micro_batch)) {
    return OutOfOrder(OpCall("begin", op, micro_batch));
  }
  ENGINE_RETURN_IF_ERROR(EndOpenOp());
  const commsched_op_id_t next = pass_ops().inner[inner_];
  ENGINE_RETURN_IF_ERROR(bound_.Before(next));
  open_op_ = next;
  phase_ = Phase::kInOp;
  return Status();
}

Status Engine::OpEnd(uint32_t op, uint32_t micro_batch) {
  if (phase_ != Phase::kInOp || !IsNextOp(op, micro_batch)) {
    return OutOfOrder(OpCall("end", op, micro_batch));
  }
  ENGINE_RETURN_IF_ERROR(EndOpenOp());
  phase_ = Phase::kInModule;
  ++inner_;
  return Status();
}

// What runs now, if the engine has an op for it.
Status Engine::EndOpenOp() {
  if (open_op_ == kNoId) return Status();
  bound_.Measure(open_op_);
  // It stays open if that fails, so that a second end fails, too.
  ENGINE_RETURN_IF_ERROR(bound_.After(open_op_));
  open_op_ = kNoId;
  return Status();
}

}  // namespace commsched::engine
