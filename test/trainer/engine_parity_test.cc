// Steps of several ranks, through the engine, against PyTorch in double
// precision: the loss and every gradient of a batch that they share out.
// reference.py wrote the numbers.

#include <cstdint>
#include <fstream>
#include <ostream>
#include <string>
#include <vector>

#include "examples/trainer/architecture.h"
#include "examples/trainer/options.h"
#include "examples/trainer/random.h"
#include "examples/trainer/schedule.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "test/trainer/tensor_digest.h"
#include "test/trainer/training_ranks.h"

namespace commsched::trainer {
namespace {

using nlohmann::json;

const json& Reference() {
  static const auto& reference = *new json([] {
    std::ifstream file(COMMSCHED_REFERENCE_NANO);
    EXPECT_TRUE(file) << "cannot open " << COMMSCHED_REFERENCE_NANO;
    return json::parse(file);
  }());
  return reference;
}

struct Case {
  int64_t ranks;
  int64_t zero;
  int64_t sp = 1;
  int64_t chunks = 1;
  int64_t kv_heads = 4;
  int64_t micro_batches = 1;
  uint64_t max_live_kib = 0;
  bool recompute = false;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.ranks << " ranks, ZeRO-" << c.zero << ", sp " << c.sp
             << " of " << c.chunks << " chunks, " << c.kv_heads << " kv heads, "
             << c.micro_batches << " micro-batches, " << c.max_live_kib
             << " KiB live" << (c.recompute ? ", recomputed" : "");
}

Options OptionsOf(const Case& c) {
  Options options;
  options.config = PresetOf("nano")->config;
  options.config.kv_heads = c.kv_heads;
  options.ranks = c.ranks;
  options.zero = c.zero;
  options.sp = c.sp;
  options.sp_chunks = c.chunks;
  options.micro_batches = c.micro_batches;
  options.max_live_bytes = c.max_live_kib << 10;
  options.recompute = c.recompute;
  options.steps = 1;
  options.batch = Reference()["runs"]["batch"];
  options.seq = Reference()["runs"]["seq"];
  options.val_batches = 1;
  options.bucket_bytes = 256 << 10;
  options.clip = 0;
  options.optimizer = "sgd";
  // So large a step that weights are hardly rounded to less than its gradient;
  // the first of the warm-up takes a part of it.
  options.lr = 30 * 0x1p14;
  return options;
}

// As RankModel::FillParameters() and test_weights() of reference.py.
std::vector<std::vector<float>> Weights(const Architecture& architecture,
                                        uint64_t seed) {
  std::vector<std::vector<float>> weights;
  for (ParameterSpec spec : architecture.parameters) {
    spec.init.deviation = spec.shape.size() == 2 ? 0.05 : 0.1;
    weights.emplace_back(spec.count);
    InitializeRange(spec, seed, 0, spec.count, weights.back().data());
  }
  return weights;
}

// What a step of SGD took away, without the decay of matrices.
std::vector<float> GradientOf(const ParameterSpec& spec, double rate,
                              const std::vector<float>& before,
                              const std::vector<float>& after) {
  const double decay = spec.decays() ? double{0.1f} : 0.0;
  std::vector<float> gradient;
  for (size_t i = 0; i < before.size(); ++i) {
    gradient.push_back(static_cast<float>(
        (double{before[i]} - after[i]) / rate - decay * before[i]));
  }
  return gradient;
}

class EngineParityTest : public ::testing::TestWithParam<Case> {};

// fp32 against fp64. The loss, of 384 tokens, differs by 3e-8 of it at most;
// gradients, of matrices and norms nine modules deep, by 2e-6 of their size.
TEST_P(EngineParityTest, LossAndEveryGradientArePyTorchs) {
  const Options options = OptionsOf(GetParam());
  const uint64_t seed = Reference()["seed"];
  const auto& runs = Reference()["runs"]["of"];
  const json& run = runs[GetParam().kv_heads == runs[0]["kv_heads"] ? 0 : 1];
  ASSERT_EQ(run["kv_heads"], GetParam().kv_heads);
  const Architecture architecture = BuildArchitecture(options.config);
  const auto before = Weights(architecture, seed);
  const RanksOutcome outcome = TrainingRanks(options).Step(&before);

  const double loss = run["loss"];
  EXPECT_NEAR(outcome.loss, loss, 1e-6 * loss);
  const double rate = static_cast<float>(LearningRateAt(
      {.peak = options.lr, .total_steps = options.steps}, /*step=*/0));
  ASSERT_EQ(outcome.weights.size(), before.size());
  ASSERT_EQ(run["gradients"].size(), before.size());
  for (size_t p = 0; p < before.size(); ++p) {
    const ParameterSpec& spec = architecture.parameters[p];
    const json& expected = run["gradients"].at(spec.name);
    const auto gradient = GradientOf(spec, rate, before[p], outcome.weights[p]);
    ExpectClose(spec.name,
                DigestOf(spec.name, gradient, seed,
                         static_cast<int64_t>(expected["samples"].size())),
                expected, 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Stages, EngineParityTest,
    ::testing::Values(
        Case{1, 0}, Case{2, 0}, Case{2, 1}, Case{2, 2}, Case{2, 3}, Case{4, 0},
        Case{4, 1}, Case{4, 2}, Case{4, 3},
        Case{.ranks = 2, .zero = 3, .kv_heads = 2},
        Case{.ranks = 4, .zero = 3, .micro_batches = 2, .max_live_kib = 6144},
        Case{.ranks = 2, .zero = 3, .recompute = true}));

INSTANTIATE_TEST_SUITE_P(
    SharedSequences, EngineParityTest,
    ::testing::Values(
        Case{.ranks = 2, .zero = 1, .sp = 2},
        Case{.ranks = 2, .zero = 3, .sp = 2, .chunks = 2},
        Case{.ranks = 4, .zero = 2, .sp = 4},
        Case{.ranks = 4, .zero = 0, .sp = 2, .chunks = 2},
        Case{.ranks = 4, .zero = 3, .sp = 2},
        // Two heads on the first rank, one on the others.
        Case{.ranks = 3, .zero = 2, .sp = 3},
        Case{.ranks = 3, .zero = 3, .sp = 3, .kv_heads = 2},
        Case{.ranks = 2, .zero = 2, .sp = 2, .kv_heads = 2},
        // Each head of keys and values goes to two ranks.
        Case{.ranks = 4, .zero = 3, .sp = 4, .kv_heads = 2},
        Case{.ranks = 4,
             .zero = 2,
             .sp = 2,
             .chunks = 2,
             .kv_heads = 2,
             .micro_batches = 2},
        Case{.ranks = 4, .zero = 3, .sp = 2, .chunks = 2, .recompute = true}));

}  // namespace
}  // namespace commsched::trainer
