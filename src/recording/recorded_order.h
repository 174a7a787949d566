// In which order a step was called, on each rank, and what follows from it.
#ifndef COMMSCHED_SRC_RECORDING_RECORDED_ORDER_H_
#define COMMSCHED_SRC_RECORDING_RECORDED_ORDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/graph.h"

namespace commsched {

// The ops that one rank called in one step, in order. An op may be there more
// than once: its k-th call is one thing, the k-th occurrence.
using CallOrder = std::vector<uint32_t>;

// One call of a frozen step.
struct FrozenCall {
  uint32_t op = 0;
  uint32_t occurrence = 0;  // from 0
  // Some rank did without it in some recorded step: leaving it out is no news.
  bool optional = false;
  friend bool operator==(const FrozenCall&, const FrozenCall&) = default;
};

// The order that all ranks freeze. Equal on all of them.
struct FrozenOrder {
  std::vector<FrozenCall> calls;
  // By segment: ranks or steps called its ops in different orders, so that
  // another order is no news either.
  std::vector<bool> loose;
  friend bool operator==(const FrozenOrder&, const FrozenOrder&) = default;
};

// What the recording says about the ops that were declared.
struct RecordedOps {
  const Graph* ops = nullptr;     // OpIds are those of CallOrder
  std::vector<uint32_t> segment;  // by op
  std::vector<bool> alternative;  // by op
  uint32_t num_segments = 1;
};

// The steps that every rank shows, by rank; all ranks show equally many.
using ShownSteps = std::vector<std::vector<CallOrder>>;

// What a rank shows the others, and back. kInvalidArgument if `text` was not
// made by EncodeSteps.
std::string EncodeSteps(const std::vector<CallOrder>& steps);
absl::StatusOr<std::vector<CallOrder>> DecodeSteps(absl::string_view text);

// What to freeze after the last steps of a recording. All equal: that. Else, as
// long as `last_chance` is false, nothing yet. At the last chance: if the ranks
// were equal in each step, all that was called in any of them; otherwise
// kFailedPrecondition, naming the first call that differs and both ranks.
absl::StatusOr<std::optional<FrozenOrder>> OrderToFreeze(
    const RecordedOps& recorded, const ShownSteps& shown, bool last_chance);

// `frozen` with segment `segment` replaced by what the steps show of it: ops
// that some rank called in some step are kept, others are dropped, but for
// alternatives. Calls of other segments stay, in their order.
FrozenOrder Rerecorded(const RecordedOps& recorded, const FrozenOrder& frozen,
                       const ShownSteps& shown, uint32_t segment);

}  // namespace commsched

#endif  // COMMSCHED_SRC_RECORDING_RECORDED_ORDER_H_
