#ifndef COMMSCHED_SRC_ENGINE_LATE_MODULE_H_
#define COMMSCHED_SRC_ENGINE_LATE_MODULE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/state/memory.h"

namespace commsched::engine {

// What becomes of a planned forward or backward in a step.
enum class Fate : uint8_t {
  kPlanned,  // Runs where the plan has it.
  kAwaited,  // A forward: the plan is past it, and it may still come.
  kLate,     // Ran, or runs, at another time than the plan has it.
  kLeftOut,  // A forward: it does not come, and its backward neither.
};

// What a module that comes late uses of one of its buckets.
struct LateBucket {
  uint64_t begin = 0;  // In the bucket, in elements.
  uint64_t count = 0;
  // Whether the bucket is not always whole from the forward to its backward, so
  // that values are copied.
  bool leaves = false;
  Bytes values;
  Bytes gradients;  // Zeros, but from its backward to the planned one.
  std::byte* replaced = nullptr;  // Where gradients are otherwise.
};

// Memory of a module at one position of the forward, for when it comes late.
struct LateModule {
  std::vector<LateBucket> buckets;  // As the module's.
  bool kept = false;                // The values are those of this step.
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_LATE_MODULE_H_
