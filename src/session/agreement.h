// Ranks show that they run the same plan.
#ifndef COMMSCHED_SRC_SESSION_AGREEMENT_H_
#define COMMSCHED_SRC_SESSION_AGREEMENT_H_

#include "absl/status/status.h"
#include "session/session_spec.h"

namespace commsched {

// All ranks show their fingerprints: those of one role must have one plan, and
// the members of a group, of whatever roles, must agree on what happens there
// (Plan::group_fingerprints). If they do not, two ranks show where they part,
// and every rank gets an error that names the first difference (I1). Then all
// members of a group must mean the same ranks, in one order, on one axis: if
// not, every rank gets an error that names the group, two ranks and what they
// have. What is shown is bounded: some bytes per group, or per member of one
// that is no axis of a mesh, and on a difference 8 per op, then one line.
// Collective, also for a rank that could not bind: `bound` is then
// its error, which it gets back, and which the others learn instead of waiting
// for it.
//
// kFailedPrecondition if a plan or group differs or a rank could not bind;
// kDeadlineExceeded if not all ranks come within spec.JoinTimeoutNs().
absl::Status AgreeOnPlan(const SessionSpec& spec, const absl::Status& bound);

// Instead of AgreeOnPlan(), by a rank that cannot even bind, because of `why`:
// the others fail as they do if it could not bind. Of `spec` only the world,
// the rank and the instance are read. Never blocks.
void DeclineToAgree(const SessionSpec& spec, const absl::Status& why);

// All ranks say whether their communicators stand, so that none launches into
// one that another could not join. Collective, with the same errors; `ready` is
// this rank's.
absl::Status AgreeOnReadiness(const SessionSpec& spec,
                              const absl::Status& ready);

}  // namespace commsched

#endif  // COMMSCHED_SRC_SESSION_AGREEMENT_H_
