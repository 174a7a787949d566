// The parts of the verifier, in the order in which they run; each may rely on
// what those before it have shown.
#ifndef COMMSCHED_SRC_PLAN_VERIFY_VERIFY_PARTS_H_
#define COMMSCHED_SRC_PLAN_VERIFY_VERIFY_PARTS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plan/plan.h"
#include "plan/verify/happens_before.h"
#include "plan/verify/op_order.h"

namespace commsched {

// "'a'", or "launch 3 ('a' and 2 more)".
std::string DescribeNode(const Plan& plan, NodeRef node);

// The pieces of each split collective are launches of it alone, on one lane,
// and cover it once.
absl::Status VerifyPieces(const Plan& plan);

// Progress: every op is in one node, or a collective in all its pieces; every
// launch comes due, in key order, after calls that need no later launch; every
// wait and host check points backward in the resulting order. That order is
// then a schedule, so no cycle exists (docs/happens_before.md). Returns it.
absl::StatusOr<Witness> VerifyProgress(const Plan& plan);

// I2: all conflicting accesses and explicit edges of the graph are ordered.
absl::Status VerifyHazards(const Plan& plan, const Witness& witness,
                           HappensBefore* order);

// The latter part of it. `after`: the edges in Op::after.
absl::Status VerifyExplicit(const Plan& plan,
                            absl::Span<const ExplicitEdge> after,
                            OpOrder* order);

// I5: memory of the arena that two share is handed over in order, and nobody
// finds another's contents in its place. Buffers of a place group lie at one
// offset.
absl::Status VerifyArena(const Plan& plan, const Witness& witness,
                         HappensBefore* order);

// I3: what may be in flight together respects the caps.
absl::Status VerifyCaps(const Plan& plan, const Witness& witness,
                        const HappensBefore& order);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_VERIFY_VERIFY_PARTS_H_
