#ifndef COMMSCHED_TEST_FAKES_GPU_MEMORY_H_
#define COMMSCHED_TEST_FAKES_GPU_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace fake_gpu {

inline constexpr int kNumDevices = 4;
inline constexpr size_t kDeviceBytes = size_t{256} << 20;
inline constexpr size_t kAllBytes = kNumDevices * kDeviceBytes;

// Of all devices: addresses without rights, and kAllBytes behind each the same
// page with them. Thread-safe.
class Memory {
 public:
  Memory();

  // -1: the host's.
  int DeviceOf(const void* address) const;
  void* Twin(const void* address) const;

  void* Allocate(int device, size_t bytes);
  // The device that it was of; -1: it was not allocated.
  int Free(void* address);
  // Of what begins at `address`; 0: nothing does.
  size_t BytesOf(const void* address);
  uint64_t allocated();

 private:
  char* base_ = nullptr;
  std::mutex mu_;
  std::map<size_t, size_t> free_[kNumDevices];  // Size by offset.
  std::map<size_t, size_t> taken_;
};

Memory& AllMemory();

// The second mapping of device memory; other addresses are the host's.
void* Twin(const void* address);

// Of the host, and known to the device: cudaHostAlloc().
struct Pinned {
  std::mutex mu;
  std::map<const char*, size_t> bytes;  // By where it begins.
};

Pinned& AllPinned();

// The host's, and not known to the device.
bool IsPageable(const void* address);

// What functions that allocate and free return, the latter `code` if nothing is
// wrong: memory of the current device, and pinned memory.
int AllocateMemory(size_t bytes, void** address);
int FreeMemory(int code, void* address);
int AllocatePinned(size_t bytes, void** address);
int FreePinned(int code, void* address);

}  // namespace fake_gpu

#endif  // COMMSCHED_TEST_FAKES_GPU_MEMORY_H_
