#include "examples/trainer/validations.h"

#include <gtest/gtest.h>

namespace commsched::trainer {
namespace {

TEST(ValidationsTest, OneIsCompleteWhenEveryRankHasAddedItsPart) {
  Validations validations(2);
  EXPECT_FALSE(validations.Take().has_value());
  validations.Add(1, 10, 3);
  EXPECT_FALSE(validations.Take().has_value());
  validations.Add(0, 10, 1);
  const auto complete = validations.Take();
  ASSERT_TRUE(complete.has_value());
  EXPECT_EQ(complete->steps_done, 10);
  EXPECT_EQ(complete->loss, 2);
  EXPECT_FALSE(validations.Take().has_value());
}

TEST(ValidationsTest, TheyComeInTheOrderOfSteps) {
  Validations validations(2);
  validations.Add(0, 10, 1);
  validations.Add(0, 20, 5);
  validations.Add(1, 10, 1);
  validations.Add(1, 20, 5);
  EXPECT_EQ(validations.Take()->steps_done, 10);
  EXPECT_EQ(validations.Take()->steps_done, 20);
}

}  // namespace
}  // namespace commsched::trainer
