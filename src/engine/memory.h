#ifndef COMMSCHED_SRC_ENGINE_MEMORY_H_
#define COMMSCHED_SRC_ENGINE_MEMORY_H_

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

namespace commsched::engine {

// Of the machine; 2^46 if it does not say.
inline uint64_t PhysicalBytes() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  const int64_t page_bytes = sysconf(_SC_PAGE_SIZE);
  if (pages <= 0 || page_bytes <= 0) return uint64_t{1} << 46;
  return static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes);
}

// `count` zeros of a plain type, aligned to a cache line. Every page is touched
// on creation, so that no step pays for it.
//
// Thread-compatible.
template <typename T>
class Array {
 public:
  Array() = default;

  // Empty if there is no memory.
  static Array Zeros(uint64_t count) {
    Array array;
    if (count > (UINT64_MAX - kAlignment) / sizeof(T)) return array;
    const uint64_t bytes =
        (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    array.data_.reset(static_cast<T*>(std::aligned_alloc(kAlignment, bytes)));
    if (array.data_ == nullptr) return array;
    array.count_ = count;
    std::memset(static_cast<void*>(array.data_.get()), 0, bytes);
    return array;
  }

  T* data() const { return data_.get(); }
  uint64_t count() const { return count_; }
  uint64_t bytes() const { return count_ * sizeof(T); }

 private:
  static constexpr uint64_t kAlignment = 64;
  struct Free {
    void operator()(T* pointer) const { std::free(pointer); }
  };
  std::unique_ptr<T, Free> data_;
  uint64_t count_ = 0;
};

// Elements whose type is known when the engine is made.
using Bytes = Array<std::byte>;

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_MEMORY_H_
