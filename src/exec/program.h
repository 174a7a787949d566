// The plan, flattened for one rank: what replay reads.
#ifndef COMMSCHED_SRC_EXEC_PROGRAM_H_
#define COMMSCHED_SRC_EXEC_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/lane_order.h"
#include "commsched/plugin.h"
#include "device/device.h"
#include "exec/codec_runner.h"
#include "exec/staging.h"
#include "plan/plan.h"

namespace commsched {

// Wait for `event` at generation (step + 1 - distance).
struct ProgramWait {
  Event* event = nullptr;
  uint32_t distance = 0;
  WaitCause cause = WaitCause::kHazard;
};

// [begin, begin + count) of one of the program's arrays.
struct Span32 {
  uint32_t begin = 0;
  uint32_t count = 0;
};

struct NodeProgram {
  OpId op;
  uint32_t lane = 0;
  Span32 waits;             // in Program::waits
  Span32 after;             // in Program::after: nodes, host-checked
  Span32 feeds;             // in Program::feeds: launches this node makes due
  Span32 reads;             // in Program::reads: versions checked (I12)
  Span32 late_writes;       // in Program::late_buffers: bound by its `after`
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
  uint64_t payload_bytes = 0;
  uint32_t num_collectives = 0;
  Span32 waits;
  Span32 producers;    // in Program::producers: nodes
  uint32_t gates = 0;  // members that the host submits (Dispatcher::Submit)
  Span32 staging_in;   // in Program::staging, run before the launch
  Span32 staging_out;  // in Program::staging, run after it
  Span32 coded_in;     // in Program::coded, run before the launch
  Span32 coded_out;    // in Program::coded, run after it
  Span32 late;         // in Program::late_members
  Event* event = nullptr;
  // Of a collective that is enqueued: what says in which order. Else null.
  LaneQueue* queue = nullptr;
};

// A late-bound buffer: the `after` of its writer brings address and count. Or,
// if that is bound at submit, a late-bound buffer of one collective: its
// submission does.
struct LateBuffer {
  BufferId buffer;
  uint32_t writer = 0;      // node; Plan::kNone if bound at submit
  uint32_t max_counts = 0;  // the longest `counts` of a collective that uses it
  Span32 uses;              // in Program::late_uses
};

// A member of a launch of which a side, or both, are late-bound.
struct LateMember {
  OpId op;
  uint32_t launch = 0;
  uint32_t member = 0;           // in Program::members
  uint32_t input = Plan::kNone;  // in Program::late_buffers; kNone: bound
  uint32_t output = Plan::kNone;
  uint64_t input_count = 0;  // elements of a side that is bound, or the most of
  uint64_t output_count = 0;  // one that is not
  uint32_t num_counts = 0;    // 0: equal parts
  uint32_t counts_at = 0;     // in Program::late_counts
  int group_size = 0;
  int group_rank = 0;
};

// One step of a session-driven replay. kNode: before, the caller's work, after
// of node `index`. kIssue: launches below `index` are due from here on.
struct Instruction {
  enum class Kind : uint32_t { kNode, kIssue };
  Kind kind = Kind::kNode;
  uint32_t index = 0;
};

// Everything a step needs, resolved for this rank and laid out in arrays; made
// once, when a session binds (exec/flatten.h). Owns its events. Immutable
// afterwards, but for what late bindings fill in: those members and counts are
// the issuer's.
struct Program {
  std::shared_ptr<const Plan> plan;
  // Whether launches go out on the thread that makes them due, and are complete
  // when they are due. Only with an INLINE backend and when all compute lanes
  // are the calling thread: then nothing waits, and there are no events.
  bool issue_inline = false;
  // Whether launches go out on streams of a device, on the thread that makes
  // them due; all events are the device's then, and every launch has one.
  bool enqueue = false;
  // How many steps the host may be ahead of a device: step t begins once step
  // t - kRunAhead has retired.
  static constexpr uint32_t kRunAhead = 3;
  // What messages and records call the first step: a session that goes on from
  // a recording counts on from it.
  uint64_t first_step = 0;
  std::vector<NodeProgram> nodes;       // in planned host order
  std::vector<LaunchProgram> launches;  // in key order
  std::vector<Instruction> instructions;
  std::vector<ProgramWait> waits;
  std::vector<uint32_t> after;
  std::vector<uint32_t> feeds;
  std::vector<uint32_t> producers;
  std::vector<VersionedRead> reads;
  std::vector<commsched_member_t> members;
  std::vector<StagingStep> staging;
  std::vector<CodedStep> coded;
  std::vector<LateBuffer> late_buffers;  // in order of their writers, or ops
  // In late_buffers, by OpId: what its submission binds. Empty if nothing is
  // bound at submit.
  std::vector<Span32> late_of_op;
  std::vector<LateMember> late_members;  // in key order
  std::vector<uint32_t> late_uses;       // late members, by buffer
  std::vector<uint64_t> late_counts;
  std::vector<std::unique_ptr<Event>> events;
  std::vector<void*> buffer_address;  // by BufferId; null if late-bound

  const std::string& OpName(uint32_t node) const {
    return plan->graph->op(nodes[node].op).name;
  }
  // "#3 reduce_scatter 'a'+2 on axis dp" for messages.
  std::string LaunchName(uint32_t launch) const;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_PROGRAM_H_
