#include "comm/held_turns.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/await.h"

namespace commsched {
namespace {

TEST(HeldTurnsTest, AllAreTakenAndGiven) {
  Turn a, b;
  HeldTurns turns({&a, &b});
  ASSERT_TRUE(turns.Take());
  EXPECT_FALSE(a.TryTake());
  EXPECT_FALSE(b.TryTake());
  turns.Give();
  EXPECT_TRUE(a.TryTake());
  EXPECT_TRUE(b.TryTake());
}

TEST(HeldTurnsTest, WhoIsGoneHasNone) {
  Turn a;
  {
    HeldTurns turns({&a});
    ASSERT_TRUE(turns.Take());
  }
  EXPECT_TRUE(a.TryTake());
}

TEST(HeldTurnsTest, AThreadKnowsItsOwn) {
  Turn a, b;
  HeldTurns turns({&a});
  EXPECT_FALSE(a.IsKeptHere());
  ASSERT_TRUE(turns.Take());
  EXPECT_TRUE(a.IsKeptHere());
  EXPECT_FALSE(b.IsKeptHere());
  std::thread([&] {
    EXPECT_FALSE(a.IsKeptHere());
    turns.Give();
  }).join();
  EXPECT_FALSE(a.IsKeptHere());
}

TEST(HeldTurnsTest, AThreadDoesNotWaitForItself) {
  Turn a, b;
  HeldTurns first({&b});
  HeldTurns second({&a, &b});
  ASSERT_TRUE(first.Take());
  EXPECT_FALSE(second.Take());
  EXPECT_TRUE(a.TryTake());
  (void)a.Give();
  first.Give();
  EXPECT_TRUE(second.Take());
}

TEST(HeldTurnsTest, WhoHasNotGotAllWaitsForTheRest) {
  Turn a, b;
  ASSERT_TRUE(b.TryTake());
  std::atomic<bool> has_all{false};
  std::thread other([&] {
    HeldTurns turns({&a, &b});
    ASSERT_TRUE(turns.Take());
    has_all = true;
  });
  EXPECT_TRUE(test::Await([&] { return b.IsWanted(); }));
  EXPECT_FALSE(has_all);
  (void)b.Give();
  other.join();
  EXPECT_TRUE(has_all);
}

}  // namespace
}  // namespace commsched
