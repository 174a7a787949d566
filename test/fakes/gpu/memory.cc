#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iterator>

#include "fake_gpu.h"

namespace fake_gpu {
namespace {

// "Memory allocated through cudaMalloc() is aligned to at least 256 bytes"
// (CUDA C++ Programming Guide, Device Memory Accesses).
constexpr size_t kAlignment = 256;
// What nobody has written reads like this.
constexpr int kUnwritten = 0xA5;

}  // namespace

Memory::Memory() {
  const int file = memfd_create("fake_gpu", 0);
  if (file < 0 || ftruncate(file, kAllBytes) != 0) std::abort();
  void* both = mmap(nullptr, 2 * kAllBytes, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  base_ = static_cast<char*>(both);
  if (mmap(base_, kAllBytes, PROT_NONE, MAP_SHARED | MAP_FIXED, file, 0) ==
          MAP_FAILED ||
      mmap(base_ + kAllBytes, kAllBytes, PROT_READ | PROT_WRITE,
           MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
    std::abort();
  }
  for (int i = 0; i < kNumDevices; ++i) {
    free_[i][static_cast<size_t>(i) * kDeviceBytes] = kDeviceBytes;
  }
  close(file);
}

int Memory::DeviceOf(const void* address) const {
  const char* at = static_cast<const char*>(address);
  if (at < base_ || at >= base_ + kAllBytes) return -1;
  return static_cast<int>(static_cast<size_t>(at - base_) / kDeviceBytes);
}

void* Memory::Twin(const void* address) const {
  char* at = static_cast<char*>(const_cast<void*>(address));
  return DeviceOf(address) < 0 ? at : at + kAllBytes;
}

void* Memory::Allocate(int device, size_t bytes) {
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::lock_guard<std::mutex> lock(mu_);
  for (auto& [offset, size] : free_[device]) {
    if (size < bytes) continue;
    const size_t at = offset;
    const size_t rest = size - bytes;
    free_[device].erase(at);
    if (rest != 0) free_[device][at + bytes] = rest;
    taken_[at] = bytes;
    std::memset(base_ + kAllBytes + at, kUnwritten, bytes);
    return base_ + at;
  }
  return nullptr;
}

int Memory::Free(void* address) {
  const int device = DeviceOf(address);
  if (device < 0) return -1;
  const std::lock_guard<std::mutex> lock(mu_);
  const auto at =
      taken_.find(static_cast<size_t>(static_cast<char*>(address) - base_));
  if (at == taken_.end()) return -1;
  auto [begin, bytes] = *at;
  taken_.erase(at);
  std::memset(base_ + kAllBytes + begin, kUnwritten, bytes);
  auto& free = free_[device];
  auto after = free.lower_bound(begin);
  if (after != free.end() && begin + bytes == after->first) {
    bytes += after->second;
    after = free.erase(after);
  }
  if (after != free.begin()) {
    auto before = std::prev(after);
    if (before->first + before->second == begin) {
      before->second += bytes;
      return device;
    }
  }
  free[begin] = bytes;
  return device;
}

size_t Memory::BytesOf(const void* address) {
  if (DeviceOf(address) < 0) return 0;
  const std::lock_guard<std::mutex> lock(mu_);
  const auto found = taken_.find(
      static_cast<size_t>(static_cast<const char*>(address) - base_));
  return found == taken_.end() ? 0 : found->second;
}

uint64_t Memory::allocated() {
  const std::lock_guard<std::mutex> lock(mu_);
  uint64_t bytes = 0;
  for (const auto& each : taken_) bytes += each.second;
  return bytes;
}

Memory& AllMemory() {
  static auto* const memory = new Memory;
  return *memory;
}

void* Twin(const void* address) { return AllMemory().Twin(address); }

Pinned& AllPinned() {
  static auto* const pinned = new Pinned;
  return *pinned;
}

bool IsPageable(const void* address) {
  if (AllMemory().DeviceOf(address) >= 0) return false;
  const char* const at = static_cast<const char*>(address);
  const std::lock_guard<std::mutex> lock(AllPinned().mu);
  auto after = AllPinned().bytes.upper_bound(at);
  if (after == AllPinned().bytes.begin()) return true;
  --after;
  return at >= after->first + after->second;
}

}  // namespace fake_gpu

using fake_gpu::AllMemory;

void* fake_gpu_peek(void* device_address) {
  return fake_gpu::Twin(device_address);
}

uint64_t fake_gpu_allocated_bytes(void) { return AllMemory().allocated(); }
