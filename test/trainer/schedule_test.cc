#include "examples/trainer/schedule.h"

#include "gtest/gtest.h"

namespace commsched::trainer {
namespace {

constexpr LearningRateSchedule kSchedule = {
    .peak = 2.0, .warmup_steps = 10, .total_steps = 110, .final_fraction = 0.1};

TEST(LearningRateTest, RisesLinearlyToThePeak) {
  EXPECT_DOUBLE_EQ(LearningRateAt(kSchedule, 0), 0.2);
  EXPECT_DOUBLE_EQ(LearningRateAt(kSchedule, 4), 1.0);
  EXPECT_DOUBLE_EQ(LearningRateAt(kSchedule, 9), 2.0);
}

TEST(LearningRateTest, FallsAsACosineToTheFinalFraction) {
  EXPECT_DOUBLE_EQ(LearningRateAt(kSchedule, 59), 1.1);
  EXPECT_DOUBLE_EQ(LearningRateAt(kSchedule, 109), 0.2);
  for (int64_t step = 10; step < 110; ++step) {
    EXPECT_LT(LearningRateAt(kSchedule, step),
              LearningRateAt(kSchedule, step - 1));
  }
}

TEST(LearningRateTest, StaysAtTheFinalRate) {
  EXPECT_DOUBLE_EQ(LearningRateAt(kSchedule, 1000), 0.2);
}

TEST(LearningRateTest, ARunShorterThanTheWarmUpOnlyRises) {
  const LearningRateSchedule schedule = {
      .peak = 3.0, .warmup_steps = 30, .total_steps = 10};
  for (int64_t step = 0; step < 10; ++step) {
    EXPECT_DOUBLE_EQ(LearningRateAt(schedule, step),
                     0.1 * static_cast<double>(step + 1));
  }
}

}  // namespace
}  // namespace commsched::trainer
