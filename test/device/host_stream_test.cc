#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "device/host_device.h"
#include "gtest/gtest.h"
#include "test/support/alloc_counter.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

std::unique_ptr<HostStream> MakeStream(uint32_t capacity) {
  auto stream = HostStream::Create("test", capacity);
  EXPECT_OK(stream);
  return *std::move(stream);
}

std::unique_ptr<Event> MakeEvent() { return *HostDevice().CreateEvent(1); }

void Increment(void* user) { ++*static_cast<int*>(user); }

TEST(HostStreamTest, CapacityOutsideItsRangeIsRefused) {
  EXPECT_THAT(HostStream::Create("s", 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "stream 's' has capacity 0"));
  EXPECT_THAT(HostStream::Create("s", 65537),
              StatusIs(absl::StatusCode::kInvalidArgument, "1..65536"));
}

TEST(HostStreamTest, IsNotTheCaller) {
  EXPECT_FALSE(MakeStream(1)->is_caller());
}

TEST(HostStreamTest, RunsFunctionsInOrder) {
  struct Log {
    std::vector<int> seen;
    int next = 0;
  } log;
  auto stream = MakeStream(4);
  for (int i = 0; i < 100; ++i) {
    stream->Enqueue(
        [](void* user) {
          auto* entries = static_cast<Log*>(user);
          entries->seen.push_back(entries->next++);
        },
        &log);
  }
  stream->Synchronize();
  ASSERT_EQ(log.seen.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(log.seen[i], i);
}

TEST(HostStreamTest, DestructorRunsWhatIsEnqueued) {
  int count = 0;
  {
    auto stream = MakeStream(64);
    for (int i = 0; i < 50; ++i) stream->Enqueue(&Increment, &count);
  }
  EXPECT_EQ(count, 50);
}

TEST(HostStreamTest, AFullRingBlocksTheCallerUntilThereIsRoom) {
  auto stream = MakeStream(1);
  auto gate = MakeEvent();
  int count = 0;
  std::atomic<int> enqueued{0};
  stream->Wait(gate.get(), 1);  // Runs, so it takes no room of the one.
  std::thread producer([&] {
    for (int i = 0; i < 8; ++i) {
      stream->Enqueue(&Increment, &count);
      enqueued.fetch_add(1);
    }
  });
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  EXPECT_LE(enqueued.load(), 1);
  gate->Poison();
  producer.join();
  stream->Synchronize();
  EXPECT_EQ(count, 8);
}

TEST(HostStreamTest, WaitHoldsBackWhatFollows) {
  auto stream = MakeStream(8);
  auto start = MakeEvent();
  auto end = MakeEvent();
  int count = 0;
  stream->Wait(start.get(), 1);
  stream->Enqueue(&Increment, &count);
  stream->Record(end.get(), 1);
  EXPECT_FALSE(end->IsComplete(1));
  CallerStream()->Record(start.get(), 1);
  end->Synchronize(1);
  EXPECT_EQ(count, 1);
}

TEST(HostStreamTest, TwoStreamsHandWorkBackAndForth) {
  constexpr int kRounds = 500;
  auto left = MakeStream(4);
  auto right = MakeStream(4);
  auto left_done = MakeEvent();
  auto right_done = MakeEvent();
  int count = 0;  // Not atomic: ordered by the events alone.
  for (uint64_t round = 0; round < kRounds; ++round) {
    left->Wait(right_done.get(), round);
    left->Enqueue(&Increment, &count);
    left->Record(left_done.get(), round + 1);
    right->Wait(left_done.get(), round + 1);
    right->Enqueue(&Increment, &count);
    right->Record(right_done.get(), round + 1);
  }
  right_done->Synchronize(kRounds);
  EXPECT_EQ(count, 2 * kRounds);
  left->Synchronize();
  right->Synchronize();
}

TEST(HostStreamTest, ManyThreadsEnqueueWithoutLosingWork) {
  constexpr int kThreads = 4;
  constexpr int kEach = 500;
  auto stream = MakeStream(3);
  int count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) stream->Enqueue(&Increment, &count);
    });
  }
  for (std::thread& thread : threads) thread.join();
  stream->Synchronize();
  EXPECT_EQ(count, kThreads * kEach);
}

TEST(HostStreamTest, EnqueuingAllocatesNothing) {
  auto stream = MakeStream(16);
  auto event = MakeEvent();
  int count = 0;
  const uint64_t before = HeapAllocations();
  for (uint64_t i = 0; i < 1000; ++i) {
    stream->Enqueue(&Increment, &count);
    stream->Record(event.get(), i + 1);
    stream->Wait(event.get(), i + 1);
  }
  stream->Synchronize();
  EXPECT_EQ(HeapAllocations() - before, 0u);
}

}  // namespace
}  // namespace commsched
