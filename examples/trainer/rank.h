#ifndef COMMSCHED_EXAMPLES_TRAINER_RANK_H_
#define COMMSCHED_EXAMPLES_TRAINER_RANK_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "commsched/checkpoint.h"
#include "commsched/engine.h"
#include "examples/trainer/c_api.h"
#include "examples/trainer/data.h"
#include "examples/trainer/model.h"
#include "examples/trainer/options.h"
#include "examples/trainer/schedule.h"
#include "examples/trainer/sequence_attention.h"
#include "examples/trainer/wide_parameters.h"

namespace commsched::trainer {

// The first steps warm caches up;
// they do not count in the reported times.
inline constexpr uint32_t kWarmupSteps = 2;

// One rank of the run: its model, and the engine that keeps its parameters in
// step with the other ranks'.
//
// Thread-compatible. Build, Step and Evaluate are for one thread per rank, the
// rest for whoever comes before or after it.
class Rank {
 public:
  // Plans and allocates. `options` and `sampler` outlive the rank. Local, so
  // that what fails on one rank does so before another waits for it.
  static absl::StatusOr<std::unique_ptr<Rank>> Create(const Options& options,
                                                      const Sampler& sampler,
                                                      commsched_world_t* world,
                                                      int64_t index);

  // Collective: meets the other ranks and sets the initial weights, or those of
  // `checkpoint` unless that is null.
  absl::Status Build(const commsched_engine_checkpoint_t* checkpoint = nullptr);

  // Runs step `step` and returns the mean loss of this rank's sequences.
  absl::StatusOr<double> Step(int64_t step);

  // Drains, and returns the mean loss of this rank's share of the validation
  // windows. The windows do not depend on the number of ranks.
  absl::StatusOr<double> Evaluate();

  // Collective, after a drain: the identity of the model. On rank 0, SHA-256
  // over the little-endian fp32 master weights, without padding, of the
  // parameters in byte order of their names, the same as of an exported
  // checkpoint; elsewhere it means nothing.
  absl::StatusOr<std::string> WeightsSha256();

  // Fails every rank's sessions, so that none waits for this one.
  void Abort(const absl::Status& reason);

  // What the plan of steps says, from Create on.
  absl::StatusOr<commsched_step_plan_info_t> PlannedInfo() const {
    return Filled(commsched_step_plan_info_init(), commsched_step_plan_get_info,
                  step_plan());
  }
  // After Build.
  absl::StatusOr<commsched_engine_info_t> Info() const {
    return Filled(commsched_engine_info_init(), commsched_engine_get_info,
                  engine());
  }

  // Of ZeRO-3: the memory in which forward and backward found what the engine
  // keeps for a while, from its lowest to its highest byte.
  uint64_t PeakLiveBytes() const {
    return live_begin_ < live_end_ ? live_end_ - live_begin_ : 0;
  }

  double LearningRate(int64_t step) const {
    return LearningRateAt(schedule_, step);
  }
  // Of the last step's gradient, before clipping; nullopt where none is
  // computed.
  std::optional<double> GradientNorm() const;

  const Gpt& model() const { return *gpt_; }
  const commsched_trace_t* trace() const { return trace_.get(); }
  const commsched_step_plan_t* step_plan() const { return step_plan_.get(); }
  // After Build.
  commsched_engine_t* engine() const { return engine_.get(); }
  commsched_context_t* context() const { return context_.get(); }

 private:
  Rank(const Options& options, const Sampler& sampler, int64_t index);

  absl::Status CreateHandles();
  // What all ranks do in a step.
  absl::Status PlanSteps();
  absl::Status CreateTrace();
  absl::Status CreateEngine();
  absl::Status RegisterModel();
  ModuleFlops ModuleFlopsOf(int m) const;
  absl::Status InitializeWeights();
  absl::Status Forward(uint32_t micro_batch);
  absl::Status Backward(uint32_t micro_batch);
  // Runs `body` on module `m` within a pass of `kind`, with the attention of
  // shared sequences.
  template <typename Body>
  absl::Status RunPass(uint32_t kind, int m, uint32_t micro_batch, Body body);
  // Where the engine has parameter `p` now; nowhere: null.
  absl::Status FindParameter(size_t p);
  // Notes where parameter `p` and its gradient are.
  void MeasureLive(size_t p);

  // Among those whose sequences differ.
  int64_t data_index() const { return index_ / options_.sp; }

  const Options& options_;
  const Sampler& sampler_;
  const int64_t index_;
  const LearningRateSchedule schedule_;

  std::unique_ptr<Gpt> gpt_;
  Handle<commsched_context_t, commsched_context_destroy> context_;
  Handle<commsched_group_t, commsched_group_destroy> group_;
  Handle<commsched_group_t, commsched_group_destroy> sequence_group_;
  Handle<commsched_trace_t, commsched_trace_destroy> trace_;
  // Of the optimizer's state and of gradients, if these are offloaded.
  Handle<commsched_file_pool_t, commsched_file_pool_destroy> pool_;
  Handle<commsched_file_pool_t, commsched_file_pool_destroy> gradient_pool_;
  Handle<commsched_model_t, commsched_model_destroy> model_;
  Handle<commsched_step_plan_t, commsched_step_plan_destroy> step_plan_;
  SequenceAttention attention_;
  Handle<commsched_engine_t, commsched_engine_destroy> engine_;
  // Guards the making of engine_ against Abort(), which other threads call.
  std::mutex abort_mutex_;
  std::string abort_reason_;  // Empty: not aborted.

  // By parameter index, in the engine; set by FindParameter.
  std::vector<const void*> value_addresses_;
  std::vector<void*> gradient_addresses_;

  // The same as fp32.
  std::unique_ptr<WideParameters> wide_;
  std::vector<const float*> values_;
  std::vector<float*> gradients_;
  const double* loss_scale_ = nullptr;

  // Which parameters are whole for a while only; none below ZeRO-3.
  std::vector<bool> gathered_;
  bool in_step_ = false;
  uintptr_t live_begin_ = UINTPTR_MAX;  // What MeasureLive has seen.
  uintptr_t live_end_ = 0;

  // (local batch, seq) tokens.
  std::vector<uint8_t> inputs_;
  std::vector<uint8_t> targets_;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_RANK_H_
