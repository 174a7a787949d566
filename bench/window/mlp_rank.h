// A multi-layer perceptron on the engine: what a framework's glue is.
#ifndef COMMSCHED_BENCH_WINDOW_MLP_RANK_H_
#define COMMSCHED_BENCH_WINDOW_MLP_RANK_H_

#include <cstdint>
#include <vector>

#include "commsched/engine.h"

namespace commsched::bench {

struct MlpSpec {
  int64_t layers = 8;
  int64_t hidden = 512;
  int64_t batch = 128;  // Rows per micro-batch and rank.

  uint64_t bytes() const {
    return static_cast<uint64_t>(layers * hidden * hidden) * sizeof(float);
  }
};

// How a step is run; the rest is equal for all.
struct StepKind {
  uint32_t zero_stage = 2;
  uint32_t micro_batches = 4;
  uint64_t accumulate_bytes = 0;
  bool serial = false;
};

// One rank: y = relu(x W) per layer, one bucket each. Ends the program if a
// call fails.
//
// Thread-compatible: one thread per rank.
class MlpRank {
 public:
  // Meets the other ranks of `world`.
  MlpRank(const MlpSpec& spec, const StepKind& kind, commsched_world_t* world,
          int32_t rank, double link_bytes_per_s, int64_t link_latency_ns);
  ~MlpRank();
  MlpRank(const MlpRank&) = delete;
  MlpRank& operator=(const MlpRank&) = delete;

  // Drained, so that nothing of it runs on afterwards. Returns the sum of the
  // squares of the last micro-batch's result.
  double Step();

  uint64_t collectives() const;
  uint64_t gradient_bytes() const;

 private:
  void CreateModel();
  void CreateEngine(double link_bytes_per_s, int64_t link_latency_ns);
  void SetWeights();
  struct Addresses {
    const float* weight;
    float* gradient;
  };
  // Where the engine has them.
  Addresses Parameter(uint32_t layer) const;
  void Forward(uint32_t layer);
  void Backward(uint32_t layer);
  float* Result(uint32_t layer) {
    return results_.data() +
           static_cast<int64_t>(layer) * spec_.batch * spec_.hidden;
  }

  const MlpSpec spec_;
  const StepKind kind_;
  commsched_context_t* context_ = nullptr;
  commsched_group_t* group_ = nullptr;
  commsched_model_t* model_ = nullptr;
  commsched_engine_t* engine_ = nullptr;
  std::vector<float> results_;   // Input, then that of each layer.
  std::vector<float> d_result_;  // Of the layer in backward.
  std::vector<float> d_input_;
};

}  // namespace commsched::bench

#endif  // COMMSCHED_BENCH_WINDOW_MLP_RANK_H_
