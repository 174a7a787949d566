// A step that is captured into a CUDA graph.
#ifndef COMMSCHED_SRC_EXEC_STEP_CAPTURE_H_
#define COMMSCHED_SRC_EXEC_STEP_CAPTURE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "comm/plugin/table_support.h"
#include "commsched/plugin.h"
#include "device/device.h"
#include "exec/failure.h"
#include "exec/program.h"

namespace commsched {

struct StepCaptureSpec {
  Program* program = nullptr;  // all outlive the capture
  const commsched_backend_t* backend = nullptr;
  Device* device = nullptr;
  const Failure* failure = nullptr;
  std::vector<Stream*> lanes;  // by compute lane
  // Fails the session.
  std::function<void(const absl::Status&)> fail;
};

// What a dispatcher and an issuer do in a step, for one whose work the streams
// capture instead of doing it.
//
// The graph is complete in itself: all lanes fork from the origin stream at the
// beginning and join it at the end, and there are no waits for an earlier step.
// Launches are captured on streams of the capture's own, by communication lane:
// nodes of a graph know no stream, and what other sessions launch on a lane of
// the device meanwhile must not become part of the graph. Launches of a graph
// replace those: the step after one begins when all of it is complete, which is
// more than any wait for a part of it asks for. A path of the plan from one op
// of a step to another of the same step never leaves the step, since no wait is
// for a later one; so the waits within the step are enough to order it.
//
// Nothing of it is counted: launches are numbered, and generations recorded, by
// whoever launches the graph (exec/replays.h).
//
// Before, After: any thread. Begin, End: one thread, with no other call
// running.
class StepCapture {
 public:
  // Makes the events and streams of a capture. The errors of Refuse().
  static absl::StatusOr<std::unique_ptr<StepCapture>> Create(
      StepCaptureSpec spec);
  StepCapture(const StepCapture&) = delete;
  StepCapture& operator=(const StepCapture&) = delete;

  // `origin` is capturing, and no lane but into the same graph. `step`: what
  // the backend is told.
  absl::Status Begin(Stream* origin, uint64_t step);
  absl::Status Before(uint32_t node, Stream* stream);
  absl::Status After(uint32_t node, Stream* stream);
  // Whatever it returns, the step is no longer being captured. One that lacks
  // an `after`, or whose capture ended before, fails the session if it has
  // captured a collective.
  absl::Status End();

 private:
  enum class NodeState : uint8_t { kToCome, kBegun, kDone };

  explicit StepCapture(StepCaptureSpec spec);
  // kFailedPrecondition, naming it, if the plan or a stream has something that
  // a graph cannot repeat.
  static absl::Status Refuse(const StepCaptureSpec& spec);
  absl::Status MakeStreams();
  absl::Status CheckStreams(Stream* origin, uint64_t id) const;
  absl::Status Fork(Stream* origin) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Join() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Enter(uint32_t node, Stream* stream)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Leave(uint32_t node, Stream* stream)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckWhole() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckCall(uint32_t node, const Stream* stream, NodeState state,
                         absl::string_view call) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckDependencies(const NodeProgram& node) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status NotYet(const NodeProgram& node, uint32_t missing) const;
  absl::Status EnqueueDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Enqueue(uint32_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EnqueueWaits(Span32 waits, Stream* stream);
  absl::Status CheckDevice() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // `why` is the first failure of the session: a collective that one rank has
  // captured and another has not cannot be taken back.
  absl::Status Break(absl::Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Fails the session if `done` says that the capture broke.
  absl::Status Finish(absl::Status done);

  // Constant after construction.
  const StepCaptureSpec spec_;
  const Program& program_;
  // By communication lane, or null: nothing is launched there.
  std::vector<std::unique_ptr<Stream>> side_streams_;
  std::vector<Stream*> streams_;  // lanes and side streams, each once
  // Of forks and joins.
  std::unique_ptr<Event> edge_;

  // Changed by Begin.
  Stream* origin_ = nullptr;
  uint64_t id_ = 0;
  uint64_t step_ = 0;

  Mutex mu_;
  std::vector<NodeState> states_ ABSL_GUARDED_BY(mu_);  // by node
  std::vector<uint32_t> missing_ ABSL_GUARDED_BY(mu_);  // by launch: producers
  uint32_t head_ ABSL_GUARDED_BY(mu_) = 0;              // launches captured
  PluginMessage message_ ABSL_GUARDED_BY(mu_);
  bool is_broken_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_STEP_CAPTURE_H_
