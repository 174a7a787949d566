#ifndef COMMSCHED_SRC_ENGINE_RUN_STEP_CALLS_H_
#define COMMSCHED_SRC_ENGINE_RUN_STEP_CALLS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/status.h"
#include "engine/model/model.h"
#include "engine/model/passes.h"
#include "engine/run/agreement.h"
#include "engine/run/bound_step.h"
#include "engine/run/cursor.h"
#include "engine/run/order_recording.h"
#include "engine/run/pass_run.h"
#include "engine/state/offload.h"
#include "engine/state/rank_state.h"
#include "engine/step_plan/step_plan.h"
#include "engine/tables/kernels.h"
#include "engine/update/update.h"

namespace commsched::engine {

// The calls of a step and of an evaluation: which may come next, and what each
// of them runs.
//
// What the caller leaves out runs empty, so that collectives go as planned, for
// which other ranks wait.
//
// A step allocates nothing and takes no lock of its own.
//
// Thread-compatible.
class StepCalls {
 public:
  // All that it points to outlives it.
  struct Spec {
    const Model* model = nullptr;
    const StepSpec* step = nullptr;
    bool may_skip = false;
    const Kernels* kernels = nullptr;
    RankState* state = nullptr;
    BoundStep* bound = nullptr;
    Update* update = nullptr;
    Agreement* agreement = nullptr;
    // Plans the step in a recorded order, and meets the other ranks.
    std::function<Status(Sequence)> freeze;
  };

  explicit StepCalls(Spec spec);
  StepCalls(const StepCalls&) = delete;
  StepCalls& operator=(const StepCalls&) = delete;

  // Steps are of `plan` until the next call; null: the optimizer's state is in
  // memory. Both outlive it.
  void Bind(const StepPlan* plan, const Offload* offload);
  // The order of the next forward is taken from the caller. Drained.
  void Record() { recording_ = true; }

  // `micro_batches` come, of those planned; 0: all.
  Status StepBegin(uint32_t micro_batches);
  Status PassBegin(const PassCall& call);
  Status PassEnd(const PassCall& call);
  Status OpBegin(uint32_t op, uint32_t micro_batch);
  Status OpEnd(uint32_t op, uint32_t micro_batch);
  // The calls about a parameter, in a pass that adds to its gradient.
  enum class GradientCall : uint8_t { kBegin, kReady, kAbsent };
  Status Gradient(GradientCall call, uint32_t parameter);
  // All that is left of the forwards and backwards of the step runs empty, and
  // gradients of this rank that were not sent are zeros.
  // `all`: no rank steps.
  Status Cancel(bool all);
  // The end of a step's passes, for `call`.
  Status EndPasses(const char* call);
  Status Norm(double* out_norm);
  Status Step(const commsched_engine_update_args_t& args);
  Status StepEnd();
  Status Drain();
  Status EvaluationBegin();
  Status EvaluationEnd();

  bool between_steps() const { return phase_ == Phase::kBetweenSteps; }
  bool evaluating() const { return evaluating_; }
  bool recording() const { return recording_; }
  // Steps, with those of checkpoints.
  uint64_t steps() const { return step_offset_ + steps_done_; }
  // Steps of this engine alone.
  uint64_t steps_done() const { return steps_done_; }
  // What a checkpoint has counted.
  void SetSteps(uint64_t steps) { step_offset_ = steps - steps_done_; }

  // The failure of a session, or why training came to an end. It is why a
  // caller is out of step, so that it comes first.
  Status Failure() const;
  Status OutOfOrder(const std::string& call, const char* advice = "") const;
  Status CheckDrained(const char* call) const;

 private:
  // Where in the order of calls the caller is.
  enum class Phase : uint8_t {
    kBetweenSteps,
    kBetweenPasses,  // In a step or an evaluation; cursor().pass() is next.
    kInPass,         // Begun that; its next op may begin, if it has any.
    kInOp,           // Begun that.
    kReduced,        // After all passes.
    kStepped,        // After update.
  };

  Cursor& cursor() { return evaluating_ ? forward_cursor_ : step_cursor_; }
  const Cursor& cursor() const {
    return evaluating_ ? forward_cursor_ : step_cursor_;
  }
  std::string ExpectedCall() const;

  // Ops within modules.
  std::string ExpectedOpCall() const;
  bool IsNextOp(uint32_t op, uint32_t micro_batch) const;

  // Runs passes empty up to `target`.
  Status PassTo(uint64_t target);
  // Ends a forward of all modules of an evaluation that is over, if `call`
  // begins another one. `*out_index` is then where.
  Status NextForward(const PassCall& call, std::optional<uint64_t>* out_index);
  Status RunEmpty(bool left_out);

  // An order that is recorded.
  Status BeginRecording(bool evaluating);
  Status RecordPass(const PassCall& call);
  Status EndRecordedPass(const PassCall& call);
  Status EndRecording();
  // What the forward has not begun comes as it was planned before.
  Status CompleteRecording();

  const Spec spec_;
  const StepPlan* plan_ = nullptr;
  const Offload* offload_ = nullptr;
  PassRun run_;
  OrderRecorder recorder_;
  bool recording_ = false;  // There are no sessions then.
  Status record_failure_;

  Phase phase_ = Phase::kBetweenSteps;
  bool drained_ = true;
  bool began_drained_ = true;      // The step at hand.
  std::optional<PassCall> extra_;  // Begun, and among no passes.
  bool evaluating_ = false;
  uint32_t micro_batches_ = 0;  // That come in the step at hand.
  Cursor step_cursor_;
  Cursor forward_cursor_;     // Of an evaluation.
  uint64_t steps_begun_ = 0;  // Counts the current one.
  uint64_t steps_done_ = 0;
  uint64_t step_offset_ = 0;  // Modulo 2^64: steps that a checkpoint had.
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_RUN_STEP_CALLS_H_
