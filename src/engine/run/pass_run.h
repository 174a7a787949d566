#ifndef COMMSCHED_SRC_ENGINE_RUN_PASS_RUN_H_
#define COMMSCHED_SRC_ENGINE_RUN_PASS_RUN_H_

#include <cstdint>
#include <vector>

#include "checkpoint/status.h"
#include "engine/model/model.h"
#include "engine/run/bound_step.h"
#include "engine/state/rank_state.h"
#include "engine/step_plan/step_plan.h"
#include "engine/tables/kernels.h"
#include "engine/update/update.h"

namespace commsched::engine {

// Runs the ops of one pass after the other, of a step or of an evaluation. It
// does not know which may come.
//
// Thread-compatible.
class PassRun {
 public:
  // All that it points to outlives it.
  struct Spec {
    const Model* model = nullptr;
    const Kernels* kernels = nullptr;
    RankState* state = nullptr;
    BoundStep* bound = nullptr;
    Update* update = nullptr;
  };

  explicit PassRun(const Spec& spec) : spec_(spec) {}
  PassRun(const PassRun&) = delete;
  PassRun& operator=(const PassRun&) = delete;

  // Passes are of `plan` until the next call; it outlives them.
  void Bind(const StepPlan* plan) { plan_ = plan; }

  // The pass at `index`. Its parameters are there then, and its gradients can
  // be added to.
  Status Begin(bool evaluating, uint64_t index);
  // Issues what its gradients complete.
  Status End();

  // Ops that were added to its module, in their order.
  bool has_op() const { return next_ < ops_->inner.size(); }
  // Index of the next op among those of its module's forward or backward.
  uint64_t next_op() const {
    return IndexOfOp(StepsHere(), pass().kind, next_);
  }
  Status BeginOp();
  Status EndOp();

  // All that it adds to a gradient is there: issues what that completes.
  Status Ready(uint32_t parameter);
  // Refuses to add more to a gradient that is ready, or absent.
  Status CheckUnsaid(uint32_t parameter) const;
  // It adds nothing to a gradient, of which this rank has none unless another
  // pass of the step has one.
  Status Absent(uint32_t parameter);

  // Its collectives go as ever; what it adds to gradients is zeros. What it
  // takes is not what the op costs.
  Status RunEmpty(bool evaluating, uint64_t index);

  // Ends the pass that has begun. What was added to its gradients, by it or
  // before, and was not sent is taken back; the ops that it still has run
  // empty.
  Status Cancel();
  // From then on passes that run empty take back what was added to their
  // gradients and not sent, until the next call with false.
  void SetCancelled(bool cancelled) { cancelled_ = cancelled; }

  // The ops of the pass that has begun.
  const PassOps& ops() const { return *ops_; }

 private:
  const Pass& pass() const {
    return evaluating_ ? plan_->forward().passes[index_]
                       : plan_->graph().passes[index_];
  }
  const std::vector<ModuleStep>& StepsHere() const {
    return spec_.model->modules()[pass().module]
        .steps[IsBackward(pass().kind) ? 1 : 0];
  }
  Status Zero(uint32_t bucket);
  // Zeroes the gradients that it adds to.
  Status ZeroAll();
  Status ZeroInOp();
  // Notes that this rank has the gradients that the pass did not call absent.
  void NoteGradients();
  Status EndOpenOp();
  Status RunOpsEmpty();
  // What is ready of ops_->ready, in order up to the first that is not.
  Status SendReady();
  bool IsReady(uint32_t bucket) const;
  // Its index among those that the module uses.
  size_t UseOf(uint32_t parameter) const;
  Status RefuseSaid(const char* call, uint32_t parameter) const;
  // Refuses `call` of a module's parameter where one of the two has come.
  Status Note(const char* call, uint32_t parameter, uint8_t said);
  // Sends the gradients at `index` of ops_->ready unless they are sent already.
  Status Send(size_t index);
  // What is left of the pass after the ops of its module.
  Status Finish();
  // Converts those of a bucket, or of all.
  Status ConvertGradients(uint32_t bucket = kNoId);

  const Spec spec_;
  const StepPlan* plan_ = nullptr;

  // The pass that has begun, and how far it is.
  bool evaluating_ = false;
  uint64_t index_ = 0;
  const PassOps* ops_ = nullptr;
  uint64_t next_ = 0;                  // In ops_->inner.
  commsched_op_id_t open_op_ = kNoId;  // Had its before, and not its after.

  // Whether gradients were sent, by index in ops_->ready; and what was said of
  // a parameter, by that in Module::used.
  std::vector<uint8_t> is_sent_;
  static constexpr uint8_t kReady = 1;
  static constexpr uint8_t kAbsent = 2;
  std::vector<uint8_t> said_;

  bool cancelled_ = false;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_RUN_PASS_RUN_H_
