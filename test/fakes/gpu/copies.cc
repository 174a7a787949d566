// Memory, of the stand-in of the CUDA runtime: what is allocated, copied and
// filled.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "capture.h"
#include "fake_gpu.h"
#include "running_kernels.h"
#include "state.h"

namespace fake_gpu {
namespace {

// What a host that looks on sees of a word is the old or the new one.
void CopyBytes(void* to, const void* from, size_t bytes) {
  if (bytes == sizeof(uint64_t) && reinterpret_cast<uintptr_t>(to) % 8 == 0) {
    uint64_t word = 0;
    std::memcpy(&word, from, sizeof(word));
    std::atomic_ref<uint64_t>(*static_cast<uint64_t*>(to))
        .store(word, std::memory_order_release);
    return;
  }
  std::memcpy(to, from, bytes);
}

// From pageable memory, which the caller may change once this has returned.
void EnqueueStaged(const char* call, void* to, const void* from, size_t bytes,
                   Stream* stream) {
  const auto* const first = static_cast<const char*>(from);
  stream->Enqueue(call, {Writes(to, bytes)},
                  {[to, staged = std::vector<char>(first, first + bytes)] {
                     std::memcpy(Twin(to), staged.data(), staged.size());
                   },
                   nullptr});
}

std::atomic<bool> malloc_waits{false};

}  // namespace
}  // namespace fake_gpu

using fake_gpu::AllClocks;
using fake_gpu::AllMemory;
using fake_gpu::Failed;
using fake_gpu::Reads;
using fake_gpu::StreamOf;
using fake_gpu::Writes;

void fake_gpu_malloc_waits(int on) { fake_gpu::malloc_waits = on != 0; }

// What the functions of both interfaces return.
int fake_gpu::AllocateMemory(size_t bytes, void** address) {
  if (const int code = CheckUnsafe(); code != cudaSuccess) return code;
  if (malloc_waits) AllRunningKernels().AwaitEnd(CurrentDevice());
  void* const found = AllMemory().Allocate(CurrentDevice(), bytes);
  if (found == nullptr) return cudaErrorMemoryAllocation;
  *address = found;
  return cudaSuccess;
}

// "For all other pointers, this API may perform implicit synchronization"
// (cudaFree): it always does here. What ends something does so also where an
// error sticks, `code`: the process is about to end, and sanitizers look for
// what it has lost.
int fake_gpu::FreeMemory(int code, void* address) {
  if (address == nullptr) return code;
  const int device = AllMemory().DeviceOf(address);
  if (device < 0) return cudaErrorInvalidValue;
  AllClocks().Free(address, AllMemory().BytesOf(address));
  SynchronizeDevice(device);
  return AllMemory().Free(address) < 0 ? int{cudaErrorInvalidValue} : code;
}

cudaError_t cudaMalloc(void** address, size_t bytes) {
  FAKE_ENTER();
  FAKE_CHECK(fake_gpu::AllocateMemory(bytes, address));
  return cudaSuccess;
}

cudaError_t cudaFree(void* address) {
  FAKE_CHECK(fake_gpu::FreeMemory(fake_gpu::Enter(__func__), address));
  return cudaSuccess;
}

// Of the default stream, and for the host to wait for; but "for transfers from
// pageable host memory to device memory, a stream sync is performed before the
// copy is initiated. The function will return once the pageable buffer has been
// copied to the staging memory for DMA transfer to device memory, but the DMA
// to final destination may not have completed" (Runtime API, API
// synchronization behavior).
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes,
                       cudaMemcpyKind /*kind*/) {
  FAKE_ENTER();
  FAKE_CHECK(fake_gpu::CheckUnsafe());
  FAKE_CHECK(fake_gpu::CheckWork(nullptr));
  fake_gpu::Stream* const stream = StreamOf(nullptr);
  if (fake_gpu::IsPageable(from) && !fake_gpu::IsPageable(to)) {
    stream->Synchronize();
    fake_gpu::EnqueueStaged(__func__, to, from, bytes, stream);
    return cudaSuccess;
  }
  stream->Enqueue(
      __func__, {Reads(from, bytes), Writes(to, bytes)},
      {[=] { std::memcpy(fake_gpu::Twin(to), fake_gpu::Twin(from), bytes); },
       nullptr});
  stream->Synchronize();
  return cudaSuccess;
}

// "For transfers from pageable host memory to device memory [...] the function
// will return once the pageable buffer has been copied to the staging memory";
// from device memory to pageable host memory "only once the copy has completed"
// (Runtime API, API synchronization behavior).
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind /*kind*/, cudaStream_t stream) {
  FAKE_ENTER();
  if (!fake_gpu::IsKnown(stream)) return Failed(cudaErrorInvalidResourceHandle);
  FAKE_CHECK(fake_gpu::CheckWork(stream));
  if (fake_gpu::is_null.load(std::memory_order_relaxed)) return cudaSuccess;
  if (fake_gpu::IsPageable(from)) {
    fake_gpu::EnqueueStaged(__func__, to, from, bytes, StreamOf(stream));
    return cudaSuccess;
  }
  StreamOf(stream)->Enqueue(__func__, {Reads(from, bytes), Writes(to, bytes)},
                            {[=] {
                               fake_gpu::CopyBytes(fake_gpu::Twin(to),
                                                   fake_gpu::Twin(from), bytes);
                             },
                             nullptr});
  if (fake_gpu::IsPageable(to)) StreamOf(stream)->Synchronize();
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes,
                            cudaStream_t stream) {
  FAKE_ENTER();
  if (!fake_gpu::IsKnown(stream)) return Failed(cudaErrorInvalidResourceHandle);
  FAKE_CHECK(fake_gpu::CheckWork(stream));
  StreamOf(stream)->Enqueue(
      __func__, {Writes(address, bytes)},
      {[=] { std::memset(fake_gpu::Twin(address), value, bytes); }, nullptr});
  return cudaSuccess;
}

int fake_gpu::SetWords(void* address, unsigned value, size_t words,
                       cudaStream_t stream) {
  if (!IsKnown(stream)) return cudaErrorInvalidResourceHandle;
  if (const int code = CheckWork(stream); code != cudaSuccess) return code;
  StreamOf(stream)->Enqueue(
      "cuMemsetD32Async", {Writes(address, words * sizeof(value))},
      {[=] {
         std::fill_n(static_cast<unsigned*>(Twin(address)), words, value);
       },
       nullptr});
  return cudaSuccess;
}

int fake_gpu::AllocatePinned(size_t bytes, void** address) {
  if (const int code = CheckUnsafe(); code != cudaSuccess) return code;
  auto& pinned = AllPinned();
  void* const found = std::malloc(bytes);
  if (found == nullptr) return cudaErrorMemoryAllocation;
  const std::lock_guard<std::mutex> lock(pinned.mu);
  pinned.bytes[static_cast<const char*>(found)] = bytes;
  *address = found;
  return cudaSuccess;
}

// Waits, as FreeMemory() does.
int fake_gpu::FreePinned(int code, void* address) {
  if (address == nullptr) return code;
  for (int device = 0; device < kNumDevices; ++device) {
    SynchronizeDevice(device);
  }
  auto& pinned = AllPinned();
  std::unique_lock<std::mutex> lock(pinned.mu);
  const auto found = pinned.bytes.find(static_cast<const char*>(address));
  if (found == pinned.bytes.end()) return cudaErrorInvalidValue;
  const size_t bytes = found->second;
  pinned.bytes.erase(found);
  lock.unlock();  // The clocks look for pinned memory under their own lock.
  AllClocks().Free(address, bytes);
  std::free(address);
  return code;
}

cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned /*flags*/) {
  FAKE_ENTER();
  FAKE_CHECK(fake_gpu::AllocatePinned(bytes, address));
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* address) {
  FAKE_CHECK(fake_gpu::FreePinned(fake_gpu::Enter(__func__), address));
  return cudaSuccess;
}

// "width must not exceed either dpitch or spitch" (cudaMemcpy2DAsync).
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from,
                              size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind /*kind*/, cudaStream_t stream) {
  FAKE_ENTER();
  if (!fake_gpu::IsKnown(stream)) return Failed(cudaErrorInvalidResourceHandle);
  FAKE_CHECK(fake_gpu::CheckWork(stream));
  if (width > to_pitch || width > from_pitch) {
    return Failed(cudaErrorInvalidPitchValue);
  }
  std::vector<fake_gpu::Range> rows;
  for (size_t row = 0; AllClocks().on() && row < height; ++row) {
    rows.push_back(
        Reads(static_cast<const char*>(from) + row * from_pitch, width));
    rows.push_back(Writes(static_cast<char*>(to) + row * to_pitch, width));
  }
  const auto copy = [=] {
    char* row_to = static_cast<char*>(fake_gpu::Twin(to));
    const char* row_from = static_cast<const char*>(fake_gpu::Twin(from));
    for (size_t row = 0; row < height; ++row) {
      std::memcpy(row_to, row_from, width);
      row_to += to_pitch;
      row_from += from_pitch;
    }
  };
  StreamOf(stream)->Enqueue(__func__, rows, {copy, nullptr});
  return cudaSuccess;
}

cudaError_t cudaMemset(void* address, int value, size_t bytes) {
  FAKE_ENTER();
  FAKE_CHECK(fake_gpu::CheckUnsafe());
  FAKE_CHECK(fake_gpu::CheckWork(nullptr));
  StreamOf(nullptr)->Enqueue(
      __func__, {Writes(address, bytes)},
      {[=] { std::memset(fake_gpu::Twin(address), value, bytes); }, nullptr});
  return cudaSuccess;
}

// A struct of the runtime's is that of its major version.
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes,
                                     const void* address) {
  FAKE_ENTER();
  constexpr size_t kBytesOf12 = 24;
  constexpr size_t kBytesOf13 = 88;
  std::memset(static_cast<void*>(attributes), 0,
              fake_gpu::RuntimeVersion() < 13000 ? kBytesOf12 : kBytesOf13);
  const int device = AllMemory().DeviceOf(address);
  attributes->type = device >= 0 ? cudaMemoryTypeDevice
                     : fake_gpu::IsPageable(address)
                         ? cudaMemoryTypeUnregistered
                         : cudaMemoryTypeHost;
  attributes->device = device < 0 ? fake_gpu::CurrentDevice() : device;
  return cudaSuccess;
}
