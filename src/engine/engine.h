#ifndef COMMSCHED_SRC_ENGINE_ENGINE_H_
#define COMMSCHED_SRC_ENGINE_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/snapshot.h"
#include "checkpoint/status.h"
#include "commsched/engine.h"
#include "commsched/model.h"
#include "engine/model/model.h"
#include "engine/model/passes.h"
#include "engine/run/agreement.h"
#include "engine/run/bound_step.h"
#include "engine/run/order_recording.h"
#include "engine/run/state_gather.h"
#include "engine/run/step_calls.h"
#include "engine/state/memory.h"
#include "engine/state/offload.h"
#include "engine/state/rank_state.h"
#include "engine/state/saved_state.h"
#include "engine/state/state_values.h"
#include "engine/step_plan/layout.h"
#include "engine/step_plan/options.h"
#include "engine/step_plan/planned_role.h"
#include "engine/step_plan/spec.h"
#include "engine/step_plan/step_plan.h"
#include "engine/tables/device_tables.h"
#include "engine/tables/kernels.h"
#include "engine/tables/optimizer_table.h"
#include "engine/update/update.h"

namespace commsched::engine {

// One rank's training state and its step, behind include/commsched/engine.h,
// which states the contract of each call.
//
// Thread-compatible: one thread per rank.
class Engine {
 public:
  // `desc` has passed CheckEngineDesc(). `role`, `optimizer`: of its step plan.
  // `ours`: what is used where it says nothing.
  Engine(const commsched_engine_desc_t& desc, PlannedRole role,
         std::shared_ptr<const Optimizer> optimizer, const DeviceTables& ours);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The tables of the device on which the rank of `desc` computes.
  static Status TablesOf(const commsched_engine_desc_t& desc,
                         DeviceTables* out_tables);

  // Creation, once each: what the rank does alone, and with the others. A rank
  // on which Prepare() fails has to tell them (DeclineToCreate()).
  Status Prepare();
  Status Meet();

  // Call it between steps.
  Status RecordOrder();
  // Goes on with another plan for the same state.
  Status Replan(const PlannedRole& next);

  // Steps and evaluations.
  StepCalls& calls() { return calls_; }

  // Any thread may call it.
  void Abort(const char* reason) { bound_.Abort(reason); }

  // These are called between steps.
  Status ParameterRange(uint32_t parameter, uint64_t* out_offset,
                        uint64_t* out_count) const;
  Status SetParameter(uint32_t parameter, const float* values, uint64_t count);
  Status SetParameterRange(uint32_t parameter, uint64_t offset,
                           const float* values, uint64_t count);
  Status GetParameter(uint32_t parameter, float* out_values, uint64_t count);
  Status ParameterAddress(uint32_t parameter, const void** out_values,
                          void** out_gradient);
  // The addresses of all parameters in a pass, as many as there is room for.
  Status Addresses(const PassCall& call,
                   std::span<commsched_parameter_place_t> places,
                   uint64_t* out_count) const;
  Status LossScaleAddress(const double** out_scale) const;
  Status GetLossScale(commsched_engine_loss_scale_info_t* out_info) const;
  Status GetInfo(commsched_engine_info_t* out_info) const;
  Status OpCosts(int64_t* out_ns, uint64_t num_ops) const;

  // Checkpoints, between steps (snapshot.cc).
  // For a saver: what this rank saves, and how it is copied.
  // `whole`: rank 0 saves all of it.
  Status MakeSnapshot(bool whole, Snapshot* out);
  Status MasterRange(uint32_t parameter, uint64_t* out_offset,
                     uint64_t* out_count);
  // This rank's piece of a value of the optimizer's state, or of kValueKind,
  // for `call`.
  Status ReadPiece(const char* call, uint32_t parameter,
                   const std::string& kind, float* out_values, uint64_t count);
  Status GetState(uint32_t parameter, const std::string& name,
                  float* out_values, uint64_t count);
  Status GatherParameter(uint32_t parameter, uint32_t root, float* out_values,
                         uint64_t count);
  // Takes parameters, optimizer state and the number of steps.
  Status Restore(const Checkpoint& checkpoint);

  const StepPlan& step_plan() const { return *role_.plan; }
  commsched_session_t* session() const { return bound_.session(); }

 private:
  // prepare.cc
  Status CheckFits(const StepPlan& plan) const;
  Status Allocate();
  Status Connect();
  Status StartRecording();
  Status Freeze(Sequence sequence);

  const Layout& layout() const { return role_.plan->layout(); }

  // values.cc
  Status CheckWhole(const char* call, uint32_t parameter) const;
  const std::byte* ParameterValues(uint32_t parameter) const;
  StateValues state_values() {
    return {*role_.plan, kernels_, group_rank_, &state_,
            spec_.offloads ? offload_.get() : nullptr};
  }

  // snapshot.cc
  // What rank `rank` saves; this rank's values.
  SavedState saved_state(uint32_t rank) {
    return {model_, *role_.plan, optimizer_, rank, state_values()};
  }
  // All that a snapshot has of the state. Drains.
  Status CopyOut(float* out);
  Status GatherOut(float* out);
  // A value of the optimizer's state, or kValueKind, of a parameter.
  Status GatherKind(uint32_t parameter, const std::string& kind, uint32_t root,
                    float* out);

  PlannedRole role_;  // Of the plan that runs.

  // Constant after construction.
  // What the first plan was made of. That of later ones differs in what only
  // plans know of: passes, and where gathered buckets lie (CheckSameState()).
  const std::shared_ptr<const Model> first_model_;
  const std::shared_ptr<const StepOptions> first_options_;
  const commsched_engine_desc_t desc_;
  const bool on_device_;
  const Kernels kernels_;
  const Memory allocator_;
  const commsched_pool_t pool_;  // With functions only if there is one.
  const commsched_pool_t gradient_pool_;  // The same.
  const std::string observers_;           // Empty: none.
  const std::string flight_path_;         // Empty: none.
  const std::shared_ptr<const Optimizer> kept_optimizer_;
  const Optimizer& optimizer_;  // The same.
  const StepSpec& spec_;        // Of first_options_.
  const uint32_t group_rank_;
  const std::string slice_;
  const std::vector<commsched_group_t*> groups_;  // Of the model.
  const Model& model_;                            // The first one.

  // Constant after Meet.
  Agreement agreement_;  // Has the context, which the rest is in.
  RankState state_;
  std::unique_ptr<Offload> offload_;  // Null if the state is in memory.
  // Last, so that sessions are destroyed before the memory they are bound to.
  BoundStep bound_;
  Update update_;
  StateGather gather_;

  StepCalls calls_;
  Lineage lineage_;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_ENGINE_H_
