#ifndef COMMSCHED_TEST_ENGINE_TOY_MODEL_H_
#define COMMSCHED_TEST_ENGINE_TOY_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "commsched/engine.h"
#include "test/engine/test_pools.h"

namespace commsched::engine {

// A model without a forward: four modules of parameters with awkward sizes, the
// first tied to the last, whose gradients are a function of value, rank, step,
// micro-batch and position. What the engine makes of it can be computed by a
// plain loop.

struct ToyParameter {
  const char* name;
  std::vector<uint64_t> dims;
  uint32_t module;

  uint64_t count() const;
};

struct ToyModule {
  const char* name;
  std::vector<uint32_t> used;  // Owned, then tied.
};

const std::vector<ToyParameter>& ToyParameters();
const std::vector<ToyModule>& ToyModules();
float ToyInitialValue(uint32_t parameter, uint64_t index);

// A pass of a module on a rank.
struct ToyPass {
  int32_t rank;
  uint32_t step;
  uint32_t micro_batch;
  uint32_t module;
};

struct ToyRun {
  int32_t ranks = 2;
  uint32_t steps = 3;
  commsched_engine_desc_t engine = commsched_engine_desc_init();
  commsched_plan_options_t plan = commsched_plan_options_init();
  uint32_t unused_parameter = ~0u;  // To which nobody adds a gradient.
  std::function<bool(const ToyPass&)> skips;  // Empty: no module is left out.
  // The order of forwards of a step; empty: that of registration. Recorded,
  // unless it is empty; again whenever it changes.
  std::function<std::vector<uint32_t>(uint32_t step)> order;
  std::shared_ptr<TestPools> pools;  // Null: the optimizer's is memory.
  // The order in which a forward really comes, whatever its module; empty: the
  // same. Gradients are added up as in the other one.
  std::function<std::vector<uint32_t>(const ToyPass&)> arrival;

  ToyRun() {
    engine.zero_stage = 2;
    engine.bucket_bytes = 16384;
    engine.weight_decay = 0.1f;
    engine.clip_norm = 1;
    plan.deterministic = 1;
  }
  uint32_t micro_batches() const {
    return engine.micro_batches == 0 ? 1 : engine.micro_batches;
  }
  // First and last modules of what is recomputed.
  std::vector<std::pair<uint32_t, uint32_t>> recomputed;

  std::vector<uint32_t> Order(uint32_t step) const;
  // In a forward of modules in `order`: where the segment begins that is over
  // at `end`, or `end` - 1 for a module that is not recomputed.
  size_t SegmentBegin(const std::vector<uint32_t>& order, size_t end) const;
  bool Recomputes(uint32_t module) const;
  bool Skips(const ToyPass& pass) const {
    return skips != nullptr && skips(pass);
  }
};

// One rank, built: context, group and engine with the toy model.
class ToyRank {
 public:
  // Aborts the test process if the local set-up fails.
  ToyRank(const ToyRun& run, commsched_world_t* world, int32_t rank);
  ~ToyRank();
  ToyRank(const ToyRank&) = delete;
  ToyRank& operator=(const ToyRank&) = delete;

  // Each returns "" or the message of the first failure.
  std::string Build();  // And sets the initial values.
  // `look` is called in each backward, once values() and gradients() are those
  // of its module.
  using Look = std::function<void(uint32_t module)>;
  std::string Step(uint32_t step, const Look& look = nullptr);
  // Without the optimizer.
  std::string ForwardBackward(uint32_t step, const Look& look = nullptr);
  // Drains; in stage 3 by an evaluation, hence collective.
  std::string Weights(std::vector<float>* out_weights);
  std::string Evaluate(const std::function<std::string(uint32_t)>& forward);

  commsched_engine_t* engine() { return engine_; }
  const std::vector<const float*>& values() const { return values_; }
  // Addresses, of whatever type gradients are.
  const std::vector<void*>& gradients() const { return gradients_; }

 private:
  std::string SetInitialValues();
  // Where the parameters of `module` are, in a forward or backward of it.
  std::string FindParameters(uint32_t module);
  // Those at `address`, as fp32.
  const float* Widened(uint32_t parameter, const void* address);
  // Of the values of the parameters of `module`.
  double Checksum(uint32_t module) const;
  std::string RecordAgain(uint32_t step);
  std::string Forward(uint32_t module, uint32_t micro_batch);
  std::string Backwards(uint32_t step, uint32_t micro_batch, const Look& look);
  std::string Backward(uint32_t module, uint32_t step, uint32_t micro_batch,
                       const Look& look);
  void AddToyGradients(uint32_t module, uint32_t step, uint32_t micro_batch);

  const ToyRun run_;
  const int32_t rank_;
  commsched_context_t* context_ = nullptr;
  commsched_group_t* group_ = nullptr;
  commsched_engine_t* engine_ = nullptr;
  std::vector<const float*> values_;
  std::vector<void*> gradients_;
  const double* loss_scale_ = nullptr;
  std::vector<float> mine_;                  // What a backward adds.
  std::vector<std::vector<float>> widened_;  // By parameter, unless fp32.
  std::vector<double> checksums_;            // By module, in its last forward.
  std::vector<uint32_t> order_;              // Of forwards, as recorded.
  std::vector<uint32_t> arrival_;            // As they come.
};

struct ToyResult {
  std::string error;                        // Of any rank.
  std::vector<std::vector<float>> weights;  // By rank; parameters end to end.
  double norm = 0;  // Of the last step; 0 unless clipped.
  commsched_engine_info_t info = commsched_engine_info_init();
};

// Runs `body` on a thread per rank, each with a rank of its own, and returns
// the first message that is not empty.
std::string OnRanks(const ToyRun& run,
                    const std::function<std::string(ToyRank&, int32_t)>& body);

ToyResult RunToy(const ToyRun& run);

// Equal to the bit, and quick to say so for thousands of values.
bool SameBits(const std::vector<float>& a, const std::vector<float>& b);

// Heap allocations of the whole process while every rank runs 40 steps, after
// 3 to warm up. `step` runs one; a message of its fails the test.
uint64_t AllocationsOnceWarm(
    const ToyRun& run,
    const std::function<std::string(ToyRank&, uint32_t step)>& step);

// Bytes from the first to the last element, of values and gradients, that the
// backwards of two steps see on a rank: the most of any.
uint64_t BytesSeenInBackwards(const ToyRun& run);

// The plan as JSON, and what the engine says of itself.
struct Planned {
  std::string error;  // Of any rank.
  nlohmann::json plan;
  commsched_engine_info_t info = commsched_engine_info_init();
};
Planned PlanOf(const ToyRun& run);

// The same training by a plain loop, in the engine's order of additions.
std::vector<float> ReferenceWeights(const ToyRun& run);

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_TOY_MODEL_H_
