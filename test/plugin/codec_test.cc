// The shipped codecs, alone and under a session.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "comm/plugin/registry.h"
#include "device/host_device.h"
#include "gtest/gtest.h"
#include "plan/coding.h"
#include "plan/explain/explain.h"
#include "test/support/graph_builder.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::GraphBuilder;
using test::Read;
using test::SessionRig;
using test::Write;

constexpr char kPlugins[] = COMMSCHED_TEST_PLUGINS;

// Of the process, where sessions find it, too.
const commsched_codec_t* Codec(const std::string& name) {
  PluginRegistry& registry = PluginRegistry::Process();
  const std::string folder = name == "skeleton" ? "/skeletons" : "";
  const std::string file = name == "skeleton" ? "skeleton_codec" : name;
  EXPECT_OK(registry.Load(kPlugins + folder + "/commsched_" + file + ".so"));
  return registry.Codec(name).value();
}

std::vector<float> RandomFloats(uint64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<float> ThereAndBack(const commsched_codec_t* codec,
                                const std::vector<float>& values) {
  const CodecModel model{codec->name, codec->block_elements, codec->block_bytes,
                         codec->dtypes};
  std::vector<uint64_t> coded(EncodedBytes(model, values.size()) / 8 + 1);
  std::vector<float> back(values.size());
  codec->encode(values.data(), values.size(), coded.data());
  codec->decode(coded.data(), values.size(), back.data());
  return back;
}

TEST(Bf16CodecTest, ErrorsAreBelowHalfAnUlp) {
  const std::vector<float> values = RandomFloats(1000, 1);
  const std::vector<float> back = ThereAndBack(Codec("bf16"), values);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_LE(std::abs(back[i] - values[i]), std::abs(values[i]) / 256);
  }
}

TEST(Bf16CodecTest, WhatIsNotFiniteStaysSo) {
  const float inf = std::numeric_limits<float>::infinity();
  const uint32_t low_nan = 0x7f800001;
  float nan = 0;
  std::memcpy(&nan, &low_nan, sizeof(nan));
  const auto back = ThereAndBack(Codec("bf16"), {inf, -inf, nan, 0.0f});
  EXPECT_EQ(back[0], inf);
  EXPECT_EQ(back[1], -inf);
  EXPECT_TRUE(std::isnan(back[2]));
  EXPECT_EQ(back[3], 0.0f);
}

TEST(Int8CodecTest, ErrorsAreBelowHalfAStepOfTheBlock) {
  const std::vector<float> values = RandomFloats(1000, 2);
  const std::vector<float> back = ThereAndBack(Codec("int8"), values);
  for (size_t block = 0; block < values.size(); block += 256) {
    const size_t end = std::min(block + 256, values.size());
    float largest = 0;
    for (size_t i = block; i < end; ++i) {
      largest = std::max(largest, std::abs(values[i]));
    }
    for (size_t i = block; i < end; ++i) {
      EXPECT_LE(std::abs(back[i] - values[i]), largest / 254 * 1.0001f);
    }
  }
}

TEST(Int8CodecTest, ABlockWithWhatIsNotFiniteBecomesNan) {
  for (const float bad : {std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values(300, 1.0f);
    values[7] = bad;
    const std::vector<float> back = ThereAndBack(Codec("int8"), values);
    EXPECT_TRUE(std::isnan(back[0]));
    EXPECT_TRUE(std::isnan(back[255]));
    EXPECT_FLOAT_EQ(back[256], 1.0f);  // The next block.
  }
}

TEST(Int8CodecTest, ZerosAndTheSmallestNumbersDecodeToAlmostThemselves) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  const auto back =
      ThereAndBack(Codec("int8"), {0.0f, tiny, -tiny, 100 * tiny});
  for (const float value : back) EXPECT_LE(std::abs(value), 127 * tiny);
}

TEST(WritingAPluginTest, TheCodecOfThePageSendsSignsAndMeans) {
  PluginRegistry registry({std::string(kPlugins) + "/page"});
  ASSERT_OK_AND_ASSIGN(const commsched_codec_t* codec, registry.Codec("sign"));
  std::vector<float> values(300, 2.0f);
  values[1] = -4.0f;
  values[299] = -1.0f;
  const std::vector<float> back = ThereAndBack(codec, values);
  const float mean = (255 * 2.0f + 4.0f) / 256;
  EXPECT_FLOAT_EQ(back[0], mean);
  EXPECT_FLOAT_EQ(back[1], -mean);
  const float last_mean = (43 * 2.0f + 1.0f) / 44;
  EXPECT_FLOAT_EQ(back[298], last_mean);
  EXPECT_FLOAT_EQ(back[299], -last_mean);
}

// A lossy all-gather, reduce-scatter, all-to-all and broadcast, and an
// all-gather that is not lossy.
struct LossyStep {
  static constexpr uint64_t kPart = 600;

  explicit LossyStep(int ranks, ReduceOp reduce_op = ReduceOp::kSum) {
    const uint64_t n = static_cast<uint64_t>(ranks);
    const GroupId dp = builder.Group("dp", ranks);
    part = builder.Buffer("part", kPart);
    whole = builder.Buffer("whole", n * kPart);
    gathered = builder.Buffer("gathered", n * kPart);
    exact = builder.Buffer("exact", n * kPart);
    summed = builder.Buffer("summed", kPart);
    exchanged = builder.Buffer("exchanged", n * kPart);
    sent = builder.Buffer("sent", n * kPart);
    produce = builder.Compute("produce", {Write(part), Write(whole)});
    auto add = [&](const char* name, CollectiveKind kind, BufferId in,
                   BufferId out, bool lossy) {
      CollectiveSpec spec = test::Spec(kind, dp, Read(in), Write(out));
      spec.lossy = lossy;
      if (kind == CollectiveKind::kReduceScatter) spec.reduce_op = reduce_op;
      if (kind == CollectiveKind::kBroadcast) spec.root = ranks - 1;
      return builder.Collective(name, spec);
    };
    gather = add("gather", CollectiveKind::kAllGather, part, gathered, true);
    scatter =
        add("scatter", CollectiveKind::kReduceScatter, whole, summed, true);
    exchange =
        add("exchange", CollectiveKind::kAllToAll, whole, exchanged, true);
    send = add("broadcast", CollectiveKind::kBroadcast, whole, sent, true);
    add("exact_gather", CollectiveKind::kAllGather, part, exact, false);
    consume =
        builder.Compute("consume", {Read(gathered), Read(exact), Read(summed),
                                    Read(exchanged), Read(sent)});
  }

  GraphBuilder builder;
  BufferId part, whole, gathered, exact, summed, exchanged, sent;
  OpId produce, gather, scatter, exchange, send, consume;
};

PlanOptions OptionsWith(const commsched_codec_t* codec,
                        uint64_t coalesce_bytes = 0) {
  PlanOptions options;
  options.deterministic = true;
  options.coalesce_bytes = coalesce_bytes;
  options.codec = {codec->name, codec->block_elements, codec->block_bytes,
                   codec->dtypes};
  return options;
}

WorldSpec WorldOf(int size) {
  WorldSpec spec;
  spec.size = size;
  return spec;
}

std::vector<float> PartOf(int rank) {
  return RandomFloats(LossyStep::kPart, 100 + rank);
}
std::vector<float> WholeOf(int rank, int ranks) {
  return RandomFloats(LossyStep::kPart * ranks, 200 + rank);
}

class CodedSessionTest
    : public testing::TestWithParam<std::tuple<const char*, int>> {
 protected:
  const commsched_codec_t* codec() { return Codec(std::get<0>(GetParam())); }
  static int ranks() { return std::get<1>(GetParam()); }

  // Runs three steps and calls `check(session, rank)` after a drain.
  template <typename Check>
  void RunStep(SessionRig& rig, const LossyStep& step, Check check) {
    auto body = [&](Session& session, int rank) -> absl::Status {
      for (int t = 0; t < 3; ++t) {
        RETURN_IF_ERROR(session.StepBegin());
        Stream* caller = CallerStream();
        RETURN_IF_ERROR(session.Before(step.produce, caller));
        const auto part = PartOf(rank);
        const auto whole = WholeOf(rank, ranks());
        std::copy(part.begin(), part.end(), rig.Memory(rank, step.part));
        std::copy(whole.begin(), whole.end(), rig.Memory(rank, step.whole));
        RETURN_IF_ERROR(session.After(step.produce, caller));
        RETURN_IF_ERROR(session.Before(step.consume, caller));
        RETURN_IF_ERROR(session.After(step.consume, caller));
        RETURN_IF_ERROR(session.StepEnd());
      }
      RETURN_IF_ERROR(session.Drain());
      check(session, rank);
      return absl::OkStatus();
    };
    for (const absl::Status& status : rig.RunSessions(body)) {
      EXPECT_OK(status);
    }
  }
};

std::vector<float> Slice(const std::vector<float>& values, int part) {
  const auto begin = values.begin() + part * LossyStep::kPart;
  return {begin, begin + LossyStep::kPart};
}

TEST_P(CodedSessionTest, ResultsAreThoseOfDataThatWentThereAndBack) {
  LossyStep step(ranks());
  SessionRig rig(WorldOf(ranks()), step.builder.graph(), OptionsWith(codec()));
  RunStep(rig, step, [&](Session&, int rank) {
    std::vector<float> sum(LossyStep::kPart, 0.0f);
    const int n = ranks();
    for (int r = 0; r < n; ++r) {
      const size_t at = r * LossyStep::kPart;
      const auto gathered = ThereAndBack(codec(), PartOf(r));
      const auto exchanged = ThereAndBack(codec(), Slice(WholeOf(r, n), rank));
      for (size_t i = 0; i < LossyStep::kPart; ++i) {
        ASSERT_EQ(rig.Memory(rank, step.gathered)[at + i], gathered[i]);
        ASSERT_EQ(rig.Memory(rank, step.exchanged)[at + i], exchanged[i]);
        ASSERT_EQ(rig.Memory(rank, step.exact)[at + i], PartOf(r)[i]);
        sum[i] = r == 0 ? exchanged[i] : sum[i] + exchanged[i];
      }
    }
    const auto sent = ThereAndBack(codec(), WholeOf(n - 1, n));
    for (size_t i = 0; i < sent.size(); ++i) {
      ASSERT_EQ(rig.Memory(rank, step.sent)[i], sent[i]);
    }
    for (size_t i = 0; i < sum.size(); ++i) {
      ASSERT_EQ(rig.Memory(rank, step.summed)[i], sum[i]) << i;
    }
  });
}

TEST_P(CodedSessionTest, TheSenderMeasuresWhatIsLost) {
  LossyStep step(ranks(), ReduceOp::kAvg);
  SessionRig rig(WorldOf(ranks()), step.builder.graph(), OptionsWith(codec()));
  RunStep(rig, step, [&](Session& session, int rank) {
    const auto sent = PartOf(rank);
    const auto back = ThereAndBack(codec(), sent);
    double max_abs = 0, error2 = 0, data2 = 0;
    for (size_t i = 0; i < sent.size(); ++i) {
      const double error = std::abs(double{sent[i]} - back[i]);
      max_abs = std::max(max_abs, error);
      error2 += error * error;
      data2 += double{sent[i]} * sent[i];
    }
    ASSERT_OK_AND_ASSIGN(const CodecError measured,
                         session.CodecErrorOf(step.gather));
    EXPECT_EQ(measured.launches, 3u);
    EXPECT_EQ(measured.max_abs, max_abs);
    EXPECT_NEAR(measured.rms_relative, std::sqrt(error2 / data2), 1e-12);
    EXPECT_EQ(measured.worst_max_abs, max_abs);
    EXPECT_THAT(session.CodecErrorOf(step.produce).status(),
                StatusIs(absl::StatusCode::kNotFound, "'produce'"));
  });
}

INSTANTIATE_TEST_SUITE_P(Codecs, CodedSessionTest,
                         testing::Combine(testing::Values("bf16", "int8"),
                                          testing::Values(2, 3)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST(CodedPlanTest, ExplainSaysWhatTravels) {
  LossyStep step(2);
  SessionRig rig(WorldOf(2), step.builder.graph(), OptionsWith(Codec("int8")));
  const std::string text = ExplainText(*rig.plan());
  // 600 f32 are 3 blocks of 260 bytes, rounded up to 784; of 2 ranks.
  EXPECT_NE(text.find("encoded by 'int8': 1568 bytes travel for 4800"),
            std::string::npos)
      << text;
}

TEST(CodedPlanTest, MembersOfOneLaunchAreEncodedOneByOne) {
  GraphBuilder builder;
  const GroupId dp = builder.Group("dp", 2);
  std::vector<BufferId> in, out;
  std::vector<Access> writes, reads;
  for (int i = 0; i < 3; ++i) {
    const uint64_t count = 300 + i;
    in.push_back(builder.Buffer("in" + std::to_string(i), count));
    out.push_back(builder.Buffer("out" + std::to_string(i), 2 * count));
    writes.push_back(Write(in.back()));
    reads.push_back(Read(out.back()));
  }
  const OpId produce = builder.Compute("produce", writes);
  for (int i = 0; i < 3; ++i) {
    CollectiveSpec spec =
        test::Spec(CollectiveKind::kAllGather, dp, Read(in[i]), Write(out[i]));
    spec.lossy = true;
    builder.Collective("ag" + std::to_string(i), spec);
  }
  const OpId consume = builder.Compute("consume", reads);
  const commsched_codec_t* codec = Codec("int8");
  SessionRig rig(WorldOf(2), builder.graph(), OptionsWith(codec, 1 << 20));
  ASSERT_EQ(rig.plan()->launches.size(), 1u);
  EXPECT_TRUE(rig.plan()->launches[0].coded);
  const auto statuses =
      rig.RunSessions([&](Session& session, int rank) -> absl::Status {
        Stream* caller = CallerStream();
        RETURN_IF_ERROR(session.StepBegin());
        RETURN_IF_ERROR(session.Before(produce, caller));
        for (int i = 0; i < 3; ++i) {
          const auto values = RandomFloats(300 + i, 10 * rank + i);
          std::copy(values.begin(), values.end(), rig.Memory(rank, in[i]));
        }
        RETURN_IF_ERROR(session.After(produce, caller));
        RETURN_IF_ERROR(session.Before(consume, caller));
        RETURN_IF_ERROR(session.After(consume, caller));
        return session.StepEnd();
      });
  for (const absl::Status& status : statuses) ASSERT_OK(status);
  for (int rank = 0; rank < 2; ++rank) {
    for (int i = 0; i < 3; ++i) {
      for (int from = 0; from < 2; ++from) {
        const auto expected =
            ThereAndBack(codec, RandomFloats(300 + i, 10 * from + i));
        const float* actual = rig.Memory(rank, out[i]) + from * (300 + i);
        for (size_t k = 0; k < expected.size(); ++k) {
          ASSERT_EQ(actual[k], expected[k]) << i << " from " << from;
        }
      }
    }
  }
}

TEST(CodedPlanTest, WhatACodecWouldNotMakeSmallerTravelsAsItIs) {
  GraphBuilder builder;
  const GroupId dp = builder.Group("dp", 2);
  const BufferId in = builder.Buffer("in", 10);
  const BufferId out = builder.Buffer("out", 20);
  CollectiveSpec spec =
      test::Spec(CollectiveKind::kAllGather, dp, Read(in), Write(out));
  spec.lossy = true;
  EXPECT_FALSE(MayBeCoded(builder.graph(), spec, {"int8", 256, 260, 1}));
  EXPECT_TRUE(MayBeCoded(builder.graph(), spec, {"bf16", 1, 2, 1}));
  EXPECT_FALSE(
      MayBeCoded(builder.graph(), spec, {"bf16", 1, 2, 2}));  // f64 only.
  spec.lossy = false;
  EXPECT_FALSE(MayBeCoded(builder.graph(), spec, {"bf16", 1, 2, 1}));
}

}  // namespace
}  // namespace commsched
