#ifndef COMMSCHED_SRC_SESSION_SESSION_H_
#define COMMSCHED_SRC_SESSION_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/wait_registry.h"
#include "exec/codec_runner.h"
#include "exec/dispatcher.h"
#include "exec/issuer.h"
#include "exec/late_bindings.h"
#include "exec/step_capture.h"
#include "session/progress_at_failure.h"
#include "session/session_parts.h"
#include "session/session_spec.h"

namespace commsched {

struct SessionCounters {
  uint64_t steps = 0, launches = 0, collectives = 0, bytes;
  uint64_t peak_launches_in_flight = 0, peak_bytes_in_flight;
  uint64_t lock_contentions = 0, events_created = 0, streams_created = 0,
           registrations;
  int64_t stall_due_ns = 0, stall_wait_ns = 0, stall_window_ns = 0,
          stall_requests_ns;
  uint64_t arena_bytes = 0, registered_bytes = 0, allocation_retries = 0,
           backend_peak_bytes = 0, launch_allocations = 0;
};

// Behind include/commsched/session.h, which states the contract of each call.
class Session final : private Waiter {
 public:
  // Collective.
  static absl::StatusOr<std::unique_ptr<Session>> Create(SessionSpec spec);
  // All ranks of a world of this process at once, by one thread and without a
  // meeting: the plans must come from one call of the planner, which is what a
  // meeting would find out. For tests and the simulator.
  static absl::StatusOr<std::vector<std::unique_ptr<Session>>> CreateAll(
      std::vector<SessionSpec> specs);
  ~Session() override;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  absl::Status StepBegin() {
    RETURN_IF_ERROR(CheckNotCapturing("step_begin"));
    return dispatcher_->StepBegin();
  }
  absl::Status StepEnd() { return dispatcher_->StepEnd(); }
  absl::Status Before(OpId op, Stream* stream) {
    const uint32_t node = NodeOf(op);
    if (node == Plan::kNone) return NotComputeOp(op);
    if (ABSL_PREDICT_FALSE(capturing_)) return capture_->Before(node, stream);
    return dispatcher_->Before(node, stream);
  }
  absl::Status After(OpId op, Stream* stream) {
    return AfterBound(op, stream, {});
  }
  // The same for an op that writes late-bound buffers.
  absl::Status AfterBound(OpId op, Stream* stream,
                          absl::Span<const LateBinding> late) {
    const uint32_t node = NodeOf(op);
    if (node == Plan::kNone) return NotComputeOp(op);
    if (ABSL_PREDICT_FALSE(capturing_)) {
      RETURN_IF_ERROR(CheckNothingBound(op, late));
      return capture_->After(node, stream);
    }
    return dispatcher_->After(node, stream, late);
  }

  // In place of StepBegin() and StepEnd(): `origin` is capturing, and takes
  // what Before() and After() do in between into a graph.
  absl::Status CaptureBegin(Stream* origin);
  absl::Status CaptureEnd();
  // A step that is a launch of the graph, which the caller launches on `stream`
  // in between.
  absl::Status ReplayBegin(Stream* stream);
  absl::Status ReplayEnd() { return dispatcher_->ReplayEnd(); }

  // Once per step for each of SessionSpec::submitted. `drop`: this rank sends
  // zeros and gets no result. Returns status().
  absl::Status Submit(OpId collective, bool drop);
  // Of a collective with late-bound buffers that are bound at submit: whether
  // `late` binds them, each once and nothing else, as Submit() may use them.
  absl::Status CheckBound(OpId collective,
                          absl::Span<const LateBinding> late) const;
  // The same with what CheckBound() has accepted; not dropped.
  absl::Status SubmitBound(OpId collective, absl::Span<const LateBinding> late);
  // Whether all launches of `collective` are due in this step.
  bool IsDue(OpId collective) const;
  // Blocks until `collective`, of the backend's host memory, is complete in
  // `generation` (step generation - 1), or `deadline_ns` of SystemClock has
  // come: kDeadlineExceeded, naming the launch that is not complete and, if
  // that is not due, the one that holds it up. Any thread.
  absl::Status AwaitCollective(OpId collective, uint64_t generation,
                               int64_t deadline_ns);
  // Blocks until every launch that is due is complete, and all enqueued work
  // done. Within a step.
  absl::Status WaitDue();
  // `compute` is called on this thread, with no lock held.
  using Compute = absl::Status (*)(void* user, OpId op, Stream* stream);
  absl::Status Run(Compute compute, void* user, uint64_t num_steps) {
    RETURN_IF_ERROR(CheckNotCapturing("run"));
    return dispatcher_->Run(compute, user, num_steps);
  }
  // Of a manual session: fails if something due is not complete.
  absl::Status Drain();
  // Manual sessions only. One round of polling and issuing: whether it got on.
  bool Pump() { return issuer_->Pump(); }
  // When Pump() may get on by the clock alone; kNoDeadlineNs: never.
  int64_t NextWakeNs() const { return issuer_->NextWakeNs(); }
  void Abort(absl::string_view reason) {
    issuer_->Fail(absl::AbortedError(reason));
  }
  absl::Status status() const { return parts_.failure.status(); }
  absl::StatusOr<void*> Address(OpId op, BufferId buffer);
  absl::StatusOr<uint64_t> BufferVersion(BufferId buffer) const;
  absl::Status BufferRelease(BufferId buffer, Stream* stream);
  absl::StatusOr<bool> BufferPoisoned(BufferId buffer) const;
  SessionCounters counters() const;
  // By op id; 0 for compute ops.
  std::vector<int64_t> CollectiveCpuNs() const;
  // How the backend does a launch. kUnimplemented: it does not tell, or the
  // launch's size is bound late; kOutOfRange. Any thread.
  absl::StatusOr<commsched_launch_estimate_t> EstimateOf(uint64_t launch) const;
  // What encoding did to the launches of collective `op`. NotFound, naming it,
  // if it does not travel through a codec.
  absl::StatusOr<CodecError> CodecErrorOf(OpId op) const;
  const Plan& plan() const { return *parts_.spec.plan; }

 private:
  explicit Session(SessionSpec spec) : parts_(std::move(spec)) {}
  // `bound`: what binding the parts returned; the other ranks learn of a
  // failure. Collective.
  absl::Status Meet(const absl::Status& bound);
  absl::Status Start();
  void AwaitLaunches();
  // The work on compute lanes.
  void AwaitLanes();

  uint32_t NodeOf(OpId op) const {
    const std::vector<uint32_t>& nodes = parts_.spec.plan->node_of_op;
    return op.value() < nodes.size() ? nodes[op.value()] : Plan::kNone;
  }
  absl::Status NotComputeOp(OpId op) const;
  // The session's first failure comes before what is wrong with the call.
  absl::Status CheckNotCapturing(absl::string_view call) const;
  // A session with late-bound buffers captures nothing.
  absl::Status CheckNothingBound(OpId op,
                                 absl::Span<const LateBinding> late) const;
  // For who asks what the ranks of this process wait for.
  void DescribeTo(std::string* text) const override;
  std::vector<std::string> OpLines() const;
  std::vector<std::string> LaunchLines() const;
  uint64_t CompletedGenerations(NodeRef node) const;
  bool AwaitLaunchBy(uint32_t launch, uint64_t generation, int64_t deadline_ns);
  void AddMemory(SessionCounters* counters) const;
  ProgressAtFailure Progress() const;
  void RememberReleasedOn(Stream* stream);

  SessionParts parts_;

  // Streams that may hold waits of BufferRelease() for our events.
  Mutex released_mu_;
  std::vector<Stream*> released_on_ ABSL_GUARDED_BY(released_mu_);

  // By BufferId, as of the progress that was made; empty: not asked for yet.
  mutable Mutex poison_mu_;
  mutable std::vector<bool> poisoned_ ABSL_GUARDED_BY(poison_mu_);
  mutable ProgressAtFailure poisoned_at_ ABSL_GUARDED_BY(poison_mu_);

  // The issuer, which stops the progress thread, goes before everything that
  // the progress thread uses.
  std::unique_ptr<Issuer> issuer_;
  std::unique_ptr<Dispatcher> dispatcher_;

  // Made by the first CaptureBegin(). The driving thread's, as all that
  // follows.
  std::unique_ptr<StepCapture> capture_;
  bool capturing_ = false;
  bool has_captured_ = false;
  Stream* replay_stream_ = nullptr;  // of the latest ReplayBegin()
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_SESSION_SESSION_H_
