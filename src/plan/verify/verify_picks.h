// Part of verify_parts.h: which elements of a buffer with tiles stand for all.
#ifndef COMMSCHED_SRC_PLAN_VERIFY_VERIFY_PICKS_H_
#define COMMSCHED_SRC_PLAN_VERIFY_VERIFY_PICKS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace commsched {

// The elements of a buffer that an access may touch.
struct Part {
  uint64_t begin = 0;
  uint64_t end = 0;
  // Set for a tile with gaps, else 0: the range from its first element to its
  // last has rows of `row_count` every `stride`.
  uint64_t row_count = 0;
  uint64_t stride = 0;

  bool Has(uint64_t element) const {
    if (element < begin || element >= end) return false;
    return stride == 0 || (element - begin) % stride < row_count;
  }
};

// An access by one op.
struct BufferAccess : Part {
  uint32_t op = 0;
  bool writes = false;
};

// Beyond this a buffer's tiles count as the ranges that they span. It is far
// more than the cells up to which dependencies are inferred exactly.
inline constexpr size_t kMaxPicks = 65536;

// Elements of a buffer of `count` so that any accesses that meet in an element
// meet in one of these; empty if tiles have several strides or there would be
// more than kMaxPicks.
std::vector<uint64_t> PicksOf(const std::vector<BufferAccess>& accesses,
                              uint64_t count);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_VERIFY_VERIFY_PICKS_H_
