#ifndef COMMSCHED_TEST_ENGINE_TOY_RANK_H_
#define COMMSCHED_TEST_ENGINE_TOY_RANK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "test/engine/create_engine.h"
#include "test/engine/model_handle.h"
#include "test/engine/toy_model.h"

namespace commsched::engine {

// What shapes the steps of `run`; as long as that lives.
commsched_step_plan_options_t ToyStepOptions(const ToyRun& run);

// One rank: context and group, model and, once built, engine of the toy.
class ToyRank {
 public:
  // Aborts the test process if the local set-up fails.
  ToyRank(const ToyRun& run, commsched_world_t* world, int32_t rank);
  ~ToyRank();
  ToyRank(const ToyRank&) = delete;
  ToyRank& operator=(const ToyRank&) = delete;

  // Each returns "" or the message of the first failure.
  std::string Build();  // The engine; and sets the initial values.
  // `look` is called in each backward, once values() and gradients() are those
  // of its module; on a device by its stream, which keeps a copy.
  using Look = std::function<void(uint32_t module)>;
  std::string Step(uint32_t step, const Look& look = nullptr);
  // Without the optimizer.
  std::string ForwardBackward(uint32_t step, const Look& look = nullptr);
  // Drains; in stage 3 by an evaluation, hence collective.
  std::string Weights(std::vector<float>* out_weights);
  std::string Evaluate(const std::function<std::string(uint32_t)>& forward);

  commsched_engine_t* engine() { return engine_; }
  commsched_model_t* model() { return model_.get(); }
  commsched_context_t* context() { return context_; }
  commsched_group_t* group() { return group_; }
  // Plans, and forgets the plan.
  commsched_status_t TryPlan();
  // Creates the engine, once: the first part of Build().
  commsched_status_t Create();
  // Goes on with the step plan of `next`, which has another model where its
  // modules, parameters or passes are described otherwise; its steps follow if
  // that succeeds.
  commsched_status_t Replan(const ToyRun& next);
  const std::vector<const float*>& values() const { return values_; }
  // Addresses, of whatever type gradients are.
  const std::vector<void*>& gradients() const { return gradients_; }

 private:
  static void DescribeModel(const ToyRun& run, commsched_model_t* model);
  std::string SetInitialValues();
  // Where the parameters of `module` are, in a forward or backward of it.
  std::string FindParameters(uint32_t module);
  // Those at `address`, as fp32.
  const float* Widened(uint32_t parameter, const void* address);
  // Calls body(values, gradients), addresses by parameter: at once, or on the
  // rank's stream.
  template <typename Body>
  void Compute(uint32_t module, bool adds_gradients, Body&& body);
  // Of the values of the parameters of `module`.
  double Checksum(uint32_t module) const;
  std::string RecordAgain(uint32_t step);
  std::string Cancel();
  std::string SayReady(const ToyPass& pass);
  std::string Forward(commsched_pass_kind_t kind, uint32_t module,
                      uint32_t micro_batch);
  std::string PassOfList(const commsched_pass_t& pass, uint32_t step,
                         const Look& look);
  std::string BackwardInput(uint32_t module, uint32_t micro_batch);
  std::string BackwardWeight(uint32_t module, uint32_t step,
                             uint32_t micro_batch);
  std::string Backwards(uint32_t step, uint32_t micro_batch, const Look& look);
  std::string Backward(uint32_t module, uint32_t step, uint32_t micro_batch,
                       const Look& look);
  void AddToyGradients(uint32_t module, uint32_t step, uint32_t micro_batch);

  ToyRun run_;
  const int32_t rank_;
  commsched_context_t* context_ = nullptr;
  commsched_group_t* group_ = nullptr;
  const ModelHandle model_ = NewModel();
  commsched_engine_t* engine_ = nullptr;
  std::vector<const float*> values_;
  std::vector<void*> gradients_;
  // As the engine gave them: values_ and gradients_ are those of what runs.
  std::vector<const void*> found_values_;
  std::vector<void*> found_gradients_;
  const double* loss_scale_ = nullptr;
  std::string failure_;                      // Of what ran on the stream.
  std::vector<float> mine_;                  // What a backward adds.
  std::vector<std::vector<float>> widened_;  // By parameter, unless fp32.
  std::vector<double> checksums_;            // By module, in its last forward.
  // By module: of its parameters, what the first half of a backward has read.
  std::vector<std::vector<std::vector<float>>> kept_;
  std::vector<uint32_t> order_;  // Of forwards.
};

// Runs `body` on a thread per rank, each with a rank of its own, and returns
// the first message that is not empty.
std::string OnRanks(const ToyRun& run,
                    const std::function<std::string(ToyRank&, int32_t)>& body);

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_TOY_RANK_H_
