// Sequences that ranks share: the same loss and gradients as with whole ones,
// and what of each exchange is hidden.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "examples/trainer/data.h"
#include "examples/trainer/options.h"
#include "examples/trainer/random.h"
#include "examples/trainer/training.h"
#include "test/trainer/training_ranks.h"

namespace commsched::trainer {
namespace {

using nlohmann::json;

Options SmallRun() {
  Options options;
  options.config = PresetOf("nano")->config;
  options.steps = 1;
  options.batch = 8;
  options.seq = 48;
  options.val_batches = 1;
  options.lr = 3e-3;
  options.clip = 0;
  options.bucket_bytes = 256 << 10;
  return options;
}

// ---- Loss and gradients -----------------------------------------------------

struct Case {
  int64_t ranks;
  int64_t sp;
  int64_t zero;
  int64_t chunks = 1;
  int64_t kv_heads = 0;
  int64_t micro_batches = 1;
  uint64_t max_live_kib = 0;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.ranks << " ranks, sp " << c.sp << " of " << c.chunks
             << " chunks, ZeRO-" << c.zero << ", " << c.kv_heads
             << " kv heads, " << c.micro_batches << " micro-batches";
}

class SequenceTest : public ::testing::TestWithParam<Case> {};

// After one step of gradient descent weights differ from the initial ones by
// the gradient, and by so much of it that they are not rounded to less.
TEST_P(SequenceTest, LossAndGradientsAreThoseOfOneRank) {
  const Case& c = GetParam();
  Options options = SmallRun();
  options.optimizer = "sgd";
  options.lr = 3e4;
  options.config.kv_heads = c.kv_heads;
  options.ranks = 1;
  options.zero = 0;
  const RanksOutcome expected = TrainingRanks(options).Step();
  options.ranks = c.ranks;
  options.sp = c.sp;
  options.zero = c.zero;
  options.sp_chunks = c.chunks;
  options.micro_batches = c.micro_batches;
  options.max_live_bytes = c.max_live_kib << 10;
  const RanksOutcome actual = TrainingRanks(options).Step();

  EXPECT_NEAR(actual.loss, expected.loss, 1e-5 * expected.loss);
  EXPECT_NEAR(actual.val_loss, expected.val_loss, 1e-5 * expected.val_loss);
  const Architecture architecture = BuildArchitecture(options.config);
  ASSERT_EQ(actual.weights.size(), architecture.parameters.size());
  for (size_t p = 0; p < actual.weights.size(); ++p) {
    const ParameterSpec& spec = architecture.parameters[p];
    EXPECT_LE(StepError(spec, actual.weights[p], expected.weights[p]), 1e-5)
        << spec.name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Splits, SequenceTest,
    ::testing::Values(
        Case{4, 1, 0}, Case{4, 1, 1}, Case{4, 1, 2}, Case{4, 1, 3},
        Case{.ranks = 2, .sp = 1, .zero = 3, .max_live_kib = 6144},
        Case{2, 2, 0}, Case{2, 2, 1, 2}, Case{4, 2, 2, 2}, Case{4, 2, 3, 2},
        Case{4, 4, 2}, Case{4, 4, 3}, Case{3, 3, 2},  // Four heads on three.
        Case{.ranks = 2, .sp = 2, .zero = 2, .chunks = 2, .kv_heads = 2},
        Case{.ranks = 4, .sp = 4, .zero = 3, .kv_heads = 2},
        Case{.ranks = 4, .sp = 2, .zero = 2, .chunks = 2, .micro_batches = 2},
        Case{.ranks = 4,
             .sp = 2,
             .zero = 3,
             .chunks = 2,
             .micro_batches = 2,
             .max_live_kib = 6144}));

TEST(SequenceBitsTest, AreTheSameForAnyStageBucketAndSchedule) {
  const Dataset dataset = NoiseDataset();
  Options options = SmallRun();
  options.steps = 3;
  options.clip = 1;
  options.deterministic = true;
  options.sp = 2;
  options.sp_chunks = 2;
  options.zero = 0;
  const absl::StatusOr<Report> expected = Train(options, dataset);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (int64_t zero : {1, 2, 3}) {
    for (bool serial : {false, true}) {
      options.zero = zero;
      options.serial = serial;
      options.bucket_bytes = serial ? 1 << 20 : 64 << 10;
      options.cap_launches = serial ? 0 : 2;
      const absl::StatusOr<Report> report = Train(options, dataset);
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_EQ(report->weights_sha256, expected->weights_sha256)
          << "stage " << zero << (serial ? ", serial" : ", overlap");
    }
  }
}

TEST(SequenceBitsTest, AreTheSameWhereExchangesBlock) {
  const Dataset dataset = NoiseDataset();
  Options options = SmallRun();
  options.steps = 2;
  options.deterministic = true;
  options.sp = 4;
  const absl::StatusOr<Report> expected = Train(options, dataset);
  ASSERT_TRUE(expected.ok()) << expected.status();
  options.sp_blocking = true;
  const absl::StatusOr<Report> report = Train(options, dataset);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->weights_sha256, expected->weights_sha256);
  EXPECT_NE(report->plan_fingerprint, expected->plan_fingerprint);
}

// ---- What is hidden ---------------------------------------------------------

// The plan of a step in which pairs of ranks exchange two chunks of heads.
class OverlapPlan {
 public:
  OverlapPlan() {
    Options options = SmallRun();
    options.sp = 2;
    options.sp_chunks = 2;
    options.link = {.bytes_per_s = 1e8, .latency_ns = 50'000};
    options.coalesce_bytes = 0;  // Each exchange by itself, when it is due.
    options.priority = "off";
    TrainingRanks ranks(options);
    char* text = nullptr;
    EXPECT_EQ(commsched_plan_explain(ranks.plan(), COMMSCHED_JSON, &text),
              COMMSCHED_OK);
    plan_ = json::parse(text);
    commsched_string_free(text);
  }

  json Launch(const std::string& member) const {
    for (const json& launch : plan_["launches"]) {
      if (launch["members"] == json::array({member})) return launch;
    }
    ADD_FAILURE() << "no launch of " << member << " alone";
    return {};
  }

  size_t OpIndex(const std::string& name) const {
    const json& ops = plan_["ops"];
    for (size_t i = 0; i < ops.size(); ++i) {
      if (ops[i]["name"] == name) return i;
    }
    ADD_FAILURE() << "no op " << name;
    return 0;
  }

  // Whether op `index` waits, in this step, for the launch of `key` or one
  // after it on its lane, which implies it.
  bool Waits(size_t index, const json& launch) const {
    for (const json& wait : plan_["ops"][index]["waits"]) {
      if (wait["distance"] != 0 || !wait.contains("launch")) continue;
      const uint64_t key = wait["launch"];
      if (key < launch["key"].get<uint64_t>()) continue;
      for (const json& other : plan_["launches"]) {
        if (other["key"] == key && other["lane"] == launch["lane"]) return true;
      }
    }
    return false;
  }

  const json& plan() const { return plan_; }

 private:
  json plan_;
};

// An exchange that goes out when `producer` is over and that `consumer` waits
// for, and what runs until then.
struct Overlap {
  const char* exchange;
  const char* producer;
  std::vector<std::string> under;
  const char* consumer;
};

void ExpectOverlap(const std::string& module, const Overlap& overlap) {
  static const auto& plan = *new OverlapPlan();
  const json launch = plan.Launch(module + overlap.exchange);
  EXPECT_EQ(launch["due_after"], module + overlap.producer);
  EXPECT_EQ(launch["group"], "sp");
  size_t last = plan.OpIndex(module + overlap.producer);
  for (const std::string& name : overlap.under) {
    const size_t index = plan.OpIndex(module + name);
    EXPECT_GT(index, last) << name << " does not come after what is before";
    for (size_t i = last + 1; i <= index; ++i) {
      EXPECT_FALSE(plan.Waits(i, launch))
          << plan.plan()["ops"][i]["name"] << " waits";
    }
    last = index;
  }
  const size_t consumer = plan.OpIndex(module + overlap.consumer);
  EXPECT_GT(consumer, last);
  bool waits = false;
  for (size_t i = last + 1; i <= consumer; ++i) {
    waits = waits || plan.Waits(i, launch);
  }
  EXPECT_TRUE(waits) << overlap.consumer << " does not wait";
}

constexpr char kForward[] = "forward[0].h.1.attn.";
constexpr char kBackward[] = "backward[0].h.1.attn.";

// The five of DeepSpeed #5691, the projections of a chunk in the place of those
// of all heads.

TEST(SequenceOverlapTest, QueriesTravelUnderTheProjectionOfKeys) {
  for (const std::string c : {"0", "1"}) {
    ExpectOverlap(kForward, {("a_q" + c).c_str(),
                             ("q" + c).c_str(),
                             {"k" + c, "v" + c},
                             ("attend" + c).c_str()});
  }
}

TEST(SequenceOverlapTest, KeysTravelUnderTheProjectionOfValues) {
  for (const std::string c : {"0", "1"}) {
    ExpectOverlap(kForward, {("a_k" + c).c_str(),
                             ("k" + c).c_str(),
                             {"v" + c},
                             ("attend" + c).c_str()});
  }
}

TEST(SequenceOverlapTest, ContextGradientsTravelUnderTheWeightsOfTheWayOut) {
  ExpectOverlap(kBackward,
                {"a_do0", "context0", {"context1", "out_weight"}, "v_heads0"});
  ExpectOverlap(kBackward, {"a_do1", "context1", {"out_weight"}, "v_heads1"});
}

TEST(SequenceOverlapTest, KeyGradientsTravelUnderTheBackwardOfValues) {
  ExpectOverlap(kBackward,
                {"a_dk1", "qk_heads1", {"v_input", "v_weight"}, "k_input"});
}

TEST(SequenceOverlapTest, QueryGradientsTravelUnderThatOfValuesAndKeys) {
  ExpectOverlap(kBackward, {"a_dq1",
                            "qk_heads1",
                            {"v_input", "v_weight", "k_input", "k_weight"},
                            "q_input"});
}

// The three that it leaves exposed.

TEST(SequenceOverlapTest, ValuesTravelUnderOtherChunks) {
  ExpectOverlap(kForward, {"a_v0", "v0", {"q1", "k1", "v1"}, "attend0"});
  ExpectOverlap(kForward, {"a_v1", "v1", {"attend0"}, "attend1"});
}

TEST(SequenceOverlapTest, OutputsTravelUnderTheNextChunkAndTheWayOut) {
  ExpectOverlap(kForward, {"a_o0", "attend0", {"attend1"}, "out0"});
  ExpectOverlap(kForward, {"a_o1", "attend1", {"out0"}, "out1"});
}

TEST(SequenceOverlapTest, ValueGradientsTravelUnderThoseOfQueriesAndKeys) {
  ExpectOverlap(
      kBackward,
      {"a_dv0", "v_heads0", {"qk_heads0", "v_heads1", "qk_heads1"}, "v_input"});
  ExpectOverlap(kBackward, {"a_dv1", "v_heads1", {"qk_heads1"}, "v_input"});
}

// Only a reduction waits for a weight's gradient.
TEST(SequenceOverlapTest, NoExchangeWaitsForAWeightsGradient) {
  const OverlapPlan plan;
  int reductions = 0;
  for (const json& launch : plan.plan()["launches"]) {
    const std::string due_after = launch["due_after"];
    if (due_after.find("_weight") == std::string::npos) continue;
    EXPECT_EQ(launch["group"], "dp_shard") << launch["members"];
    ++reductions;
  }
  EXPECT_GT(reductions, 0);
}

struct Interval {
  double begin;
  double end;
};

double Common(const std::vector<Interval>& some,
              const std::vector<Interval>& others) {
  double common = 0;
  for (const Interval& a : some) {
    for (const Interval& b : others) {
      common +=
          std::max(0.0, std::min(a.end, b.end) - std::max(a.begin, b.begin));
    }
  }
  return common;
}

// On a link whose latency is longer than most ops, something of each exchange
// runs beside compute, whatever else the machine does.
TEST(SequenceOverlapTest, TheTraceShowsEachBesideCompute) {
  const std::string folder = testing::TempDir() + "/commsched-sequence-trace";
  Options options = SmallRun();
  options.ranks = 2;
  options.sp = 2;
  options.sp_chunks = 2;
  options.steps = 4;
  options.link = {.bytes_per_s = 1e9, .latency_ns = 2'000'000};
  options.coalesce_bytes = 0;
  options.trace_dir = folder;
  const Dataset dataset = NoiseDataset();
  const absl::StatusOr<Report> report = Train(options, dataset);
  ASSERT_TRUE(report.ok()) << report.status();
  std::ifstream file(folder + "/rank0.json");
  const json trace = json::parse(file);
  std::vector<Interval> compute;
  std::map<std::string, std::vector<Interval>> exchanges;
  for (const json& event : trace["traceEvents"]) {
    if (event.value("cat", "") != "kernel") continue;
    const std::string name = event["name"];
    const double begin = event["ts"];
    const Interval interval = {begin, begin + event["dur"].get<double>()};
    const size_t at = name.find(".attn.a_");
    if (at != std::string::npos) {
      const size_t kind = at + 6;
      exchanges[name.substr(kind,
                            name.find_first_of("0123456789", kind) - kind)]
          .push_back(interval);
    } else if (name.find("nccl") == std::string::npos) {
      compute.push_back(interval);
    }
  }
  EXPECT_EQ(exchanges.size(), 8u);
  for (const auto& [kind, intervals] : exchanges) {
    EXPECT_GT(Common(intervals, compute), 0) << kind;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace commsched::trainer
