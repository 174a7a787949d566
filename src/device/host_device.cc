#include "device/host_device.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "device/device_counters.h"
#include "device/host_event.h"

namespace commsched {
namespace {

constexpr uint64_t kAlignment = 64;

// More than the machine has is refused rather than left to overcommit: the
// first touch of such an arena would kill the process.
uint64_t PhysicalBytes() {
  static const uint64_t bytes = [] {
    const int64_t pages = sysconf(_SC_PHYS_PAGES);
    const int64_t page_bytes = sysconf(_SC_PAGE_SIZE);
    if (pages <= 0 || page_bytes <= 0) return uint64_t{1} << 46;
    return static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes);
  }();
  return bytes;
}

class CallerStreamImpl final : public Stream {
 public:
  void Wait(Event* event, uint64_t generation) override {
    event->Synchronize(generation);
  }
  void Record(Event* event, uint64_t generation) override {
    event->Complete(generation);
  }
  void Synchronize() override {}
  bool is_caller() const override { return true; }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Event>> HostDevice::CreateEvent(
    uint32_t /*depth*/) {
  GlobalDeviceCounters().events_created.fetch_add(1, std::memory_order_relaxed);
  return std::unique_ptr<Event>(std::make_unique<HostEvent>());
}

absl::StatusOr<std::unique_ptr<Stream>> HostDevice::CreateSideStream() {
  return absl::UnimplementedError(
      "the host has no side streams: its launches go out on a thread");
}

absl::StatusOr<Stream*> HostDevice::Adopt(void* /*native*/) {
  return absl::InvalidArgumentError(
      "a stream of a device was given where the rank computes on the host");
}

absl::StatusOr<void*> HostDevice::Allocate(uint64_t bytes) {
  const uint64_t limit = PhysicalBytes();
  if (bytes > limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot allocate ", bytes, " bytes: the machine has ",
                     limit, " bytes of memory"));
  }
  // No overflow: `bytes` is far below 2^64 here.
  const uint64_t rounded =
      bytes == 0 ? kAlignment : (bytes + kAlignment - 1) & ~(kAlignment - 1);
  void* address = std::aligned_alloc(kAlignment, rounded);
  if (address == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("out of host memory allocating ", bytes, " bytes"));
  }
  return address;
}

void HostDevice::Free(void* address) { std::free(address); }

absl::Status HostDevice::Fill(void* to, int value, uint64_t bytes) {
  if (bytes != 0) std::memset(to, value, bytes);
  return absl::OkStatus();
}

const std::shared_ptr<Device>& SharedHostDevice() {
  static const auto* const device =
      new std::shared_ptr<Device>(std::make_shared<HostDevice>());
  return *device;
}

Stream* CallerStream() {
  static CallerStreamImpl stream;
  return &stream;
}

}  // namespace commsched
