// From a plan to a program: events, waits, members, staging, late sides.
#ifndef COMMSCHED_SRC_EXEC_FLATTEN_H_
#define COMMSCHED_SRC_EXEC_FLATTEN_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "exec/program.h"

namespace commsched {

// What Flatten needs of the rank that runs the program.
struct Binding {
  std::vector<void*> buffer_address;  // by BufferId; owned ones in the arena
  void* arena = nullptr;
  std::vector<int> group_rank;  // by GroupId: this rank within the group
  Device* device = nullptr;     // makes the events
  bool enqueue = false;         // Program::enqueue
  // By compute lane: whether it is the calling thread. Ops that write on other
  // lanes get an event, which says when their work is done.
  std::vector<bool> caller_lanes;
  bool issue_inline = false;  // Program::issue_inline
  // Collectives that the host submits, and may wait for one by one. Each binds
  // its late-bound buffers then, if Graph::late_at_submit().
  std::vector<OpId> submitted;
};

// Resolves `plan` for one rank. LaunchProgram::comm is filled in by the caller.
//
// Left out are the plan's waits that the order of the host's calls has met: on
// an op of a lane that is the calling thread, which is done when it has its
// `after`, and on a launch that goes out inline, which is complete when it is
// due. What nobody waits for has no event.
//
// kFailedPrecondition, naming the buffer and the op, if a late-bound buffer has
// no compute op that writes it, has several, or is used before it is written;
// or, if it is bound at submit, if a collective uses it that is not submitted.
absl::StatusOr<std::unique_ptr<Program>> Flatten(
    std::shared_ptr<const Plan> plan, const Binding& binding);

// The parts of Flatten in files of their own. Both want `nodes` and `launches`
// of the program in place.

// Fills in the launches' members and staging (exec/members.cc).
void FillMembers(const Plan& plan, const Binding& binding, Program* program);

// Fills in what is late-bound, once members are in place; errors as Flatten
// (exec/late_sides.cc).
absl::Status FillLateSides(const Plan& plan, const Binding& binding,
                           Program* program);

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_FLATTEN_H_
