#ifndef COMMSCHED_TEST_ENGINE_RANDOM_CASE_H_
#define COMMSCHED_TEST_ENGINE_RANDOM_CASE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "commsched/engine.h"

namespace commsched::engine {

// To which of its gradients is added: with kSometimes not by every rank, nor in
// every step and micro-batch.
enum class Gradients { kAlways, kSometimes, kNever };

struct RandomParameter {
  std::string name;
  std::vector<uint64_t> dims;
  uint32_t module = 0;
  Gradients gradients = Gradients::kAlways;

  uint64_t count() const;
};

struct RandomModel {
  std::vector<RandomParameter> parameters;
  std::vector<std::vector<uint32_t>> used;  // By module: owned, then tied.
};

// After a step, on all ranks.
enum class Between { kNothing, kDrain, kEvaluate };

// What has to be refused, whatever the rest is.
enum class Wrong {
  kNothing,
  kOptionOfStage3,  // With another stage.
  kRanksDiffer,     // The last rank has another plan.
};

// A model, a training and a configuration of the engine.
struct RandomCase {
  uint64_t seed = 0;
  RandomModel model;
  int32_t ranks = 1;
  std::vector<Between> after_step;
  double link_bytes_per_s = 0;
  int64_t link_latency_ns = 0;
  bool traced = false;
  // Modules that are recomputed together, each the first and the last.
  std::vector<std::pair<uint32_t, uint32_t>> recomputed;
  Wrong wrong = Wrong::kNothing;
  // Without context, group, plan, profile and trace.
  commsched_engine_desc_t engine = commsched_engine_desc_init();
  commsched_plan_options_t plan = commsched_plan_options_init();
  commsched_cost_profile_t profile = commsched_cost_profile_init();

  // Whether the order of all additions is known.
  bool has_one_result() const;
  // Of the limit of the arena; 0: none.
  uint64_t limit() const;
  void SetLimit(uint64_t bytes);
  // The case as `rank` has it.
  RandomCase Of(int32_t rank) const;
};

// Every choice follows from the seed.
RandomCase DrawCase(uint64_t seed);

// One line.
std::string Describe(const RandomCase& random_case);

// Whether `rank` leaves out the module in a micro-batch, as a branch does.
bool Skips(const RandomCase& random_case, int32_t rank, uint32_t step,
           uint32_t micro_batch, uint32_t module);

float InitialValue(uint32_t parameter, uint64_t index);

// What a backward adds to the gradient of one parameter; nothing where it is
// left out.
class GradientSource {
 public:
  GradientSource(const RandomCase& random_case, int32_t rank, uint32_t step,
                 uint32_t micro_batch, uint32_t module, uint32_t parameter);

  bool any() const { return any_; }
  float At(uint64_t index, float value) const;

 private:
  uint64_t where_;
  bool any_;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_RANDOM_CASE_H_
