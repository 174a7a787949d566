#ifndef COMMSCHED_SRC_ENGINE_ENGINE_H_
#define COMMSCHED_SRC_ENGINE_ENGINE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/snapshot.h"
#include "checkpoint/status.h"
#include "commsched/engine.h"
#include "commsched/model.h"
#include "engine/model/graph_writer.h"
#include "engine/model/model.h"
#include "engine/model/module_steps.h"
#include "engine/model/passes.h"
#include "engine/run/agreement.h"
#include "engine/run/bound_step.h"
#include "engine/run/cursor.h"
#include "engine/run/order_recording.h"
#include "engine/run/poison.h"
#include "engine/run/state_gather.h"
#include "engine/state/memory.h"
#include "engine/state/offload.h"
#include "engine/state/rank_state.h"
#include "engine/state/saved_state.h"
#include "engine/state/state_values.h"
#include "engine/step_plan/bucket_buffers.h"
#include "engine/step_plan/bucket_search.h"
#include "engine/step_plan/layout.h"
#include "engine/step_plan/spec.h"
#include "engine/step_plan/step_graph.h"
#include "engine/step_plan/step_plan.h"
#include "engine/tables/device_tables.h"
#include "engine/tables/kernels.h"
#include "engine/tables/optimizer_table.h"
#include "engine/update/loss_scale.h"
#include "engine/update/update.h"

namespace commsched::engine {

// One rank's training state and its step, behind include/commsched/engine.h,
// which states the contract of each call.
//
// After Build a step allocates nothing and takes no lock of its own.
//
// Thread-compatible: one thread per rank.
class Engine {
 public:
  // `desc` has passed CheckDesc(), and `model` is its. `ours`: what is used
  // where it says nothing.
  Engine(const commsched_engine_desc_t& desc, std::shared_ptr<Model> model,
         const DeviceTables& ours);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  static Status CheckDesc(const commsched_engine_desc_t& desc);
  // Of the device on which the rank of `desc` computes.
  static Status TablesOf(const commsched_engine_desc_t& desc,
                         DeviceTables* out_tables);

  Status RecordOrder();
  Status Prepare();
  Status Build();

  // The step.
  Status StepBegin();
  Status ModuleBegin(bool backward, uint32_t module, uint32_t micro_batch);
  Status ModuleEnd(bool backward, uint32_t module, uint32_t micro_batch);
  Status OpBegin(uint32_t op, uint32_t micro_batch);
  Status OpEnd(uint32_t op, uint32_t micro_batch);
  Status Reduce();
  Status Norm(double* out_norm);
  Status Step(const commsched_engine_update_args_t& args);
  Status StepEnd();
  Status Drain();

  // A forward without a step.
  Status EvaluationBegin();
  Status EvaluationEnd();

  // From any thread.
  void Abort(const char* reason) { bound_.Abort(reason); }

  // Between steps.
  Status ParameterRange(uint32_t parameter, uint64_t* out_offset,
                        uint64_t* out_count) const;
  Status SetParameter(uint32_t parameter, const float* values, uint64_t count);
  Status SetParameterRange(uint32_t parameter, uint64_t offset,
                           const float* values, uint64_t count);
  Status GetParameter(uint32_t parameter, float* out_values, uint64_t count);
  Status ParameterAddress(uint32_t parameter, const void** out_values,
                          void** out_gradient);
  Status LossScaleAddress(const double** out_scale) const;
  Status GetLossScale(commsched_engine_loss_scale_info_t* out_info) const;
  Status GetInfo(commsched_engine_info_t* out_info) const;
  Status GetBucketInfo(uint64_t bucket,
                       commsched_engine_bucket_info_t* out_info) const;
  Status OpCosts(int64_t* out_ns, uint64_t num_ops) const;

  // Checkpoints, between steps (snapshot.cc).
  // For a saver: what this rank saves, and how it is copied.
  // `whole`: rank 0 saves all of it.
  Status MakeSnapshot(bool whole, Snapshot* out);
  Status MasterRange(uint32_t parameter, uint64_t* out_offset,
                     uint64_t* out_count);
  Status GetMasterRange(uint32_t parameter, float* out_values, uint64_t count);
  Status GatherParameter(uint32_t parameter, uint32_t root, float* out_values,
                         uint64_t count);
  // Takes parameters, optimizer state and the number of steps.
  Status Restore(const Checkpoint& checkpoint);

  commsched_plan_t* plan() const {
    return step_plan_ == nullptr ? nullptr : step_plan_->plan();
  }
  commsched_session_t* session() const { return bound_.session(); }

 private:
  // Where in the order of calls the caller is.
  enum class Phase : uint8_t {
    kRegistering,
    kPrepared,
    kBetweenSteps,
    kBetweenModules,  // In a step or an evaluation; cursor().pass() is next.
    kInModule,        // Begun that; pass_ops().inner[inner_] is next, if any.
    kInOp,            // Begun that.
    kReduced,         // After all passes.
    kStepped,         // After update.
  };

  // build.cc
  Status CheckRegistering() const;

  // module_ops.cc
  std::string OpCall(const char* which, uint32_t op,
                     uint32_t micro_batch) const;
  std::string ExpectedOpCall() const;
  bool IsNextOp(uint32_t op, uint32_t micro_batch) const;
  Status EndOpenOp();

  // prepare.cc
  StepPlan::Options PlanOptions() const;
  Status Allocate();
  Status Connect();

  const Layout& layout() const { return step_plan_->layout(); }
  const StepGraph& graph() const { return step_plan_->graph(); }

  // step.cc
  bool built() const { return phase_ > Phase::kPrepared; }
  Cursor& cursor() { return evaluating_ ? forward_cursor_ : step_cursor_; }
  const Cursor& cursor() const {
    return evaluating_ ? forward_cursor_ : step_cursor_;
  }
  // Of the pass that has begun, or else is next.
  const PassOps& pass_ops() const {
    const std::vector<PassOps>& ops =
        evaluating_ ? step_plan_->forward().pass_ops : graph().pass_ops;
    return ops[cursor().index()];
  }
  bool gathered(uint32_t bucket) const { return step_plan_->gathers(bucket); }
  std::string ExpectedCall() const;
  Status SessionFailure() const;
  Status OutOfOrder(const std::string& call, const char* advice = "") const;
  const char* AdviceOnOrder(uint32_t module, uint32_t micro_batch) const;
  std::string ModuleCall(bool backward, const char* which, uint32_t module,
                         uint32_t micro_batch) const;
  Status CompareValues();
  void ShowBuckets() {
    bound_.ShowBuckets(cursor().index(), cursor().pass().module);
  }
  void HideBuckets() {
    state_.HideBuckets(*step_plan_, cursor().pass().module);
  }
  Status BeginPassOps(const PassOps& ops);
  Status ConvertGradients(const PassOps& ops,
                          const BoundStep::Conversions& addresses);

  Poison PoisonFor(const std::string& call) const {
    return {step_plan_.get(), session(), SessionFailure(), call};
  }
  // Ends the passes of a step for `call`.
  Status EndPasses(const char* call);
  Status StepBuckets(const commsched_engine_update_args_t& args);

  // record.cc
  Status CheckCanRecord() const;
  Status StartRecording();
  Status BeginRecordedPass();
  std::string ExpectedRecordedCall() const;
  Status RecordForward(uint32_t module);
  Status RecordForwardEnd(bool backward, uint32_t module, uint32_t micro_batch);
  bool EndsRecordedForward(bool backward, uint32_t module,
                           uint32_t micro_batch) const;
  size_t RecomputedAtEnd() const;
  Status FindSequence(Sequence* out_sequence,
                      std::vector<uint8_t>* out_left_out) const;
  Status EndRecording();
  Status Freeze(Sequence sequence);
  Status CatchUp(const std::vector<uint8_t>& left_out, bool recomputed);

  // skip.cc
  Status PassTo(uint64_t target);
  Status PassModule(bool is_left_out);

  // values.cc
  Status EvaluationModuleBegin(const PassOps& ops);
  Status CheckDrained(const char* call) const;
  Status CheckCount(const char* call, uint32_t parameter, uint64_t count) const;
  Status CheckWhole(const char* call, uint32_t parameter) const;
  const std::byte* ParameterValues(uint32_t parameter) const;
  StateValues state_values() {
    return {*step_plan_, kernels_, group_rank_, &state_, offload_.get()};
  }

  // snapshot.cc
  SavedState saved_state() { return saved_state_of(group_rank_); }
  // What rank `rank` saves; this rank's values.
  SavedState saved_state_of(uint32_t rank) {
    return {model_, *step_plan_, optimizer_, rank, state_values()};
  }
  uint64_t steps() const { return step_offset_ + steps_done_; }
  // All that a snapshot has of the state. Drains.
  Status CopyOut(float* out);
  Status GatherOut(float* out);
  // A value of the optimizer's state, or kValueKind, of a parameter.
  Status GatherKind(uint32_t parameter, const std::string& kind, uint32_t root,
                    float* out);

  // Constant after construction.
  const commsched_engine_desc_t desc_;
  const bool on_device_;
  const Kernels kernels_;
  const Memory allocator_;
  const std::string policy_, codec_;  // plan_options_ points to them.
  const commsched_plan_options_t plan_options_;
  const commsched_cost_profile_t profile_;
  const commsched_pool_t pool_;    // With functions only if there is one.
  const std::string observers_;    // Empty: none.
  const std::string flight_path_;  // Empty: none.
  const Optimizer optimizer_;
  const StepSpec spec_;
  const uint32_t group_rank_;
  const std::string slice_;
  const std::vector<commsched_group_t*> groups_;  // Of the model.
  const std::shared_ptr<Model> kept_model_;
  const Model& model_;  // The same.

  // Constant after Build.
  Agreement agreement_;  // Has the context, which the rest is in.
  std::unique_ptr<const StepPlan> step_plan_;  // From Prepare on.
  BucketChoice bucket_choice_;                 // Zeros: none was made.
  RankState state_;
  std::unique_ptr<Offload> offload_;  // Null if the state is in memory.
  // Last, so that sessions are destroyed before the memory they are bound to.
  BoundStep bound_;
  Update update_;
  StateGather gather_;

  // While the order is recorded; there are no sessions then.
  bool recording_ = false;
  Sequence recorded_;
  Status record_failure_;

  // The step.
  Phase phase_ = Phase::kRegistering;
  bool drained_ = true;
  bool evaluating_ = false;
  Cursor step_cursor_;
  Cursor forward_cursor_;              // Of an evaluation.
  uint64_t inner_ = 0;                 // In pass_ops().inner.
  commsched_op_id_t open_op_ = kNoId;  // Had its before, and not its after.
  uint64_t steps_begun_ = 0;           // Counts the current one.
  uint64_t steps_done_ = 0;
  uint64_t step_offset_ = 0;  // Modulo 2^64: steps that a checkpoint had.
  Lineage lineage_;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_ENGINE_H_
