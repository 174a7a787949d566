// Memory of messages between ranks of a host that nobody has asked for yet, and
// of those that go in parts. What has once been taken from the system is used
// again.
#ifndef COMMSCHED_PLUGINS_UCX_POOLS_H_
#define COMMSCHED_PLUGINS_UCX_POOLS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace commsched::ucx {

// Objects that stay where they are. T has `T* next`.
template <typename T>
class Pool {
 public:
  // So many can be had, in all, without memory from the system.
  void Reserve(size_t count) {
    while (num_objects_ < count) Grow();
  }
  T* Take() {
    if (free_ == nullptr) Grow();
    T* const one = free_;
    free_ = one->next;
    return one;
  }
  void Give(T* one) {
    one->next = free_;
    free_ = one;
  }

 private:
  static constexpr size_t kAtOnce = 256;

  void Grow() {
    arrays_.push_back(std::make_unique<T[]>(kAtOnce));
    for (size_t i = kAtOnce; i > 0; --i) Give(&arrays_.back()[i - 1]);
    num_objects_ += kAtOnce;
  }

  std::vector<std::unique_ptr<T[]>> arrays_;
  size_t num_objects_ = 0;
  T* free_ = nullptr;
};

// Payloads, in blocks of kBytes. Pages that were never used are never touched.
class BlockPool {
 public:
  static constexpr uint64_t kBytes = 1024;
  static constexpr uint32_t kNone = UINT32_MAX;

  static uint64_t CountOf(uint64_t bytes) {
    return (bytes + kBytes - 1) / kBytes;
  }

  explicit BlockPool(uint64_t num_blocks)
      : num_blocks_(num_blocks),
        bytes_(new char[num_blocks * kBytes]),
        next_(new uint32_t[num_blocks]) {}

  // A copy of `data`, until it is taken back. kNone: there is no room.
  uint32_t Store(const char* data, uint64_t bytes) {
    if (num_taken_ + CountOf(bytes) > num_blocks_) return kNone;
    uint32_t first = kNone;
    uint32_t* link = &first;
    for (uint64_t done = 0; done < bytes; done += kBytes) {
      *link = TakeOne();
      std::memcpy(At(*link), data + done, std::min(kBytes, bytes - done));
      link = &next_[*link];
    }
    *link = kNone;
    return first;
  }
  void Load(uint32_t first, uint64_t bytes, char* to) const {
    for (uint64_t done = 0; done < bytes; done += kBytes) {
      std::memcpy(to + done, At(first), std::min(kBytes, bytes - done));
      first = next_[first];
    }
  }
  void TakeBack(uint32_t first) {
    while (first != kNone) {
      const uint32_t next = next_[first];
      next_[first] = free_;
      free_ = first;
      --num_taken_;
      first = next;
    }
  }

 private:
  char* At(uint32_t block) const { return bytes_.get() + block * kBytes; }
  uint32_t TakeOne() {
    ++num_taken_;
    if (free_ == kNone) return num_touched_++;
    const uint32_t one = free_;
    free_ = next_[one];
    return one;
  }

  const uint64_t num_blocks_;
  const std::unique_ptr<char[]> bytes_;
  const std::unique_ptr<uint32_t[]> next_;
  uint64_t num_taken_ = 0;
  uint32_t num_touched_ = 0;
  uint32_t free_ = kNone;
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_POOLS_H_
