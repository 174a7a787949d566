#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "device/cuda_device.h"
#include "gtest/gtest.h"
#include "test/cuda/gpu_rig.h"
#include "test/fakes/gpu/fake_gpu.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::DeviceMemory;
using test::FakeDevice;
using test::Peek;
using test::RunOn;

TEST(CudaDeviceTest, MemoryIsOfItsDevice) {
  const auto device = FakeDevice(1);
  EXPECT_EQ(device->name(), "CUDA device 1");
  const DeviceMemory memory(device, 1024);
  EXPECT_OK(device->CheckHere(memory.address()));
  EXPECT_THAT(FakeDevice(0)->CheckHere(memory.address()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "is not memory of CUDA device 0 but of device 1"));
  const int on_host = 0;
  EXPECT_THAT(device->CheckHere(&on_host),
              StatusIs(absl::StatusCode::kInvalidArgument, "of the host"));
  EXPECT_EQ(Peek(memory.address())[255], 0);
}

TEST(CudaDeviceTest, TheHostCannotTouchMemoryOfTheDevice) {
  // A process of its own: this one has threads.
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const DeviceMemory memory(FakeDevice(0), 64);
  EXPECT_DEATH(*static_cast<volatile char*>(memory.address()) = 1, "");
}

TEST(CudaDeviceTest, WhatIsNotThereIsRefused) {
  EXPECT_THAT(OpenCudaDevice(99).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       "there is no CUDA device 99; this process sees 4"));
  EXPECT_THAT(FakeDevice(0)->Allocate(uint64_t{1} << 40).status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "cannot allocate 1099511627776 bytes"));
}

TEST(CudaDeviceTest, AnEventOrdersTwoStreams) {
  const auto device = FakeDevice(0);
  ASSERT_OK_AND_ASSIGN(const auto first, device->CreateSideStream());
  ASSERT_OK_AND_ASSIGN(const auto second, device->CreateSideStream());
  ASSERT_OK_AND_ASSIGN(const auto event, device->CreateEvent(3));
  fake_gpu_delay(/*seed=*/1, /*most_us=*/200);
  std::vector<int> order;
  for (uint64_t step = 1; step <= 20; ++step) {
    RunOn(first.get(), [&order, step] { order.push_back(int(step) * 2); });
    first->Record(event.get(), step);
    second->Wait(event.get(), step);
    RunOn(second.get(), [&order, step] { order.push_back(int(step) * 2 + 1); });
    second->Synchronize();
    EXPECT_TRUE(event->IsComplete(step));
    EXPECT_FALSE(event->IsComplete(step + 1));
  }
  fake_gpu_delay(0, 0);
  ASSERT_EQ(order.size(), 40u);
  for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], int(i) + 2);
  EXPECT_OK(device->status());
}

// The driver misses a context there, even for an event.
TEST(CudaDeviceTest, AThreadThatHasMadeNoCallOfCudaLooksAtEvents) {
  const auto device = FakeDevice(3);
  ASSERT_OK_AND_ASSIGN(const auto stream, device->CreateSideStream());
  ASSERT_OK_AND_ASSIGN(const auto event, device->CreateEvent(1));
  stream->Record(event.get(), 1);
  stream->Synchronize();
  std::thread([&] { EXPECT_TRUE(event->IsComplete(1)); }).join();
  EXPECT_OK(device->status());
}

TEST(CudaDeviceTest, PoisonEndsEveryWaitOfTheHost) {
  const auto device = FakeDevice(0);
  ASSERT_OK_AND_ASSIGN(const auto event, device->CreateEvent(1));
  EXPECT_FALSE(event->IsComplete(1));
  event->Poison();
  event->Synchronize(7);
  EXPECT_TRUE(event->IsComplete(7));
}

TEST(CudaDeviceTest, WhatIsRecordedIsWaitedForThoughTheEventIsPoisoned) {
  std::atomic<bool> released{false}, ended{false};
  const auto device = FakeDevice(0);
  ASSERT_OK_AND_ASSIGN(const auto stream, device->CreateSideStream());
  ASSERT_OK_AND_ASSIGN(const auto event, device->CreateEvent(4));
  event->AwaitRecorded();  // Nothing.
  for (uint64_t generation : {1, 2, 3}) {
    if (generation == 3) {
      RunOn(stream.get(), [&] {
        while (!released) std::this_thread::yield();
        ended = true;
      });
    }
    stream->Record(event.get(), generation);
  }
  event->Poison();
  std::thread releaser([&] { released = true; });
  event->AwaitRecorded();
  EXPECT_TRUE(ended);
  releaser.join();
}

// A device would not wait for it at all.
TEST(CudaDeviceTest, WaitingForWhatWasNotRecordedIsAFailureOfTheDevice) {
  const auto device = FakeDevice(2);
  ASSERT_OK_AND_ASSIGN(const auto stream, device->CreateSideStream());
  ASSERT_OK_AND_ASSIGN(const auto event, device->CreateEvent(2));
  stream->Wait(event.get(), 0);
  EXPECT_OK(device->status());
  stream->Wait(event.get(), 1);
  EXPECT_THAT(device->status(),
              StatusIs(absl::StatusCode::kInternal,
                       "CUDA device 2: generation 1 of an event is waited for "
                       "on a stream before it was recorded; 0 was"));
}

TEST(CudaDeviceTest, CopiesOfRowsGoWithTheStream) {
  const auto device = FakeDevice(0);
  ASSERT_OK_AND_ASSIGN(const auto stream, device->CreateSideStream());
  const DeviceMemory from(device, 64);
  const DeviceMemory to(device, 64);
  RunOn(stream.get(), [&] {
    for (int i = 0; i < 16; ++i) Peek(from.address())[i] = float(i);
  });
  stream->Copy({.to = to.address(),
                .from = from.address(),
                .row_bytes = 8,
                .rows = 3,
                .to_stride = 8,
                .from_stride = 16});
  stream->Synchronize();
  const std::vector<float> expected = {0, 1, 4, 5, 8, 9, 0};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(Peek(to.address())[i], expected[i]) << i;
  }
}

TEST(CudaDeviceTest, AnAdoptedStreamIsTheCallersAndTheSameEachTime) {
  const auto device = FakeDevice(0);
  ASSERT_OK_AND_ASSIGN(const auto own, device->CreateSideStream());
  void* const native = own->handle().native;
  ASSERT_OK_AND_ASSIGN(Stream* const adopted, device->Adopt(native));
  EXPECT_EQ(device->Adopt(native).value(), adopted);
  EXPECT_EQ(adopted->handle().native, native);
  EXPECT_TRUE(adopted->is_device());
  EXPECT_FALSE(adopted->is_caller());
}

TEST(CudaDeviceTest, AStreamPerThreadIsRefused) {
  EXPECT_THAT(FakeDevice(1)->Adopt(cudaStreamPerThread).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "CUDA device 1: cudaStreamPerThread (0x2) is another "
                       "stream on each thread"));
}

// Whichever of its names it has, the legacy stream is the current device's.
TEST(CudaDeviceTest, TheLegacyStreamIsThatOfItsDevice) {
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  for (const cudaStream_t name : {cudaStream_t{nullptr}, cudaStreamLegacy}) {
    const auto device = FakeDevice(1);
    ASSERT_OK_AND_ASSIGN(Stream* const stream, device->Adopt(name));
    ASSERT_OK_AND_ASSIGN(const auto event, device->CreateEvent(1));
    stream->Record(event.get(), 1);
    stream->Synchronize();
    EXPECT_OK(device->status());
    EXPECT_TRUE(event->IsComplete(1));
    int current = -1;
    EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
    EXPECT_EQ(current, 0);
  }
}

TEST(CudaDeviceTest, NothingIsLeft) {
  const uint64_t streams = fake_gpu_num_streams();
  const uint64_t events = fake_gpu_num_events();
  const uint64_t bytes = fake_gpu_allocated_bytes();
  {
    const auto device = FakeDevice(3);
    ASSERT_OK_AND_ASSIGN(const auto stream, device->CreateSideStream());
    ASSERT_OK_AND_ASSIGN(const auto event, device->CreateEvent(5));
    const DeviceMemory memory(device, 4096);
    EXPECT_EQ(fake_gpu_num_streams(), streams + 1);
    EXPECT_EQ(fake_gpu_num_events(), events + 8);  // A power of two.
  }
  EXPECT_EQ(fake_gpu_num_streams(), streams);
  EXPECT_EQ(fake_gpu_num_events(), events);
  EXPECT_EQ(fake_gpu_allocated_bytes(), bytes);
}

}  // namespace
}  // namespace commsched
