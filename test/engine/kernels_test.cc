#include "engine/tables/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/step_plan/layout.h"
#include "kernels/bodies.h"

namespace commsched::engine {
namespace {

using ::testing::Each;
using ::testing::ElementsAreArray;

std::vector<float> Wave(uint64_t count, float phase) {
  std::vector<float> values(count);
  for (uint64_t i = 0; i < count; ++i) {
    values[i] = std::sin(phase + 0.37f * static_cast<float>(i));
  }
  return values;
}

struct AdamWState {
  std::vector<float> master, m, v, gradient;
};

AdamWState MakeState(uint64_t count) {
  AdamWState state = {Wave(count, 0), Wave(count, 1), Wave(count, 2),
                      Wave(count, 3)};
  for (float& v : state.v) v *= v;
  return state;
}

commsched_adamw_args_t ArgsOf(AdamWState& state, uint64_t begin,
                              uint64_t count) {
  commsched_adamw_args_t args = {};
  args.master = state.master.data() + begin;
  args.m = state.m.data() + begin;
  args.v = state.v.data() + begin;
  args.gradient = state.gradient.data() + begin;
  args.gradient_dtype = COMMSCHED_F32;
  args.count = count;
  args.lr = 0.01f;
  args.beta1 = 0.9f;
  args.beta2 = 0.95f;
  args.epsilon = 1e-8f;
  args.decay = 0.1f;
  static const commsched_step_control_t control = {0.5, 0.1, 0.05, 0};
  args.control = &control;
  return args;
}

void Step(AdamWState& state, uint64_t begin, uint64_t count) {
  const commsched_adamw_args_t args = ArgsOf(state, begin, count);
  CpuKernels().adamw(nullptr, commsched_stream_caller(), &args);
}

TEST(AdamWTest, GivesTheSameBitsWhereverItIsCut) {
  constexpr uint64_t kCount = 1000;
  AdamWState whole = MakeState(kCount);
  Step(whole, 0, kCount);
  for (uint64_t cut : {1, 3, 255, 256, 999}) {
    AdamWState parts = MakeState(kCount);
    Step(parts, 0, cut);
    Step(parts, cut, kCount - cut);
    EXPECT_THAT(parts.master, ElementsAreArray(whole.master)) << cut;
    EXPECT_THAT(parts.m, ElementsAreArray(whole.m)) << cut;
    EXPECT_THAT(parts.v, ElementsAreArray(whole.v)) << cut;
  }
}

TEST(AdamWTest, FollowsTheFormula) {
  AdamWState state = MakeState(16);
  const AdamWState before = state;
  Step(state, 0, 16);
  for (size_t i = 0; i < 16; ++i) {
    const double g = 0.5 * before.gradient[i];
    const double m = 0.9 * before.m[i] + 0.1 * g;
    const double v = 0.95 * before.v[i] + 0.05 * g * g;
    const double step = (m / 0.1) / (std::sqrt(v / 0.05) + 1e-8);
    const double expected = before.master[i] * (1 - 0.01 * 0.1) - 0.01 * step;
    EXPECT_NEAR(state.master[i], expected, 1e-6) << i;
  }
}

// The velocity before and after, and the weight after, of one element.
struct SgdStep {
  float velocity;
  float weight;
};

// From weight 2, velocity 3 and gradient 8, which the scale halves.
SgdStep StepSgd(bool has_momentum, bool nesterov) {
  float weight = 2;
  float velocity = 3;
  const float gradient = 8;
  commsched_sgd_args_t args = {};
  args.master = &weight;
  args.velocity = has_momentum ? &velocity : nullptr;
  args.gradient = &gradient;
  args.gradient_dtype = COMMSCHED_F32;
  args.count = 1;
  args.lr = 0.125f;
  args.momentum = 0.5f;
  args.decay = 0.25f;
  args.nesterov = nesterov ? 1 : 0;
  static const commsched_step_control_t control = {0.5, 1, 1, 0};
  args.control = &control;
  CpuKernels().sgd(nullptr, commsched_stream_caller(), &args);
  return {velocity, weight};
}

TEST(AdamWTest, ASkippedStepChangesNothing) {
  AdamWState state = MakeState(16);
  const AdamWState before = state;
  commsched_adamw_args_t args = ArgsOf(state, 0, 16);
  const commsched_step_control_t control = {NAN, 1, 1, /*skip=*/1};
  args.control = &control;
  CpuKernels().adamw(nullptr, commsched_stream_caller(), &args);
  EXPECT_EQ(state.master, before.master);
  EXPECT_EQ(state.m, before.m);
  EXPECT_EQ(state.v, before.v);
}

TEST(SgdTest, FollowsTheFormula) {
  // The gradient is 8 / 2 + 2 / 4 = 4.5.
  EXPECT_EQ(StepSgd(false, false).weight, 2 - 0.125f * 4.5f);
  EXPECT_EQ(StepSgd(false, false).velocity, 3);
  EXPECT_EQ(StepSgd(true, false).velocity, 6);
  EXPECT_EQ(StepSgd(true, false).weight, 2 - 0.125f * 6);
  EXPECT_EQ(StepSgd(true, true).velocity, 6);
  EXPECT_EQ(StepSgd(true, true).weight, 2 - 0.125f * (4.5f + 3));
}

TEST(BlockSquaresTest, SumsEachBlockOf256ByItself) {
  const std::vector<float> values = Wave(600, 0);
  std::vector<double> sums(3);
  CpuKernels().block_squares(nullptr, commsched_stream_caller(), values.data(),
                             COMMSCHED_F32, 600, sums.data());
  const uint64_t ends[] = {256, 512, 600};
  uint64_t i = 0;
  for (size_t block = 0; block < 3; ++block) {
    double expected = 0;
    for (; i < ends[block]; ++i) expected += double{values[i]} * values[i];
    EXPECT_NEAR(sums[block], expected, 1e-12);
  }
}

TEST(BlockSquaresTest, GivesTheSameBitsWhenCutAtABlock) {
  const std::vector<float> values = Wave(1000, 0);
  std::vector<double> whole(4), parts(4);
  CpuKernels().block_squares(nullptr, commsched_stream_caller(), values.data(),
                             COMMSCHED_F32, 1000, whole.data());
  CpuKernels().block_squares(nullptr, commsched_stream_caller(), values.data(),
                             COMMSCHED_F32, 512, parts.data());
  CpuKernels().block_squares(nullptr, commsched_stream_caller(),
                             values.data() + 512, COMMSCHED_F32, 488,
                             parts.data() + 2);
  EXPECT_THAT(parts, ElementsAreArray(whole));
}

TEST(BlockSquaresTest, TheLanesOfADeviceGiveTheSameBits) {
  const std::vector<float> values = Wave(600, 0);
  for (uint64_t count = 0; count <= 600; ++count) {
    std::vector<double> of_host(3), of_lanes(3);
    CpuKernels().block_squares(nullptr, commsched_stream_caller(),
                               values.data(), COMMSCHED_F32, count,
                               of_host.data());
    const kernels::BlockSquaresArgs args = {values.data(), of_lanes.data(),
                                            count, COMMSCHED_F32};
    for (uint64_t i = 0; i < kernels::BlockSquares::Count(args); ++i) {
      kernels::RunOnHost<kernels::BlockSquares>(args, i);
    }
    EXPECT_THAT(of_lanes, ElementsAreArray(of_host)) << count;
  }
}

// So what they read together has no gaps.
TEST(BlockSquaresTest, LanesReadElementsThatFollowEachOther) {
  std::vector<std::vector<uint64_t>> read(kernels::kLanesOfBlock);
  for (uint32_t lane = 0; lane < kernels::kLanesOfBlock; ++lane) {
    kernels::SquaresOfLane(kernels::kBlockElements, lane, [&](uint64_t i) {
      read[lane].push_back(i);
      return 0.0f;
    });
  }
  uint64_t next = 0;
  for (size_t time = 0; time < read[0].size(); ++time) {
    for (const std::vector<uint64_t>& of_lane : read) {
      EXPECT_EQ(of_lane[time], next++);
    }
  }
  EXPECT_EQ(next, kernels::kBlockElements);
}

TEST(KernelsTest, TheCallersEntriesAreUsedAndOursInPlaceOfTheRest) {
  commsched_engine_kernels_t table = commsched_engine_kernels_init();
  int calls = 0;
  table.user = &calls;
  table.zero = [](void* user, commsched_stream_t, void*, uint64_t) {
    ++*static_cast<int*>(user);
    commsched_set_last_error("it is full");
    return commsched_status_t{COMMSCHED_UNAVAILABLE};
  };
  const Kernels kernels(table, CpuKernels(), commsched_stream_caller());
  double value = 1;
  const Status zeroed = kernels.Zero(&value, sizeof(value));
  EXPECT_EQ(zeroed.code(), COMMSCHED_UNAVAILABLE);
  EXPECT_EQ(zeroed.message(), "a kernel of the engine: it is full");
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(kernels.Fill(&value, 3, 1).ok());
  EXPECT_EQ(value, 3);
}

TEST(AddTest, AddsEveryElement) {
  std::vector<float> sum = Wave(77, 1);
  const std::vector<float> before = sum;
  const std::vector<float> more = Wave(77, 2);
  CpuKernels().add(nullptr, commsched_stream_caller(), sum.data(),
                   COMMSCHED_F32, more.data(), COMMSCHED_F32, 76);
  for (size_t i = 0; i < 76; ++i) EXPECT_EQ(sum[i], before[i] + more[i]) << i;
  EXPECT_EQ(sum[76], before[76]);
}

std::vector<uint16_t> Narrow(const std::vector<float>& values,
                             commsched_dtype_t dtype) {
  std::vector<uint16_t> narrow(values.size());
  CpuKernels().convert(nullptr, commsched_stream_caller(), narrow.data(), dtype,
                       values.data(), COMMSCHED_F32, values.size());
  return narrow;
}

std::vector<float> Widen(const std::vector<uint16_t>& values,
                         commsched_dtype_t dtype) {
  std::vector<float> wide(values.size());
  CpuKernels().convert(nullptr, commsched_stream_caller(), wide.data(),
                       COMMSCHED_F32, values.data(), dtype, values.size());
  return wide;
}

TEST(ConvertTest, RoundsToNearestAndTiesToEven) {
  const float bf16_step = 0x1p-7f;  // After 1.
  EXPECT_THAT(
      Widen(Narrow({1 + bf16_step / 2, 1 + 1.5f * bf16_step,
                    1 + 0.51f * bf16_step, -3, 0},
                   COMMSCHED_BF16),
            COMMSCHED_BF16),
      ElementsAreArray({1.0f, 1 + 2 * bf16_step, 1 + bf16_step, -3.0f, 0.0f}));
  const float half_step = 0x1p-10f;
  EXPECT_THAT(
      Widen(Narrow({1 + half_step / 2, 1 + 1.5f * half_step, 0x1p-24f, 65504},
                   COMMSCHED_F16),
            COMMSCHED_F16),
      ElementsAreArray({1.0f, 1 + 2 * half_step, 0x1p-24f, 65504.0f}));
  EXPECT_TRUE(
      std::isinf(Widen(Narrow({65520}, COMMSCHED_F16), COMMSCHED_F16).front()));
}

// More elements than the kernels take at a time.
TEST(ConvertTest, OneSixteenBitTypeToTheOtherGoesByFp32) {
  const std::vector<uint16_t> half = Narrow(Wave(3000, 1), COMMSCHED_F16);
  std::vector<uint16_t> bfloat(half.size());
  CpuKernels().convert(nullptr, commsched_stream_caller(), bfloat.data(),
                       COMMSCHED_BF16, half.data(), COMMSCHED_F16, half.size());
  EXPECT_EQ(bfloat, Narrow(Widen(half, COMMSCHED_F16), COMMSCHED_BF16));
}

class SixteenBitKernelTest
    : public ::testing::TestWithParam<commsched_dtype_t> {};

TEST_P(SixteenBitKernelTest, AddSumsInFp32AndRoundsOnce) {
  const std::vector<uint16_t> a = Narrow(Wave(3000, 1), GetParam());
  const std::vector<uint16_t> b = Narrow(Wave(3000, 2), GetParam());
  std::vector<float> expected = Widen(a, GetParam());
  for (size_t i = 0; i < a.size(); ++i) expected[i] += Widen(b, GetParam())[i];
  std::vector<uint16_t> sum = a;
  CpuKernels().add(nullptr, commsched_stream_caller(), sum.data(), GetParam(),
                   b.data(), GetParam(), sum.size());
  EXPECT_EQ(sum, Narrow(expected, GetParam()));
  std::vector<float> wide = Widen(a, GetParam());
  CpuKernels().add(nullptr, commsched_stream_caller(), wide.data(),
                   COMMSCHED_F32, b.data(), GetParam(), wide.size());
  EXPECT_EQ(wide, expected);
}

TEST_P(SixteenBitKernelTest, SquaresAreThoseOfTheWidenedValues) {
  const std::vector<uint16_t> narrow = Narrow(Wave(1000, 1), GetParam());
  const std::vector<float> wide = Widen(narrow, GetParam());
  std::vector<double> expected(4), sums(4);
  CpuKernels().block_squares(nullptr, commsched_stream_caller(), wide.data(),
                             COMMSCHED_F32, 1000, expected.data());
  CpuKernels().block_squares(nullptr, commsched_stream_caller(), narrow.data(),
                             GetParam(), 1000, sums.data());
  EXPECT_EQ(sums, expected);
}

TEST_P(SixteenBitKernelTest, AdamWReadsTheGradientAndRoundsTheWeightsToACopy) {
  constexpr uint64_t kCount = 3000;
  AdamWState state = MakeState(kCount);
  const std::vector<uint16_t> gradient = Narrow(state.gradient, GetParam());
  state.gradient = Widen(gradient, GetParam());
  AdamWState expected = state;
  Step(expected, 0, kCount);
  std::vector<uint16_t> copy(kCount);
  commsched_adamw_args_t args = ArgsOf(state, 0, kCount);
  args.gradient = gradient.data();
  args.gradient_dtype = GetParam();
  args.copy = copy.data();
  args.copy_dtype = GetParam();
  CpuKernels().adamw(nullptr, commsched_stream_caller(), &args);
  EXPECT_EQ(state.master, expected.master);
  EXPECT_EQ(state.m, expected.m);
  EXPECT_EQ(state.v, expected.v);
  EXPECT_EQ(copy, Narrow(expected.master, GetParam()));
}

INSTANTIATE_TEST_SUITE_P(DTypes, SixteenBitKernelTest,
                         ::testing::Values(COMMSCHED_F16, COMMSCHED_BF16));

TEST(ZeroTest, ClearsEveryElement) {
  std::vector<float> values = Wave(77, 1);
  CpuKernels().zero(nullptr, commsched_stream_caller(), values.data(),
                    values.size() * sizeof(float));
  EXPECT_THAT(values, Each(0.0f));
}

}  // namespace
}  // namespace commsched::engine
