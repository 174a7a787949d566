#ifndef COMMSCHED_SRC_DEVICE_HOST_DEVICE_H_
#define COMMSCHED_SRC_DEVICE_HOST_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "device/device.h"

namespace commsched {

// Streams are the calling thread or worker threads; memory is the heap.
// Thread-safe.
class HostDevice : public Device {
 public:
  commsched_device_kind_t kind() const override {
    return COMMSCHED_DEVICE_HOST;
  }
  int ordinal() const override { return 0; }
  std::string name() const override { return "the host"; }
  absl::StatusOr<std::unique_ptr<Event>> CreateEvent(uint32_t depth) override;
  absl::StatusOr<std::unique_ptr<Stream>> CreateSideStream() override;
  absl::StatusOr<Stream*> Adopt(void* native) override;
  absl::StatusOr<void*> Allocate(uint64_t bytes) override;
  void Free(void* address) override;
  absl::Status Fill(void* to, int value, uint64_t bytes) override;
};

// The one of this process.
const std::shared_ptr<Device>& SharedHostDevice();

// The stream that is whoever calls. One instance serves all threads.
Stream* CallerStream();

// A worker thread that runs what is enqueued, in order, from a ring of
// `capacity` slots made at construction; enqueuing allocates nothing and blocks
// while the ring is full. The destructor runs what is enqueued.
// Thread-safe.
class HostStream : public Stream {
 public:
  using Function = void (*)(void* user);
  static absl::StatusOr<std::unique_ptr<HostStream>> Create(
      absl::string_view name, uint32_t capacity);
  virtual void Enqueue(Function function, void* user) = 0;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_DEVICE_HOST_DEVICE_H_
