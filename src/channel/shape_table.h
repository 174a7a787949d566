// What a backend has been told to expect.
#ifndef COMMSCHED_SRC_CHANNEL_SHAPE_TABLE_H_
#define COMMSCHED_SRC_CHANNEL_SHAPE_TABLE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "commsched/plugin.h"

namespace commsched {

// Shapes of launches, and how large each has been expected: a launch that is no
// larger needs no memory that the backend does not have. Shapes grow by steps,
// so that sizes which come and go do not each cost something, and there are no
// more than kMostShapes: launches of others are not expected.
//
// Thread-compatible.
class ShapeTable {
 public:
  static constexpr size_t kMostShapes = 1024;

  // `size`: of the group.
  explicit ShapeTable(int size) : size_(size) {}

  // The slot of a shape that `call` fits into; UINT32_MAX: none yet. Allocates
  // nothing.
  uint32_t SlotOf(const commsched_launch_t& call) const;

  // After SlotOf() has found none: what to have expected for `call`, until the
  // next call; null: there are too many shapes.
  const commsched_launch_t* Grow(const commsched_launch_t& call);
  // The backend has been told, and counts what it was told as `slot`.
  void Keep(uint32_t slot);

 private:
  struct Shape {
    commsched_launch_t call = {};  // without addresses
    std::vector<commsched_member_t> members;
    std::vector<uint64_t> counts;
    uint32_t slot = UINT32_MAX;
  };

  size_t NumCounts(const commsched_launch_t& call) const;
  uint64_t KeyOf(const commsched_launch_t& call) const;
  bool Fits(const commsched_launch_t& call, const Shape& shape) const;

  const int size_;
  absl::flat_hash_map<uint64_t, Shape> shapes_;
  Shape grown_;
  uint64_t grown_key_ = 0;
};

// How large launches of a kind have been, for who asks without the rank's turn:
// a guess whether one is of a shape that the backend has been told of.
//
// IsNew: any thread. Note: one at a time.
class SizeGuess {
 public:
  bool IsNew(const commsched_launch_t& call, uint64_t bytes) const {
    return largest_[SlotOf(call)].load(std::memory_order_relaxed) < bytes + 1;
  }
  void Note(const commsched_launch_t& call, uint64_t bytes) {
    std::atomic<uint64_t>& largest = largest_[SlotOf(call)];
    if (largest.load(std::memory_order_relaxed) >= bytes + 1) return;
    largest.store(bytes + 1, std::memory_order_relaxed);
  }

 private:
  static constexpr size_t kSlots = 64;
  static size_t SlotOf(const commsched_launch_t& call) {
    return (call.kind * 7 + call.dtype * 13 + call.reduce_op +
            static_cast<uint32_t>(call.root) * 29 + call.num_members * 31) %
           kSlots;
  }

  std::array<std::atomic<uint64_t>, kSlots> largest_ = {};
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_CHANNEL_SHAPE_TABLE_H_
