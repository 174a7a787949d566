#ifndef COMMSCHED_SRC_ENGINE_STATE_MEMORY_H_
#define COMMSCHED_SRC_ENGINE_STATE_MEMORY_H_

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "checkpoint/status.h"
#include "commsched/engine_kernels.h"
#include "commsched/session.h"
#include "engine/tables/kernels.h"

namespace commsched::engine {

// The memory of the machine; 2^46 bytes if it does not say.
inline uint64_t PhysicalBytes() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  const int64_t page_bytes = sysconf(_SC_PAGE_SIZE);
  if (pages <= 0 || page_bytes <= 0) return uint64_t{1} << 46;
  return static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes);
}

// Where an engine's memory comes from: the caller's table, and ours in its
// empty entries, each as in commsched_engine_memory_t.
//
// Thread-compatible, as the tables are.
class Memory {
 public:
  Memory(const commsched_engine_memory_t& given,
         const commsched_engine_memory_t& ours)
      : is_given_(given.allocate != nullptr),
        here_(is_given_ ? given : ours),
        host_(given.allocate_host != nullptr ? given : ours) {}

  Status Allocate(uint64_t bytes, void** out_address) const {
    *out_address = nullptr;
    ENGINE_RETURN_IF_ERROR(
        Status::FromCall(here_.allocate(here_.user, bytes, out_address),
                         "engine: memory.allocate"));
    return CheckGiven("memory.allocate", bytes, *out_address,
                      is_given_ ? kGivenAlignment : 1);
  }
  void Release(void* address, uint64_t bytes) const {
    here_.release(here_.user, address, bytes);
  }
  Status AllocateHost(uint64_t bytes, void** out_address) const {
    *out_address = nullptr;
    ENGINE_RETURN_IF_ERROR(
        Status::FromCall(host_.allocate_host(host_.user, bytes, out_address),
                         "engine: memory.allocate_host"));
    return CheckGiven("memory.allocate_host", bytes, *out_address,
                      alignof(double));
  }
  void ReleaseHost(void* address, uint64_t bytes) const {
    host_.release_host(host_.user, address, bytes);
  }
  // The caller's table, for the arenas of sessions; empty if there is none.
  commsched_allocator_t ForSessions() const {
    commsched_allocator_t allocator = commsched_allocator_init();
    if (!is_given_) return allocator;
    allocator.user = here_.user;
    allocator.allocate = here_.allocate;
    allocator.release = here_.release;
    return allocator;
  }

 private:
  // What the caller's `allocate` promises.
  static constexpr uint64_t kGivenAlignment = 256;

  static Status CheckGiven(const char* entry, uint64_t bytes,
                           const void* address, uint64_t alignment) {
    if (address != nullptr &&
        reinterpret_cast<uintptr_t>(address) % alignment == 0) {
      return Status();
    }
    return InvalidArgument(
        std::string("engine: ") + entry + " returned OK, but " +
        (address == nullptr ? "no address"
                            : "an address that is not aligned to " +
                                  std::to_string(alignment)) +
        ", for " + std::to_string(bytes) + " bytes");
  }

  const bool is_given_;
  const commsched_engine_memory_t here_, host_;
};

// The C library's.
commsched_engine_memory_t CpuMemory();

// `count` zeros of a plain type.
//
// Thread-compatible.
template <typename T>
class Array {
 public:
  Array() = default;

  // Takes it from `memory`, which outlives it, and zeroes it on the stream of
  // `kernels`.
  static Status Create(const Memory& memory, const Kernels& kernels,
                       uint64_t count, Array* out) {
    if (count == 0) count = 1;
    if (count > UINT64_MAX / sizeof(T)) {
      return Status(COMMSCHED_RESOURCE_EXHAUSTED, "too many elements");
    }
    void* address = nullptr;
    ENGINE_RETURN_IF_ERROR(memory.Allocate(count * sizeof(T), &address));
    Array array;
    array.data_ = {static_cast<T*>(address), Free{&memory, count * sizeof(T)}};
    array.count_ = count;
    ENGINE_RETURN_IF_ERROR(kernels.Zero(address, array.bytes()));
    *out = std::move(array);
    return Status();
  }

  // The same, of which a failure for want of memory says what it was for.
  static Status Create(const Memory& memory, const Kernels& kernels,
                       const std::string& what, uint64_t count, Array* out) {
    const Status status = Create(memory, kernels, count, out);
    if (status.code() != COMMSCHED_RESOURCE_EXHAUSTED) return status;
    return Status(status.code(), "engine: no memory for " + what + " (" +
                                     std::to_string(count * sizeof(T)) +
                                     " bytes): " + status.message());
  }

  T* data() const { return data_.get(); }
  uint64_t count() const { return count_; }
  uint64_t bytes() const { return count_ * sizeof(T); }

 private:
  struct Free {
    void operator()(T* pointer) const { memory->Release(pointer, bytes); }
    const Memory* memory = nullptr;
    uint64_t bytes = 0;
  };
  std::unique_ptr<T, Free> data_;
  uint64_t count_ = 0;
};

// Elements whose type is known when the engine is made.
using Bytes = Array<std::byte>;

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STATE_MEMORY_H_
