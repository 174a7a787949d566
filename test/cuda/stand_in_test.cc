// What tests rely on: how the stand-in that runs streams by a seed orders work,
// and which accesses it calls a race.
#include <cuda_runtime_api.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/fakes/gpu/fake_gpu.h"

namespace commsched {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Streams, events and memory of the stand-in, driven by a seed.
class SeededStreams {
 public:
  explicit SeededStreams(uint64_t seed) {
    fake_gpu_deterministic(seed);
    cudaSetDevice(0);
    for (cudaStream_t& stream : streams) {
      cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0);
    }
    for (cudaEvent_t& event : events) {
      cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    }
    cudaMalloc(reinterpret_cast<void**>(&memory), 1024);
  }
  ~SeededStreams() {
    for (cudaStream_t stream : streams) cudaStreamSynchronize(stream);
    for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
    for (cudaEvent_t event : events) cudaEventDestroy(event);
    if (memory != nullptr) cudaFree(memory);
    fake_gpu_deterministic(0);
  }

  void Run(int stream, std::function<void()> body,
           const std::vector<fake_gpu_range_t>& ranges = {},
           const char* name = "kernel") {
    fake_gpu_launch_ranges(
        streams[stream], name, ranges.data(), ranges.size(),
        [](void* user) {
          const std::unique_ptr<std::function<void()>> run(
              static_cast<std::function<void()>*>(user));
          (*run)();
        },
        new std::function<void()>(std::move(body)));
  }
  void Write(int stream, size_t begin, size_t bytes, const char* name) {
    Run(
        stream, [] {}, {{memory + begin, bytes, 1}}, name);
  }
  void Read(int stream, size_t begin, size_t bytes, const char* name) {
    Run(
        stream, [] {}, {{memory + begin, bytes, 0}}, name);
  }

  std::array<cudaStream_t, 3> streams = {};
  std::array<cudaEvent_t, 2> events = {};
  char* memory = nullptr;
};

std::vector<int> OrderOf(uint64_t seed) {
  SeededStreams on(seed);
  std::vector<int> order;
  for (int i = 0; i < 30; ++i) {
    on.Run(i % 3, [&order, i] { order.push_back(i); });
    if (i % 7 == 0) cudaStreamQuery(on.streams[0]);
  }
  for (cudaStream_t stream : on.streams) cudaStreamSynchronize(stream);
  return order;
}

TEST(SeededStreamsTest, TheOrderIsAFunctionOfTheSeed) {
  int differ = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const std::vector<int> order = OrderOf(seed);
    EXPECT_EQ(order.size(), 30u);
    EXPECT_EQ(OrderOf(seed), order) << "seed " << seed;
    if (order != OrderOf(seed + 1)) ++differ;
  }
  EXPECT_GT(differ, 15);
}

TEST(SeededStreamsTest, NothingRunsBeforeAHostAsks) {
  SeededStreams on(1);
  std::vector<int> order;
  on.Run(0, [&] { order.push_back(0); });
  on.Run(1, [&] { order.push_back(1); });
  std::this_thread::yield();
  EXPECT_THAT(order, IsEmpty());
  cudaDeviceSynchronize();
  EXPECT_EQ(order.size(), 2u);
}

TEST(SeededStreamsTest, AStreamWaitsForARecord) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SeededStreams on(seed);
    std::vector<int> order;
    on.Run(0, [&] { order.push_back(0); });
    cudaEventRecord(on.events[0], on.streams[0]);
    cudaStreamWaitEvent(on.streams[1], on.events[0], 0);
    on.Run(1, [&] { order.push_back(1); });
    cudaStreamSynchronize(on.streams[1]);
    EXPECT_THAT(order, ElementsAre(0, 1)) << "seed " << seed;
  }
}

// Nothing can go on until another thread enqueues what is waited for.
TEST(SeededStreamsTest, AHostThatWaitsIsWokenByWhoEnqueues) {
  SeededStreams on(1);
  int done = 0;
  on.Run(0, [&] { ++done; });
  std::thread waits([&] { cudaStreamSynchronize(on.streams[0]); });
  std::thread enqueues([&] {
    on.Run(1, [&] { ++done; });
    cudaStreamSynchronize(on.streams[1]);
  });
  waits.join();
  enqueues.join();
  EXPECT_EQ(done, 2);
}

TEST(RacesTest, TwoWritesThatNothingOrdersAreOneAndNamed) {
  SeededStreams on(1);
  on.Write(0, 0, 64, "first");
  on.Write(1, 32, 64, "second");
  EXPECT_EQ(fake_gpu_races(), 1u);
  EXPECT_THAT(fake_gpu_first_race(),
              AllOf(HasSubstr("'second' (#1 of stream 1) writes"),
                    HasSubstr("which 'first' (#1 of stream 0) writes")));
}

TEST(RacesTest, AReadAndAWriteAreOneInEitherOrder) {
  {
    SeededStreams on(1);
    on.Read(0, 0, 64, "read");
    on.Write(1, 63, 1, "write");
    EXPECT_EQ(fake_gpu_races(), 1u);
  }
  SeededStreams on(1);
  on.Write(0, 0, 64, "write");
  on.Read(1, 0, 1, "read");
  EXPECT_EQ(fake_gpu_races(), 1u);
}

TEST(RacesTest, ReadsAndOtherBytesAreNone) {
  SeededStreams on(1);
  on.Read(0, 0, 64, "read");
  on.Read(1, 0, 64, "read");
  on.Write(0, 64, 64, "write");
  on.Write(1, 128, 64, "write");
  EXPECT_STREQ(fake_gpu_first_race(), "");
}

TEST(RacesTest, AWaitOrdersWhatWasBeforeItsRecordOnly) {
  SeededStreams on(1);
  on.Write(0, 0, 64, "before");
  cudaEventRecord(on.events[0], on.streams[0]);
  on.Write(0, 64, 64, "after");
  cudaStreamWaitEvent(on.streams[1], on.events[0], 0);
  on.Read(1, 0, 64, "read");
  EXPECT_EQ(fake_gpu_races(), 0u);
  on.Read(1, 64, 64, "read");
  EXPECT_EQ(fake_gpu_races(), 1u);
}

TEST(RacesTest, AWaitForAnEventThatWasNotRecordedOrdersNothing) {
  SeededStreams on(1);
  on.Write(0, 0, 64, "write");
  cudaStreamWaitEvent(on.streams[1], on.events[0], 0);
  cudaEventRecord(on.events[0], on.streams[0]);
  on.Read(1, 0, 64, "read");
  EXPECT_EQ(fake_gpu_races(), 1u);
}

TEST(RacesTest, AHostThatHasSynchronizedOrdersWhatItEnqueues) {
  SeededStreams on(1);
  on.Write(0, 0, 64, "write");
  cudaEventRecord(on.events[0], on.streams[0]);
  while (cudaEventQuery(on.events[0]) != cudaSuccess) continue;
  on.Read(1, 0, 64, "read");
  EXPECT_STREQ(fake_gpu_first_race(), "");
}

TEST(RacesTest, WhatAnotherThreadKnowsOrdersNothingUnlessTheyShareIt) {
  SeededStreams on(1);
  on.Write(0, 0, 64, "write");
  cudaStreamQuery(on.streams[1]);
  std::thread([&] { cudaStreamSynchronize(on.streams[0]); }).join();
  on.Read(1, 0, 64, "read");
  EXPECT_EQ(fake_gpu_races(), 1u);
  fake_gpu_hosts_share(1);
  on.Read(2, 0, 64, "read");
  EXPECT_EQ(fake_gpu_races(), 1u);
}

TEST(RacesTest, MemoryIsFreeOnceSomebodyKnowsThatItIsNotUsed) {
  SeededStreams on(1);
  on.Write(0, 0, 64, "write");
  cudaFree(on.memory);
  EXPECT_THAT(fake_gpu_first_race(), HasSubstr("frees memory"));
  EXPECT_EQ(fake_gpu_races(), 1u);
  cudaMalloc(reinterpret_cast<void**>(&on.memory), 1024);
  // What comes next has a history of its own.
  on.Write(1, 0, 64, "write");
  cudaStreamSynchronize(on.streams[1]);
  cudaFree(on.memory);
  on.memory = nullptr;
  EXPECT_EQ(fake_gpu_races(), 1u);
}

TEST(RacesTest, CopiesAndFillsSayWhatTheyTouch) {
  SeededStreams on(1);
  cudaMemsetAsync(on.memory, 0, 64, on.streams[0]);
  cudaMemcpyAsync(on.memory + 512, on.memory + 32, 8, cudaMemcpyDeviceToDevice,
                  on.streams[1]);
  EXPECT_EQ(fake_gpu_races(), 1u);
  // Columns of rows that lie between those of another stream.
  cudaMemcpy2DAsync(on.memory + 128, 32, on.memory + 640, 32, 8, 4,
                    cudaMemcpyDefault, on.streams[0]);
  cudaMemcpy2DAsync(on.memory + 136, 32, on.memory + 768, 32, 8, 4,
                    cudaMemcpyDefault, on.streams[1]);
  EXPECT_EQ(fake_gpu_races(), 1u);
}

TEST(RacesTest, ACopyFromPageableMemoryMayEndLater) {
  SeededStreams on(1);
  const char bytes[64] = {};
  cudaMemcpy(on.memory, bytes, sizeof(bytes), cudaMemcpyHostToDevice);
  on.Read(0, 0, 64, "read");
  EXPECT_EQ(fake_gpu_races(), 1u);
  cudaMemcpy(on.memory + 64, bytes, sizeof(bytes), cudaMemcpyHostToDevice);
  cudaStreamSynchronize(nullptr);
  on.Read(0, 64, 128, "read");
  EXPECT_EQ(fake_gpu_races(), 1u);
}

}  // namespace
}  // namespace commsched
