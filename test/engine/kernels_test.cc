#include "engine/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/layout.h"

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

void Step(AdamWState& state, uint64_t begin, uint64_t count) {
  commsched_adamw_args_t args = {};
  args.master = state.master.data() + begin;
  args.m = state.m.data() + begin;
  args.v = state.v.data() + begin;
  args.gradient = state.gradient.data() + begin;
  args.count = count;
  args.lr = 0.01f;
  args.beta1 = 0.9f;
  args.beta2 = 0.95f;
  args.epsilon = 1e-8f;
  args.decay = 0.1f;
  args.correction1 = 0.1f;
  args.correction2 = 0.05f;
  args.gradient_scale = 0.5f;
  CpuKernels().adamw(nullptr, &args);
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
  args.count = 1;
  args.lr = 0.125f;
  args.momentum = 0.5f;
  args.decay = 0.25f;
  args.nesterov = nesterov ? 1 : 0;
  args.gradient_scale = 0.5f;
  CpuKernels().sgd(nullptr, &args);
  return {velocity, weight};
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
  CpuKernels().block_squares(nullptr, values.data(), 600, sums.data());
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
  CpuKernels().block_squares(nullptr, values.data(), 1000, whole.data());
  CpuKernels().block_squares(nullptr, values.data(), 512, parts.data());
  CpuKernels().block_squares(nullptr, values.data() + 512, 488,
                             parts.data() + 2);
  EXPECT_THAT(parts, ElementsAreArray(whole));
}

TEST(CompleteKernelsTest, KeepsTheCallersEntriesAndFillsTheRest) {
  commsched_engine_kernels_t table = commsched_engine_kernels_init();
  int calls = 0;
  table.user = &calls;
  table.zero = [](void* user, float*, uint64_t) { ++*static_cast<int*>(user); };
  const commsched_engine_kernels_t kernels = CompleteKernels(&table);
  kernels.zero(kernels.user, nullptr, 0);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(kernels.adamw, CpuKernels().adamw);
  EXPECT_EQ(kernels.add, CpuKernels().add);
}

TEST(AddTest, AddsEveryElement) {
  std::vector<float> sum = Wave(77, 1);
  const std::vector<float> before = sum;
  const std::vector<float> more = Wave(77, 2);
  CpuKernels().add(nullptr, sum.data(), more.data(), 76);
  for (size_t i = 0; i < 76; ++i) EXPECT_EQ(sum[i], before[i] + more[i]) << i;
  EXPECT_EQ(sum[76], before[76]);
}

TEST(ZeroTest, ClearsEveryElement) {
  std::vector<float> values = Wave(77, 1);
  CpuKernels().zero(nullptr, values.data(), values.size());
  EXPECT_THAT(values, Each(0.0f));
}

}  // namespace
}  // namespace commsched::engine
