#ifndef COMMSCHED_SRC_ENGINE_UPDATE_UPDATE_H_
#define COMMSCHED_SRC_ENGINE_UPDATE_UPDATE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/status.h"
#include "commsched/engine_kernels.h"
#include "engine/model/model.h"
#include "engine/state/offload.h"
#include "engine/state/rank_state.h"
#include "engine/step_plan/step_plan.h"
#include "engine/tables/kernels.h"
#include "engine/tables/optimizer_table.h"
#include "engine/update/agreed_values.h"
#include "engine/update/loss_scale.h"
#include "engine/update/norm_sums.h"
#include "engine/update/staged_copies.h"
#include "engine/update/step_flags.h"
#include "engine/update/step_ops.h"
#include "engine/update/step_reports.h"

namespace commsched::engine {

// The end of a step: gradients of micro-batches that add up, the norm, what is
// decided by it, and the optimizer, bucket by bucket. Holds no memory: that is
// the rank state's.
//
// Thread-compatible.
class Update {
 public:
  // All that it points to outlives it.
  struct Spec {
    const commsched_optimizer_table_t* optimizer = nullptr;
    float weight_decay = 0;  // Of parameters of two dimensions or more.
    float clip_norm = 0;
    float loss_scale = 0;  // To begin with; 0: the loss is not scaled.
    uint32_t loss_scale_window = 0;
    uint32_t max_skipped_steps = 0;
    uint32_t rank = 0;       // In the group.
    uint32_t part_rank = 0;  // Among those that hold parts of the model.
    bool on_device = false;
    const Kernels* kernels = nullptr;
    const Model* model = nullptr;
    // The groups of the model, alive in Prepare(); null: it has none.
    const std::vector<commsched_group_t*>* groups = nullptr;
    RankState* state = nullptr;
    StepOps* ops = nullptr;
  };

  explicit Update(const Spec& spec)
      : spec_(spec), kernels_(*spec.kernels), copies_(spec.ops) {}
  Update(const Update&) = delete;
  Update& operator=(const Update&) = delete;

  // When the state has its memory: finds the sums that a norm is made of,
  // and sets the first loss scale. Fails with INVALID_ARGUMENT if a parameter
  // is of an option set that there is not.
  Status Prepare(const StepPlan& plan);
  // Steps are of `plan` until the next call; the state is in memory where
  // `offload` is null.
  void Bind(const StepPlan* plan, Offload* offload);

  // A step begins: fetches what is offloaded of the buckets that are stepped
  // first.
  Status Begin();
  // This rank has a gradient of `parameter` in the step.
  void NoteGradient(uint32_t parameter) { flags_.NoteGradient(parameter); }
  // So many passes are over: the turns of offloaded gradients that have come.
  // Unless it `adds`, which waits for reductions, up to the first that does.
  Status TakeTurns(uint64_t num_passes, bool adds = true);
  // Adds the reduced gradients of a micro-batch, which only offloaded ones keep
  // apart from those of others.
  Status Accumulate(uint32_t bucket, commsched_op_id_t op, bool first,
                    uint32_t micro_batch = 0);
  // Whether a step can be updated with `args`, which no failure changes.
  Status CheckArgs(const commsched_engine_update_args_t& args) const;
  // The norm of a step that is not updated yet.
  Status ReadNorm(double* out_norm);
  // The next Step() steps nothing, on any rank. Fails where ranks do not tell
  // each other of it.
  Status CancelStep();
  // Steps all buckets. `step` counts those of checkpoints, too. `args` have
  // passed CheckArgs().
  Status Step(uint64_t step, const commsched_engine_update_args_t& args);

  // Enqueues the learning rates that the last step has gathered. Drained.
  Status ReportRates();
  // Fails with what ends training on every rank alike, if steps have told of it
  // so far.
  Status CheckReports();
  const Status& verdict() const { return verdict_; }

  // What the last step that has told of it has left.
  const LossScale& reported() const { return reported_; }
  // Steps go on from there.
  Status SetState(const LossScale& state);
  bool has_norm() const { return has_norm_; }  // A step has begun one.

 private:
  const StepGraph& graph() const { return plan_->graph(); }

  // update.cc
  Status FinishGradients(uint32_t bucket);
  Status StepBucket(uint32_t bucket,
                    const commsched_engine_update_args_t& args);
  void SetSegments(uint32_t bucket, const commsched_engine_update_args_t& args);
  // Corrections of option sets with betas of their own, and which parameters
  // are not stepped.
  Status DecideSets(const commsched_engine_update_args_t& args);
  const commsched_step_control_t* ControlOf(uint32_t parameter) const;
  commsched_optimizer_bucket_t BucketFor(uint32_t bucket) const;

  // norm.cc
  Status PrepareNorm();
  Status PrepareParts();
  // Sends what the norm is the root of.
  Status SendSums();
  // Until that has arrived. Without flags the norm's op has begun then.
  Status ReceiveSums();
  Status EndNorm(float clip_norm);
  Status ReadFlags();
  Status Squares(uint32_t bucket);
  // What this rank tells the others.
  Status SendValues(double* into) const;
  // What the norm is the root of, once it has arrived.
  struct Sums {
    const double* values = nullptr;  // Null: there is no norm.
    uint64_t count = 0;
  };
  Status AddUp(Sums* out_sums) const;
  // To what Decide() is given: with flags, whether a rank has cancelled.
  Status AddCancelled(Sums* sums) const;
  // Adds up this rank's part of the model.
  Status AddUpPart(Sums* out_sums) const;
  Status Decide(const Sums& sums, float clip_norm,
                commsched_step_state_t* state) const;

  // verdict.cc
  Status EndTraining(const std::string& why);
  Status SendRates();
  // What the ranks of the group, and those with other parts of the model, have
  // stepped with.
  Status CheckRates(const StepReports::Report& report);
  Status CheckSkippedSteps(uint64_t step);

  const Spec spec_;
  const Kernels& kernels_;

  // The controls of option sets that have betas of their own in this step; null
  // for the others.
  std::vector<const commsched_step_control_t*> own_controls_;

  // The segments of each bucket: constant after Prepare(), but for the values
  // of a step.
  std::vector<std::vector<commsched_optimizer_segment_t>> segments_;

  // Constant after Prepare().
  std::vector<bool> counted_here_;  // By parameter: the norm has it from here.
  NormSums norm_sums_;
  NormSums rates_in_sums_;  // Where they are in all sums.
  NormSums counted_;        // Of the sums of parameters: gathers_parts().
  // What came of the parts: first all their sums, then the rates of each.
  NormSums sort_parts_;
  double* sorted_parts_ = nullptr;
  StepReports reports_;
  commsched_step_state_t* unclipped_ = nullptr;  // With a norm.
  double* told_ =
      nullptr;  // With flags: the sums, and whether it is cancelled.
  std::vector<commsched_step_state_t*> of_sets_;  // By option set.
  StepFlags flags_;  // What it knows of a step is of the one at hand.

  const StepPlan* plan_ = nullptr;  // Constant between calls of Bind().
  StagedCopies copies_;

  std::vector<double> values_;  // That this rank tells the others.
  uint64_t step_ = 0;           // The one that was stepped last.
  // Whether the sums of the step that comes next are on their way, or there;
  // what went with them is of the step before.
  bool sums_sent_ = false;
  bool norm_begun_ = false;
  bool values_are_late_ = false;
  uint64_t rates_of_step_ = 0;  // That came, and were not compared; 0: none.
  LossScale reported_;
  bool has_norm_ = false;
  bool cancelled_ = false;  // The step that is not stepped yet.
  // With which of its sums this rank says so, and of which bucket that is.
  uint64_t counted_block_ = 0;
  uint32_t counted_bucket_ = kNoId;
  Status verdict_;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_UPDATE_UPDATE_H_
