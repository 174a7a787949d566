#include "examples/trainer/tally.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace commsched::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(TallyTest, AStepIsCompleteWhenEveryRankHasTold) {
  Tally<double> tally(2);
  EXPECT_THAT(tally.Add(1, 10, 3), IsEmpty());
  EXPECT_THAT(tally.Add(0, 10, 1), ElementsAre(1, 3));
}

TEST(TallyTest, ARankMayBeAheadOfTheOthers) {
  Tally<double> tally(2);
  EXPECT_THAT(tally.Add(0, 10, 1), IsEmpty());
  EXPECT_THAT(tally.Add(0, 20, 5), IsEmpty());
  EXPECT_THAT(tally.Add(1, 10, 2), ElementsAre(1, 2));
  EXPECT_THAT(tally.Add(1, 20, 6), ElementsAre(5, 6));
}

}  // namespace
}  // namespace commsched::trainer
