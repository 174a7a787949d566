// Sequences that ranks share, in 16 bits: parameters and gradients, and what
// the ranks exchange.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "examples/trainer/options.h"
#include "examples/trainer/training.h"
#include "test/trainer/training_ranks.h"

namespace commsched::trainer {
namespace {

using nlohmann::json;

Options SmallRun() {
  Options options;
  options.config = {.context = 48, .layers = 2, .heads = 4, .channels = 64};
  options.ranks = 4;
  options.batch = 4;
  options.seq = 48;
  options.val_batches = 1;
  options.clip = 0;
  options.bucket_bytes = 64 << 10;
  return options;
}

void SetDType(const std::string& dtype, Options* options) {
  options->dtype = dtype;
  options->reduce_dtype = dtype;
  options->sp_dtype = dtype;
  options->loss_scale = dtype == "fp16" ? 4096 : 0;
}

// ---- Loss and gradients -----------------------------------------------------

struct Case {
  const char* dtype;
  const char* sp_dtype;
  double unit;  // What rounding is off by at most.
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.dtype << ", exchanged " << c.sp_dtype;
}

class SequencePrecisionTest : public ::testing::TestWithParam<Case> {};

// Of what a gradient comes from, q, k, v, o and their gradients are rounded in
// each layer; then it is rounded itself, as a rank's, as the mean, and the
// weight that it moves. Each is off by a unit at most, independently of the
// others, also in the run to compare with.
TEST_P(SequencePrecisionTest, LossAndGradientsAreThoseOfWholeSequences) {
  const Case& c = GetParam();
  Options options = SmallRun();
  options.steps = 1;
  options.optimizer = "sgd";
  options.lr = 3e4;  // Weights are rounded to little of the step they take.
  SetDType(c.dtype, &options);
  // So that what fp16 has no range for does not matter.
  options.loss_scale = 4096;
  options.ranks = 2;
  const RanksOutcome expected = TrainingRanks(options).Step();
  options.ranks = 4;
  options.sp = 2;
  options.sp_chunks = 2;
  options.sp_dtype = c.sp_dtype;
  const RanksOutcome actual = TrainingRanks(options).Step();
  EXPECT_NEAR(actual.loss, expected.loss, c.unit * expected.loss);
  EXPECT_NEAR(actual.val_loss, expected.val_loss, c.unit * expected.val_loss);
  const double layers = static_cast<double>(options.config.layers);
  const double tolerance = std::sqrt(8 * layers + 2 * 3) * c.unit;
  const Architecture architecture = BuildArchitecture(options.config);
  ASSERT_EQ(actual.weights.size(), architecture.parameters.size());
  for (size_t p = 0; p < actual.weights.size(); ++p) {
    const ParameterSpec& spec = architecture.parameters[p];
    EXPECT_LE(StepError(spec, actual.weights[p], expected.weights[p]),
              tolerance)
        << spec.name;
  }
  // That of queries is small beside that of values.
  for (int64_t l = 0; l < options.config.layers; ++l) {
    const int p = architecture.modules[architecture.attention_module(l)]
                      .owned[kFirstBias];
    ParameterSpec queries = architecture.parameters[p];
    queries.count = options.config.channels;
    EXPECT_LE(StepError(queries, actual.weights[p], expected.weights[p]),
              tolerance)
        << "queries of " << queries.name;
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, SequencePrecisionTest,
                         ::testing::Values(Case{"bf16", "bf16", 0x1p-8},
                                           Case{"bf16", "fp32", 0x1p-8},
                                           Case{"fp32", "bf16", 0x1p-8},
                                           Case{"fp16", "fp16", 0x1p-11},
                                           Case{"fp32", "fp16", 0x1p-11}));

// ---- Bits -------------------------------------------------------------------

Options TwoSteps(const char* dtype) {
  Options options = SmallRun();
  options.deterministic = true;
  options.steps = 2;
  options.batch = 8;
  options.clip = 1;
  options.lr = 3e-3;
  options.sp = 2;
  options.sp_chunks = 2;
  SetDType(dtype, &options);
  return options;
}

// With gradients of two micro-batches, which add up and travel as they are, or
// are converted for that.
TEST(SequencePrecisionBitsTest, AreTheSameForAnyStageBucketAndSchedule) {
  const Dataset dataset = NoiseDataset();
  for (const bool converted : {false, true}) {
    Options options = TwoSteps("bf16");
    options.micro_batches = 2;
    options.reduce_dtype = converted ? "fp32" : "bf16";
    options.accumulate_bytes = converted ? 1 : 0;
    options.zero = 0;
    const absl::StatusOr<Report> expected = Train(options, dataset);
    ASSERT_TRUE(expected.ok()) << expected.status();
    for (int64_t zero : {1, 2, 3}) {
      options.zero = zero;
      options.serial = zero == 2;
      options.bucket_bytes = zero == 1 ? 16 << 10 : 1 << 20;
      const absl::StatusOr<Report> report = Train(options, dataset);
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_EQ(report->weights_sha256, expected->weights_sha256)
          << "stage " << zero << ", reduced in " << options.reduce_dtype;
      EXPECT_EQ(report->val_loss, expected->val_loss);
    }
  }
}

TEST(SequencePrecisionBitsTest, AreTheSameWhereExchangesBlockOrRunAgain) {
  const Dataset dataset = NoiseDataset();
  Options options = TwoSteps("fp16");
  const absl::StatusOr<Report> expected = Train(options, dataset);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const bool recompute : {false, true}) {
    options.sp_blocking = !recompute;
    options.recompute = recompute;
    const absl::StatusOr<Report> report = Train(options, dataset);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->weights_sha256, expected->weights_sha256);
  }
}

// Gradients overflow at first, on some of the ranks; then steps are taken.
TEST(SequenceLossScaleTest, AllRanksSkipAStepThatOverflowsOnOne) {
  const Dataset dataset = NoiseDataset();
  Options options = TwoSteps("fp16");
  options.steps = 12;
  options.loss_scale = 0x1p24;
  options.zero = 1;
  const absl::StatusOr<Report> expected = Train(options, dataset);
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_GT(expected->skipped_steps, 0u);
  EXPECT_LT(expected->skipped_steps, 12u);
  EXPECT_EQ(expected->loss_scale,
            std::ldexp(0x1p24, -static_cast<int>(expected->skipped_steps)));
  EXPECT_TRUE(std::isfinite(expected->val_loss));
  options.zero = 3;
  const absl::StatusOr<Report> report = Train(options, dataset);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->skipped_steps, expected->skipped_steps);
  EXPECT_EQ(report->weights_sha256, expected->weights_sha256);
}

// ---- What travels -----------------------------------------------------------

// Within the step, by the ranks that share sequences.
uint64_t ExchangedBytes(const Options& options) {
  TrainingRanks ranks(options);
  char* text = nullptr;
  EXPECT_EQ(commsched_plan_explain(ranks.plan(), COMMSCHED_JSON, &text),
            COMMSCHED_OK);
  const json plan = json::parse(text);
  commsched_string_free(text);
  uint64_t bytes = 0;
  for (const json& launch : plan["launches"]) {
    if (launch["group"] == "sp") bytes += launch["bytes"].get<uint64_t>();
  }
  return bytes;
}

TEST(SequencePrecisionBytesTest, HalfAsManyTravel) {
  Options options = SmallRun();
  options.sp = 2;
  const uint64_t fp32 = ExchangedBytes(options);
  EXPECT_GT(fp32, 0u);
  options.sp_dtype = "bf16";
  EXPECT_EQ(ExchangedBytes(options), fp32 / 2);
}

}  // namespace
}  // namespace commsched::trainer
