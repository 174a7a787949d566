#ifndef COMMSCHED_EXAMPLES_TRAINER_CARVER_H_
#define COMMSCHED_EXAMPLES_TRAINER_CARVER_H_

#include <cstdint>

namespace commsched::trainer {

// Hands out consecutive, cache-line aligned pieces of a block of memory. With
// a null base it only counts.
//
// Thread-compatible.
class Carver {
 public:
  explicit Carver(float* base) : base_(base) {}

  float* Take(int64_t count) {
    float* piece = base_ == nullptr ? nullptr : base_ + count_;
    count_ +=
        (count + kCacheLineFloats - 1) / kCacheLineFloats * kCacheLineFloats;
    return piece;
  }

  int64_t count() const { return count_; }

 private:
  static constexpr int64_t kCacheLineFloats = 16;

  float* const base_;
  int64_t count_ = 0;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_CARVER_H_
