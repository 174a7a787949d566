// Pass 3: large collectives in pieces, so that an urgent one can pass between.
#ifndef COMMSCHED_SRC_PLAN_PARTITION_H_
#define COMMSCHED_SRC_PLAN_PARTITION_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "plan/plan.h"
#include "plan/roles.h"

namespace commsched {

// A piece costs a launch and a latency of its own, so that more only lose.
inline constexpr uint64_t kMaxPieces = 64;
// Pieces of at least so many elements per part begin at multiples of it: in
// whole cache lines, if the part does.
inline constexpr uint64_t kPieceAlignment = 64;

// Replaces each launch larger than options.partition_bytes by pieces of it,
// one after the other: as few as keep within the limit, kMaxPieces at most, of
// equal size up to the alignment. Each carries the same elements of every part
// (Piece), so the terms of a sum and their order stay (I4).
//
// Left whole, and LaunchReason::whole says why, is what has no parts (barrier,
// send, receive) or uneven ones, has several members (coalesce.h keeps those
// within the limit, unless a policy wants more), goes through staging memory,
// has a late-bound side, or moves nothing. What several roles share is left
// whole in all of them if it is in one, with that one's reason, else has the
// same pieces in all. `launches` and the result are by role.
std::vector<std::vector<Launch>> Partition(
    absl::Span<const RoleSpec> roles, const PlanOptions& options,
    std::vector<std::vector<Launch>> launches);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_PARTITION_H_
