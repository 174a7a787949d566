// What has a number, from when it is given one until it has finished.
#ifndef COMMSCHED_SRC_CHANNEL_NUMBERED_RING_H_
#define COMMSCHED_SRC_CHANNEL_NUMBERED_RING_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace commsched {

// Numbers are 1, 2, 3, ..., and finish in any order. Memory grows with the most
// that there were between the oldest unfinished and the newest.
//
// Thread-compatible.
template <typename Entry>
class NumberedRing {
 public:
  // The next number is that of `entry`, which is not null.
  uint64_t Add(Entry* entry) {
    if (next_ - oldest_ == ring_.size()) Grow();
    At(next_) = entry;
    return next_++;
  }
  void Finish(uint64_t number) {
    At(number) = nullptr;
    while (oldest_ < next_ && At(oldest_) == nullptr) ++oldest_;
  }
  // Null: it has finished. `number` is at least 1 and below next().
  Entry* Find(uint64_t number) const {
    if (number < oldest_) return nullptr;
    return ring_[number & (ring_.size() - 1)];
  }
  // All below have finished.
  uint64_t oldest() const { return oldest_; }
  uint64_t next() const { return next_; }

 private:
  static constexpr size_t kFirstRing = 64;

  Entry*& At(uint64_t number) { return ring_[number & (ring_.size() - 1)]; }
  void Grow() {
    std::vector<Entry*> larger(std::max(kFirstRing, 2 * ring_.size()));
    for (uint64_t number = oldest_; number < next_; ++number) {
      larger[number & (larger.size() - 1)] = At(number);
    }
    ring_ = std::move(larger);
  }

  // By number, of those in [oldest_, next_); null: finished. Its size is a
  // power of two.
  std::vector<Entry*> ring_;
  uint64_t oldest_ = 1;
  uint64_t next_ = 1;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_CHANNEL_NUMBERED_RING_H_
