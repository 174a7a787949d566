// A caller's memory for an engine, which knows what it has lent.
#ifndef COMMSCHED_TEST_ENGINE_LENT_MEMORY_H_
#define COMMSCHED_TEST_ENGINE_LENT_MEMORY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "commsched/engine.h"

namespace commsched::engine {

// Thread-safe. Outlives the engines.
class LentMemory {
 public:
  commsched_engine_memory_t Table() {
    commsched_engine_memory_t table = commsched_engine_memory_init();
    table.user = this;
    table.allocate = [](void* user, uint64_t bytes, void** out) {
      return static_cast<LentMemory*>(user)->Allocate(bytes, out);
    };
    table.release = [](void* user, void* address, uint64_t) {
      static_cast<LentMemory*>(user)->Release(address);
    };
    return table;
  }

  // Whether `address` lies in what is lent.
  bool Holds(const void* address) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto* const byte = static_cast<const std::byte*>(address);
    auto next = blocks_.upper_bound(byte);
    if (next == blocks_.begin()) return false;
    --next;
    return byte < next->first + next->second;
  }
  // How often `bytes` were asked for.
  int64_t NumOf(uint64_t bytes) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::count(asked_.begin(), asked_.end(), bytes);
  }
  bool has_all_back() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return blocks_.empty();
  }

 private:
  static constexpr uint64_t kAlignment = 256;

  commsched_status_t Allocate(uint64_t bytes, void** out) {
    *out = std::aligned_alloc(
        kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    const std::lock_guard<std::mutex> lock(mutex_);
    blocks_[static_cast<std::byte*>(*out)] = bytes;
    asked_.push_back(bytes);
    return COMMSCHED_OK;
  }
  void Release(void* address) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      blocks_.erase(static_cast<std::byte*>(address));
    }
    std::free(address);
  }

  mutable std::mutex mutex_;
  std::map<const std::byte*, uint64_t> blocks_;  // Bytes by address.
  std::vector<uint64_t> asked_;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_LENT_MEMORY_H_
