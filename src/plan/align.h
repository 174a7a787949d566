#ifndef COMMSCHED_SRC_PLAN_ALIGN_H_
#define COMMSCHED_SRC_PLAN_ALIGN_H_

#include <cstdint>

namespace commsched {

// Everything in the arena starts at a multiple of this: whole cache lines, and
// what vector units and device copies like.
inline constexpr uint64_t kArenaAlignment = 256;

constexpr uint64_t AlignUp(uint64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_ALIGN_H_
