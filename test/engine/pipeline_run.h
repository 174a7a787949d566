// The stages of a pipeline, which are roles of one plan: they train and
// evaluate in one process or over a backend that connects processes, and in
// plain arrays.
#ifndef COMMSCHED_TEST_ENGINE_PIPELINE_RUN_H_
#define COMMSCHED_TEST_ENGINE_PIPELINE_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "commsched/engine.h"

namespace commsched::engine {

inline constexpr uint64_t kWide = 64;  // Elements that stages hand on.
inline constexpr float kStageRate = 0.1f;
inline constexpr uint32_t kStageSteps = 3;
inline constexpr uint32_t kNoStep = ~0u;

// A step that is cancelled: on all ranks by one, or by each rank of its replica
// for itself.
struct CancelledStep {
  uint32_t step = kNoStep;
  commsched_cancel_scope_t scope = COMMSCHED_CANCEL_ALL;
  int32_t rank = 0;
  uint32_t passes = 0;   // After so many of those of the rank,
  bool in_pass = false;  // or within the one after these.
};

// `replicas` of a pipeline of `stages`, which share each stage's parameter.
// Rank r is replica r % replicas of stage r / replicas.
struct Pipeline {
  int32_t stages = 2;
  int32_t replicas = 1;
  uint32_t zero_stage = 0;
  std::string backend = "inproc";
  uint32_t micro_batches = 1;
  // As many forwards ahead as there are stages to come; else none.
  bool one_forward_one_backward = false;
  // An evaluation after each step; else none.
  bool evaluates = false;
  bool uneven_evaluations = false;
  // What the stages decide together.
  bool deterministic = false;
  float clip_norm = 0;
  float loss_scale = 0;
  bool check_finite = false;
  bool cancel_all = false;
  bool agrees = false;  // On what they step with, if on nothing else.
  // A step in which rank `spoiling_rank` has a gradient that is not finite.
  uint32_t spoiled_step = kNoStep;
  int32_t spoiling_rank = 0;
  CancelledStep cancelled = {};
  // A step in which not all micro-batches come.
  uint32_t short_step = kNoStep;
  int32_t other_rate_rank = -1;  // It steps with another rate; -1: none.

  int32_t size() const { return stages * replicas; }
  bool needs_norm() const {
    return clip_norm > 0 || loss_scale > 0 || check_finite;
  }
  bool has_norm_group() const { return needs_norm() || cancel_all || agrees; }
  uint32_t MicroBatchesIn(uint32_t step, int32_t replica) const;
  bool IsSkipped(uint32_t step) const;
};

// What one rank with all of it has, in plain arrays. Each stage multiplies by
// its weights; the loss is the half of the sum of squares of what comes out.
struct PlainPipeline {
  std::vector<std::vector<float>> weights;  // By stage.
  // By evaluation and replica: what the last stage makes.
  std::vector<std::vector<std::vector<float>>> outputs;
  std::vector<double> norms;  // Of the steps that were not skipped.
};

PlainPipeline TrainPlainPipeline(const Pipeline& run);

// What each rank has, by rank.
struct PipelineResult {
  std::vector<std::string> messages;  // Empty: it has trained.
  std::vector<std::vector<float>> weights;
  std::vector<std::vector<std::vector<float>>> outputs;
  std::vector<std::vector<double>> norms;
  std::vector<uint64_t> skipped;
};

PipelineResult RunPipeline(const Pipeline& run);

// Trains both ways, and compares.
void ExpectPlainPipeline(const Pipeline& run);

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_PIPELINE_RUN_H_
