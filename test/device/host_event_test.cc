#include "device/host_event.h"

#include <thread>

#include "base/parker.h"
#include "gtest/gtest.h"

namespace commsched {
namespace {

TEST(HostEventTest, GenerationZeroIsCompleteFromTheStart) {
  HostEvent event;
  EXPECT_TRUE(event.IsComplete(0));
  EXPECT_FALSE(event.IsComplete(1));
  event.Synchronize(0);
}

TEST(HostEventTest, CompletingAGenerationCompletesTheEarlierOnes) {
  HostEvent event;
  event.Complete(3);
  EXPECT_TRUE(event.IsComplete(1));
  EXPECT_TRUE(event.IsComplete(3));
  EXPECT_FALSE(event.IsComplete(4));
}

TEST(HostEventTest, SynchronizeBlocksUntilTheGeneration) {
  HostEvent event;
  int written = 0;
  std::thread worker([&] {
    event.Complete(1);
    written = 1;
    event.Complete(2);
  });
  event.Synchronize(2);
  EXPECT_EQ(written, 1);
  worker.join();
}

TEST(HostEventTest, PoisonCompletesEveryGenerationAndWakesWaiters) {
  HostEvent event;
  std::thread waiter([&] { event.Synchronize(1'000'000); });
  event.Poison();
  waiter.join();
  EXPECT_TRUE(event.IsComplete(uint64_t{1} << 50));
}

TEST(HostEventTest, RecordingAfterPoisonChangesNothing) {
  HostEvent event;
  event.Poison();
  event.Complete(1);
  EXPECT_TRUE(event.IsComplete(2));
}

TEST(HostEventTest, ListenersHearOfCompletionAndPoison) {
  Parker parker;
  HostEvent event;
  event.AddListener(&parker);
  event.Complete(1);
  EXPECT_TRUE(parker.ParkUntil(0));
  event.Poison();
  EXPECT_TRUE(parker.ParkUntil(0));
}

}  // namespace
}  // namespace commsched
