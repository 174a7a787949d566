// The plan, flattened for one rank: what replay reads.
#ifndef COMMSCHED_SRC_EXEC_PROGRAM_H_
#define COMMSCHED_SRC_EXEC_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "commsched/plugin.h"
#include "device/device.h"
#include "plan/plan.h"

namespace commsched {

// Wait for `event` at generation (step + 1 - distance).
struct ProgramWait {
  Event* event = nullptr;
  uint32_t distance = 0;
};

// [begin, begin + count) of one of the program's arrays.
struct Span32 {
  uint32_t begin = 0;
  uint32_t count = 0;
};

// One copy between user memory and staging memory.
struct StagingCopy {
  void* to = nullptr;
  const void* from = nullptr;
  uint64_t bytes = 0;
};

struct NodeProgram {
  OpId op;
  uint32_t lane = 0;
  Span32 waits;             // in Program::waits
  Span32 after;             // in Program::after: nodes, host-checked
  Span32 feeds;             // in Program::feeds: launches this node makes due
  Span32 reads;             // in Program::reads: versions checked (I12)
  uint32_t due_needed = 0;  // launches of this step that must be due before
  Event* event = nullptr;   // recorded by `after`; null if nobody waits for it
};

// A read of what a launch wrote: its version must be step + 1 - distance.
struct VersionedRead {
  uint32_t launch = 0;
  uint32_t distance = 0;
};

struct LaunchProgram {
  commsched_launch_t call = {};  // `members` point into Program::members
  void* comm = nullptr;
  uint32_t group = 0;
  uint32_t lane = 0;
  uint64_t weight_bytes = 0;
  uint32_t num_collectives = 0;
  Span32 waits;
  Span32 producers;   // in Program::producers: nodes
  Span32 copies_in;   // in Program::copies
  Span32 copies_out;  // in Program::copies
  Event* event = nullptr;
};

// One step of a session-driven replay. kNode: before, the caller's work, after
// of node `index`. kIssue: launches below `index` are due from here on.
struct Instruction {
  enum class Kind : uint32_t { kNode, kIssue };
  Kind kind = Kind::kNode;
  uint32_t index = 0;
};

// Everything a step needs, resolved for this rank and laid out in arrays; made
// once, when a session binds. Owns its events. Immutable afterwards.
struct Program {
  std::shared_ptr<const Plan> plan;
  std::vector<NodeProgram> nodes;
  std::vector<LaunchProgram> launches;
  std::vector<Instruction> instructions;
  std::vector<ProgramWait> waits;
  std::vector<uint32_t> after;
  std::vector<uint32_t> feeds;
  std::vector<uint32_t> producers;
  std::vector<VersionedRead> reads;
  std::vector<commsched_member_t> members;
  std::vector<StagingCopy> copies;
  std::vector<std::unique_ptr<Event>> events;
  std::vector<void*> buffer_address;  // by BufferId

  const std::string& OpName(uint32_t node) const {
    return plan->graph->op(nodes[node].op).name;
  }
  // "reduce_scatter 'a'+2" for messages.
  std::string LaunchName(uint32_t launch) const;
};

// What Flatten needs of the rank that runs the program.
struct Binding {
  std::vector<void*> buffer_address;  // by BufferId; owned ones in the arena
  void* arena = nullptr;
  std::vector<int> group_rank;  // by GroupId: this rank within the group
  Device* device = nullptr;     // makes the events
  // By compute lane: whether it is the calling thread. Ops that write on other
  // lanes get an event, which says when their work is done.
  std::vector<bool> caller_lanes;
};

// Resolves `plan` for one rank. LaunchProgram::comm is filled in by the caller.
absl::StatusOr<std::unique_ptr<Program>> Flatten(
    std::shared_ptr<const Plan> plan, const Binding& binding);

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_PROGRAM_H_
