#ifndef COMMSCHED_SRC_ENGINE_MODEL_PASSES_H_
#define COMMSCHED_SRC_ENGINE_MODEL_PASSES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/status.h"
#include "commsched/pass.h"

namespace commsched::engine {

// The values are those of commsched_pass_kind_t.
enum class PassKind : uint8_t {
  kForward = COMMSCHED_FORWARD,
  kRecompute = COMMSCHED_RECOMPUTE,
  kBackward = COMMSCHED_BACKWARD,
  kBackwardInput = COMMSCHED_BACKWARD_INPUT,
  kBackwardWeight = COMMSCHED_BACKWARD_WEIGHT,
  kNoGrad = COMMSCHED_NO_GRAD,
};
inline constexpr uint32_t kNumPassKinds = 6;

// Goes through the backward of its module.
constexpr bool IsBackward(PassKind kind) {
  return kind == PassKind::kBackward || kind == PassKind::kBackwardInput ||
         kind == PassKind::kBackwardWeight;
}
constexpr bool AddsGradients(PassKind kind) {
  return kind == PassKind::kBackward || kind == PassKind::kBackwardWeight;
}
constexpr bool ReadsValues(PassKind kind) {
  return kind != PassKind::kBackwardWeight;
}

// A pass as the caller names it.
struct PassCall {
  PassKind kind = PassKind::kForward;
  uint32_t module = 0;
  uint32_t micro_batch = 0;

  bool operator==(const PassCall&) const = default;
};

// A pass among those of a step, in the order in which the caller runs them.
struct Pass {
  PassKind kind = PassKind::kForward;
  uint32_t module = 0;
  uint32_t use = 0;  // Among those of the module in one micro-batch.
  uint32_t micro_batch = 0;
  uint32_t forward = 0;  // Index of its first forward.

  PassCall call() const { return {kind, module, micro_batch}; }
  bool operator==(const Pass&) const = default;
};

// "block", and then "block#2" and so on.
std::string PassName(const std::string& module, uint32_t use);

// "recompute", as in names of ops.
const char* OpName(PassKind kind);

// "FORWARD of module 1 'block', micro-batch 0"; a module without a name is one
// that there is not. Of the second and later uses: ", pass 2".
std::string TextOf(const Pass& pass, const std::string& module);

// "pass_begin of FORWARD of module 1 'block', micro-batch 0"; `which` is begin
// or end.
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

// The passes of a list, each with its forward: of several that have none, a
// backward or a forward that runs again takes the last one, and the second half
// of a backward the one whose first half came first. `names`: by module. Fails
// if one of them lacks what must come before or after it, naming it.
Status LinkPasses(const std::vector<PassCall>& calls,
                  const std::vector<std::string>& names,
                  std::vector<Pass>* out_passes);

// Whether `passes` are a step of all modules and `micro_batches`: each module
// runs forward in each, and has a backward in all of them or in none. Fails
// naming the pass or the module.
Status CheckPasses(const std::vector<Pass>& passes,
                   const std::vector<std::string>& names,
                   uint32_t micro_batches);

// Returns true for each module that has no backward in `passes`.
std::vector<bool> WithoutBackward(const std::vector<Pass>& passes,
                                  size_t num_modules);

// The passes that make one forward of every module, by index: those of
// micro-batch 0, and of a module that has a FORWARD there no other.
std::vector<uint32_t> OneForward(const std::vector<Pass>& passes,
                                 size_t num_modules);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_MODEL_PASSES_H_
