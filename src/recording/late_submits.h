// What submissions of collectives on late-bound buffers bring.
#ifndef COMMSCHED_SRC_RECORDING_LATE_SUBMITS_H_
#define COMMSCHED_SRC_RECORDING_LATE_SUBMITS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "exec/late_bindings.h"
#include "graph/graph.h"

namespace commsched {

// The first late-bound buffer that `op` accesses, or an invalid id.
BufferId LateBoundOf(const Graph& ops, const Op& op);

// Whether `late` may come with a submission of collective `op`: none if it uses
// no late-bound buffer, and some if it does; of as many elements as were
// declared, unless each submit tells its counts. Whether they fit together is
// for LateBindings to say.
absl::Status CheckSubmittedWith(const Graph& ops, OpId op, bool tells_counts,
                                absl::Span<const LateBinding> late);

// How much collective `op` moves with `late`, equal on the ranks that submit
// the same: " of 12 elements", " with counts 3,4"; empty without `late`.
std::string AmountText(const Graph& ops, OpId op,
                       absl::Span<const LateBinding> late);

}  // namespace commsched

#endif  // COMMSCHED_SRC_RECORDING_LATE_SUBMITS_H_
