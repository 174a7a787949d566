#ifndef COMMSCHED_TEST_ENGINE_RANDOM_CASE_H_
#define COMMSCHED_TEST_ENGINE_RANDOM_CASE_H_

#include <array>
#include <cstdint>
#include <initializer_list>
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
  bool has_dtype = false;  // Of its own: `dtype`.
  uint32_t dtype = COMMSCHED_F32;
  bool frozen = false;
  bool atomic = false;
  uint32_t option_set = 0;

  uint64_t count() const;
};

struct RandomModel {
  std::vector<RandomParameter> parameters;
  std::vector<std::vector<uint32_t>> used;  // By module: owned, then tied.
};

inline constexpr uint32_t kNoActivation = ~0u;

// An op, or a collective, within a forward or backward.
struct RandomStep {
  bool is_collective = false;
  uint32_t input = kNoActivation;  // What it reads all of.
  uint32_t output = kNoActivation;
  // Of an op: what it reads, and of that the gradients to which it adds.
  std::vector<uint32_t> parameters = {}, gradients = {};
  // Of a collective. Gathers take the first part of the input, scatters fill
  // that of the output; the last rank broadcasts.
  commsched_collective_t kind = COMMSCHED_ALL_TO_ALL;
  bool in_sp = false;

  bool AddsTo(uint32_t parameter) const;
};

// What modules exchange, within memory that they share.
struct RandomExchanges {
  int32_t sp = 1;  // Neighbouring ranks in a group.
  uint32_t num_activations = 0;
  uint64_t count = 0;  // Elements of each.
  // By module; of forward, then backward.
  std::vector<std::array<std::vector<RandomStep>, 2>> steps;

  bool any() const { return !steps.empty(); }
  const std::vector<RandomStep>& StepsOf(uint32_t module, bool backward) const;
  bool In(uint32_t module) const {
    return !StepsOf(module, false).empty() || !StepsOf(module, true).empty();
  }
};

// Recorded from `step` on; its modules may come several times.
struct RecordedOrder {
  uint32_t step = 0;
  std::vector<uint32_t> modules;
  bool by_evaluation = false;  // Before the step.
};

// One element of a gradient that is infinite.
struct Overflow {
  uint32_t step = 0;
  int32_t rank = 0;
  uint32_t parameter = 0;
};

// A rank that cancels a step, for itself or for all.
struct RandomCancel {
  uint32_t step = 0;
  int32_t rank = 0;
  uint32_t position = 0;  // Among the forwards of the first micro-batch.
  bool all = false;
  bool in_backward = false;  // Before that backward instead; for all.
};

// Another plan, with which the ranks go on before a step: of another model that
// differs in its list of passes.
struct RandomReplan {
  uint32_t step = 0;
  std::vector<commsched_pass_t> passes;  // As RandomCase::passes.
  uint64_t prefetch_bytes = 0;
  uint32_t fixed_addresses = 0;
};

// A forward or backward of a module: where it is among the forwards.
struct RandomPass {
  uint32_t position = 0;
  bool backward = false;
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
  bool offloads = false;            // The optimizer's state, to a pool.
  bool offloads_gradients = false;  // To another one.
  // Between modules ranks try to begin some that the plan does not have there.
  bool tries_wrong_orders = false;
  // Modules that are recomputed together, each the first and the last.
  std::vector<std::pair<uint32_t, uint32_t>> recomputed;
  std::vector<RecordedOrder> orders;  // None: that of registration.
  std::vector<Overflow> overflows;    // With a loss scale.
  // The passes of a step, if not those by default. Backwards come micro-batch
  // after micro-batch, in reverse.
  std::vector<commsched_pass_t> passes;
  std::vector<RandomReplan> replans;
  bool comes_short = false;  // Some ranks have fewer micro-batches in a step.
  std::vector<RandomCancel> cancels;
  RandomExchanges exchanges;
  Wrong wrong = Wrong::kNothing;
  // Without context, group, plan, profile and trace.
  commsched_engine_desc_t engine = commsched_engine_desc_init();
  commsched_step_plan_options_t options = commsched_step_plan_options_init();
  commsched_optimizer_table_t optimizer = commsched_adamw(0.9f, 0.95f, 1e-8f);
  commsched_plan_options_t plan = commsched_plan_options_init();
  commsched_cost_profile_t profile = commsched_cost_profile_init();

  uint32_t micro_batches() const {
    return options.micro_batches == 0 ? 1 : options.micro_batches;
  }
  bool has_sgd() const { return std::string(optimizer.name) == "sgd"; }
  // Of those, the ones that come.
  uint32_t MicroBatchesOf(int32_t rank, uint32_t step) const;
  // What the mean of the ranks' gradients is multiplied by.
  double factor_of_mean() const {
    return options.gradient_divisor == 0 ? 1 : ranks / options.gradient_divisor;
  }
  // Of each option set, if there are any.
  std::vector<commsched_option_values_t> Sets() const;
  // Whether a rank cancels a step for all.
  bool IsCancelled(uint32_t step) const;
  // Null: the rank does not cancel the step.
  const RandomCancel* CancelAt(int32_t rank, uint32_t step) const;
  commsched_dtype_t DTypeOf(uint32_t parameter) const {
    const RandomParameter& p = model.parameters[parameter];
    return static_cast<commsched_dtype_t>(
        p.has_dtype ? p.dtype : options.parameter_dtype);
  }
  bool is_fp32() const {
    for (uint32_t p = 0; p < model.parameters.size(); ++p) {
      if (DTypeOf(p) != COMMSCHED_F32) return false;
    }
    return options.reduce_dtype == COMMSCHED_F32;
  }
  // Steps whose gradients are not finite are skipped.
  bool has_norm() const {
    return engine.clip_norm > 0 || engine.loss_scale > 0 ||
           options.check_finite != 0;
  }
  // Whether the order of all additions is known.
  bool has_one_result() const;
  // What is recorded before `step`; null: nothing new.
  const RecordedOrder* RecordedAt(uint32_t step) const;
  // The plan with which the ranks go on before `step`; null: the same.
  const RandomReplan* ReplannedAt(uint32_t step) const;
  // The modules of a forward of `step`.
  std::vector<uint32_t> Order(uint32_t step) const;
  // What follows the forwards of a micro-batch whose order is `order`.
  std::vector<RandomPass> Backwards(const std::vector<uint32_t>& order) const;
  // Where in a backward of `module` something is added to the gradient of a
  // parameter: 0 is before its ops, 1 is the first of them.
  std::vector<uint32_t> PartsOf(uint32_t module, uint32_t parameter) const;
  bool AddsBeforeOps(uint32_t module, uint32_t parameter) const;
  // Of the seed and `parts`.
  uint64_t Hash(std::initializer_list<uint64_t> parts) const;
  // Of the limit of the arena; 0: none.
  uint64_t limit() const;
  void SetLimit(uint64_t bytes);
  // The case as `rank` has it.
  RandomCase Of(int32_t rank) const;
};

// One line.
std::string Describe(const RandomCase& random_case);

struct GradientPlace;
// Whether a backward that comes says that a gradient is absent, to which none
// of its parts adds.
bool SaysAbsent(const RandomCase& random_case, GradientPlace place);

// Whether `rank` leaves out the module in a micro-batch, as a branch does.
// Nobody does in a forward that is recorded, and all do or none if it exchanges
// something.
bool Skips(const RandomCase& random_case, int32_t rank, uint32_t step,
           uint32_t micro_batch, uint32_t module);

float InitialValue(uint32_t parameter, uint64_t index);

// Where something is added to a gradient.
struct GradientPlace {
  int32_t rank;
  uint32_t step;
  uint32_t micro_batch;
  uint32_t position;  // Among the forwards.
  uint32_t module;
  uint32_t parameter;
  uint32_t part;  // Of RandomCase::PartsOf().
};

// What a backward adds to the gradient of one parameter; nothing where it is
// left out.
class GradientSource {
 public:
  GradientSource(const RandomCase& random_case, const GradientPlace& place);

  bool any() const { return any_; }
  float At(uint64_t index, float value) const;

 private:
  uint64_t where_;
  uint64_t infinite_ = ~uint64_t{0};  // The index of what is.
  bool any_;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_RANDOM_CASE_H_
