#include "exec/launch_cursor.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace commsched {
namespace {

TEST(LaunchCursorTest, GoesThroughTheLaunchesOfAllSteps) {
  LaunchCursor cursor(3);
  for (uint64_t number = 0; number < 10; ++number) {
    EXPECT_EQ(cursor.number(), number);
    EXPECT_EQ(cursor.step(), number / 3);
    EXPECT_EQ(cursor.index(), number % 3);
    cursor.Advance();
  }
}

TEST(LaunchCursorTest, GoesOnFromWhereItIsMovedTo) {
  LaunchCursor cursor(3);
  cursor.MoveTo(5, 2);
  EXPECT_EQ(cursor.number(), 17u);
  cursor.Advance();
  EXPECT_EQ(cursor.number(), 18u);
  EXPECT_EQ(cursor.step(), 6u);
  EXPECT_EQ(cursor.index(), 0u);
}

TEST(LaunchCursorTest, BehindTheLastLaunchOfAStepIsTheNextStep) {
  LaunchCursor cursor(3);
  cursor.MoveTo(5, 3);
  EXPECT_EQ(cursor.number(), 18u);
  EXPECT_EQ(cursor.step(), 6u);
  EXPECT_EQ(cursor.index(), 0u);
}

}  // namespace
}  // namespace commsched
