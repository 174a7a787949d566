#ifndef COMMSCHED_TEST_ENGINE_EXCHANGE_MODEL_H_
#define COMMSCHED_TEST_ENGINE_EXCHANGE_MODEL_H_

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "commsched/engine_ops.h"
#include "test/engine/model_handle.h"

namespace commsched::engine {

// All of an activation.
inline commsched_access_t On(uint32_t activation,
                             commsched_access_mode_t mode) {
  commsched_access_t access = {};
  access.buffer = activation;
  access.mode = mode;
  return access;
}

// Two modules on a mesh of dp x sp ranks, the second of which exchanges
// activations along sp: every element that arrives can be foretold.
//
//   forward   make: a = w (rank + 1 + step + micro-batch)
//             swap: a -> b, all-to-all
//             other, which has nothing to do with it
//             use: checks b
//   backward  turn: c = 2 b
//             back: c -> d, all-to-all: 2 a again
//             weigh: adds to the gradient of w
//             add: adds d to it
//
// With `recompute` both forwards run again before the backwards, from nothing
// that the first ones have left.
inline constexpr uint64_t kExchanged = 64;
inline constexpr uint64_t kPlain = 300;

struct ExchangeRun {
  int32_t dp = 2;
  int32_t sp = 2;
  bool recompute = false;
  bool halves = false;  // Backwards come in halves.
  commsched_engine_desc_t engine = commsched_engine_desc_init();
  commsched_step_plan_options_t options = commsched_step_plan_options_init();
  commsched_plan_options_t plan = commsched_plan_options_init();

  ExchangeRun() {
    options.bucket_bytes = 4096;
    engine.clip_norm = 1;
    plan.deterministic = 1;
  }
  int32_t ranks() const { return dp * sp; }
  uint32_t micro_batches() const {
    return options.micro_batches == 0 ? 1 : options.micro_batches;
  }
};

// One rank, with everything registered. Each function returns "" or the
// message of the first failure.
class ExchangeRank {
 public:
  ExchangeRank(const ExchangeRun& run, commsched_world_t* world, int32_t rank);
  ~ExchangeRank();
  ExchangeRank(const ExchangeRank&) = delete;
  ExchangeRank& operator=(const ExchangeRank&) = delete;

  // The first part of Build().
  commsched_status_t Create();
  std::string Build();  // And sets the initial values.
  std::string Step(uint32_t step);
  // All ranks leave the second module out.
  std::string StepWithoutExchanges(uint32_t step);
  std::string Evaluate();
  std::string Weights(std::vector<float>* out_weights);

  commsched_engine_t* engine() { return engine_; }
  commsched_model_t* model() { return model_.get(); }

  // Ids in the order of registration.
  enum Op : uint32_t { kMake, kOther, kUse, kTurn, kWeigh, kAdd };
  enum Module : uint32_t { kPlainModule, kMixModule };

 private:
  void Register();
  void AddOp(const char* name, bool backward,
             const std::vector<commsched_access_t>& accesses, bool reads,
             bool adds);
  void AddExchange(const char* name, bool backward, uint32_t from, uint32_t to);
  template <typename Body>
  std::string Run(Op op, uint32_t micro_batch, Body&& body);
  std::string Forward(uint32_t micro_batch,
                      commsched_pass_kind_t kind = COMMSCHED_FORWARD);
  std::string Backward(uint32_t micro_batch);
  std::string ForwardMix(uint32_t micro_batch);
  std::string BackwardMix(uint32_t micro_batch);
  std::string Halves(uint32_t micro_batch);
  std::string Turn(uint32_t micro_batch);
  std::string AddUp(uint32_t micro_batch);
  std::string ForwardPlain(uint32_t micro_batch,
                           commsched_pass_kind_t kind = COMMSCHED_FORWARD);
  std::string BackwardPlain(uint32_t micro_batch);
  // What rank `rank` of the world multiplies w by.
  float Factor(int32_t rank, uint32_t micro_batch) const;
  std::string CheckArrived(uint32_t micro_batch) const;

  const ExchangeRun run_;
  const int32_t rank_;
  uint32_t step_ = 0;
  commsched_context_t* context_ = nullptr;
  commsched_group_t* group_ = nullptr;
  commsched_group_t* sp_group_ = nullptr;
  const ModelHandle model_ = NewModel();
  commsched_engine_t* engine_ = nullptr;
  const float* w_ = nullptr;
  float* w_gradient_ = nullptr;
  std::array<std::vector<float>, 4> memory_;  // a, b, c, d
};

// Runs `body` on a thread per rank, and returns the first message that is not
// empty.
std::string OnExchangeRanks(
    const ExchangeRun& run,
    const std::function<std::string(ExchangeRank&, int32_t)>& body);

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_EXCHANGE_MODEL_H_
