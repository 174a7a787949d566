#ifndef COMMSCHED_SRC_ENGINE_MODEL_PASSES_H_
#define COMMSCHED_SRC_ENGINE_MODEL_PASSES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace commsched::engine {

// A forward or backward of a module, in the order in which the caller runs
// them.
struct Pass {
  uint32_t module = 0;
  uint32_t use = 0;  // Among those of the module in one forward.
  uint32_t micro_batch = 0;
  bool backward = false;
  bool again = false;    // A forward within backward.
  uint32_t forward = 0;  // Index of its first forward.

  bool operator==(const Pass&) const = default;
};

// "block", and then "block#2" and so on.
std::string PassName(const std::string& module, uint32_t use);

// "forward_begin of module 1 'block', micro-batch 0"; `which` is begin or end.
// A module without a name is one that there is not. Of the second and later
// uses:
// ", pass 2"; of a forward within backward: ", recomputed".
std::string CallText(const char* which, const Pass& pass,
                     const std::string& module);

// Modules in the order of a forward. One may come several times.
using Sequence = std::vector<uint32_t>;

// 0, 1, 2, ...
Sequence RegisteredSequence(size_t num_modules);

// Forward and then backward of each micro-batch. Where neighbours are of one
// segment (`segments`: by module; 0 is none), their forwards come again before
// their backwards.
std::vector<Pass> PassOrder(const Sequence& sequence,
                            const std::vector<uint32_t>& segments,
                            uint32_t micro_batches);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_MODEL_PASSES_H_
