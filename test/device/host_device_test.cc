#include "device/host_device.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>

#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

TEST(HostDeviceTest, MemoryIsAlignedToACacheLine) {
  HostDevice device;
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{63}, uint64_t{1} << 20}) {
    ASSERT_OK_AND_ASSIGN(void* address, device.Allocate(bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(address) % 64, 0u);
    std::memset(address, 1, bytes);
    device.Free(address);
  }
}

TEST(HostDeviceTest, ZeroBytesHaveAnAddress) {
  HostDevice device;
  ASSERT_OK_AND_ASSIGN(void* address, device.Allocate(0));
  EXPECT_NE(address, nullptr);
  device.Free(address);
}

TEST(HostDeviceTest, MoreThanTheMachineHasIsRefusedWithBothSizes) {
  HostDevice device;
  const uint64_t bytes = uint64_t{1} << 60;
  EXPECT_THAT(device.Allocate(bytes),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "1152921504606846976 bytes"));
}

TEST(HostDeviceTest, ASizeThatOverflowsWhenRoundedIsRefused) {
  HostDevice device;
  EXPECT_THAT(device.Allocate(std::numeric_limits<uint64_t>::max()),
              StatusIs(absl::StatusCode::kResourceExhausted, "memory"));
}

TEST(HostDeviceTest, FreeAcceptsNull) { HostDevice().Free(nullptr); }

TEST(CallerStreamTest, IsTheCaller) {
  EXPECT_TRUE(CallerStream()->is_caller());
  CallerStream()->Synchronize();
}

TEST(CallerStreamTest, RecordCompletesAtOnce) {
  HostDevice device;
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<Event> event, device.CreateEvent(1));
  CallerStream()->Record(event.get(), 1);
  EXPECT_TRUE(event->IsComplete(1));
}

TEST(CallerStreamTest, WaitBlocksTheCaller) {
  HostDevice device;
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<Event> event, device.CreateEvent(1));
  int written = 0;
  std::thread other([&] {
    written = 1;
    CallerStream()->Record(event.get(), 1);
  });
  CallerStream()->Wait(event.get(), 1);
  EXPECT_EQ(written, 1);
  other.join();
}

}  // namespace
}  // namespace commsched
