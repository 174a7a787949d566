#ifndef COMMSCHED_SRC_RECORDING_RECORDING_H_
#define COMMSCHED_SRC_RECORDING_RECORDING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/completions.h"
#include "base/mutex.h"
#include "exec/failure.h"
#include "graph/graph.h"
#include "recording/frozen_step.h"
#include "recording/recording_meetings.h"
#include "recording/serial_runner.h"
#include "recording/submissions.h"
#include "session/session.h"

namespace commsched {

struct RecordingSpec {
  std::shared_ptr<World> world;
  int world_rank = 0;
  // Numbers of sessions; each rank takes them in the same order, the first for
  // the recording itself.
  std::function<uint64_t()> take_instance;
  std::vector<GroupSpec> groups;
  PlanOptions options;
  CostProfile profile;
  std::vector<Stream*> lanes;  // by compute lane; empty: all the caller
  Recorder* recorder = nullptr;
  uint32_t steps_to_record = 2;
  uint32_t max_recorded_steps = 16;
  int64_t launch_timeout_ns = 0;
  bool strict = false;     // frozen steps must be the recorded one
  bool by_caller = false;  // SessionSpec::by_caller; all lanes are the caller
  std::shared_ptr<Completions> completions;  // null: nobody is told
  uint64_t key = 0;                          // what they call the recording
};

// How the recording treats a collective.
struct RecordedCollective {
  bool alternative = false;  // planned, though nobody may have submitted it
  bool early = false;        // may go before it is submitted
  // Each submit tells how much it moves; it cannot go without that.
  bool tells_counts = false;
};

enum class RecordingPhase : uint32_t {
  kRecording = 0,
  kFrozen = 1,
  kRerecording = 2
};

struct RecordingInfo {
  RecordingPhase phase = RecordingPhase::kRecording;
  uint64_t steps = 0;
  uint64_t steps_recorded = 0;   // before the first plan
  uint64_t plans = 0;            // frozen so far
  uint64_t rerecordings = 0;     // finished ones
  uint64_t steps_deviating = 0;  // steps of this rank that were not the plan
  uint32_t segment = 0;          // kRerecording: which
  // Collectives that went without this rank's data, over all steps.
  uint64_t collectives_left_out = 0;
  // The last step that some rank said was not the plan, and the rank; equal on
  // all ranks, which know it DeviationFlag::distance() steps later. -1: none so
  // far.
  uint64_t deviating_step = 0;
  int deviating_rank = -1;
};

// Behind include/commsched/recording.h, which states the contract of each call.
class Recording {
 public:
  // Local. A rank that is refused tells the others, whose first step fails.
  static absl::StatusOr<std::unique_ptr<Recording>> Create(RecordingSpec spec);
  // Instead of Create(), by a rank that cannot say what it wants to create,
  // because of `why`: the others fail as if it had been refused. Of `spec` only
  // the world, the rank and the numbers are used.
  static void Decline(const RecordingSpec& spec, const absl::Status& why);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  absl::StatusOr<uint32_t> AddSegment(absl::string_view name);
  absl::StatusOr<BufferId> AddBuffer(Buffer buffer, void* address);
  absl::StatusOr<OpId> AddCompute(Op op, uint32_t segment);
  absl::StatusOr<OpId> AddCollective(Op op, uint32_t segment,
                                     RecordedCollective how);

  // What takes something away or moves it gives up the plan: all ranks do it
  // between the same two steps, and record again from the next one on.
  absl::Status RemoveOp(uint32_t op);
  absl::Status RemoveBuffer(BufferId buffer);
  absl::Status MoveBuffer(BufferId buffer, void* address);

  absl::Status StepBegin();
  absl::Status StepEnd();
  absl::Status Before(uint32_t op, Stream* stream) {
    if (ABSL_PREDICT_TRUE(running_ != nullptr)) {
      return running_->Before(op, stream);
    }
    return RecordBefore(op, stream);
  }
  absl::Status After(uint32_t op, Stream* stream) {
    if (ABSL_PREDICT_TRUE(running_ != nullptr)) {
      return running_->After(op, stream);
    }
    return RecordAfter(op, stream);
  }
  // `late`: the late-bound buffers of the collective; read during the call.
  absl::Status Submit(uint32_t op, absl::Span<const LateBinding> late = {}) {
    if (ABSL_PREDICT_FALSE(spec_.completions != nullptr)) {
      return SubmitAndTell(op, late);
    }
    return SubmitUntold(op, late);
  }
  absl::Status BufferRelease(BufferId buffer, Stream* stream);
  // Any thread, also beside the calls of a step.
  absl::Status Wait(uint32_t op, int64_t timeout_ns);
  absl::Status Drain();
  void Abort(absl::string_view reason);
  absl::Status status() const;
  RecordingInfo info() const;
  // Null before the first plan.
  std::shared_ptr<const Plan> plan() const;
  const Graph& declared() const { return declared_; }

 private:
  Recording(RecordingSpec spec, uint64_t instance);

  absl::Status Init();
  absl::Status CheckLanes() const;
  absl::Status CheckMayDeclare(uint32_t segment) const;
  absl::Status CheckMayChange(BufferId buffer) const;
  absl::Status CheckAddress(const Buffer& buffer, const void* address) const;
  absl::Status CheckHow(const Op& op, RecordedCollective how) const;
  absl::Status CheckInStep(const char* what, uint32_t op, OpKind kind) const;
  absl::Status SubmitUntold(uint32_t op, absl::Span<const LateBinding> late) {
    if (ABSL_PREDICT_TRUE(running_ != nullptr)) {
      return running_->Submit(op, late);
    }
    return RecordSubmit(op, late);
  }
  absl::Status SubmitAndTell(uint32_t op, absl::Span<const LateBinding> late);
  absl::Status RecordBefore(uint32_t op, Stream* stream);
  absl::Status RecordAfter(uint32_t op, Stream* stream);
  absl::Status RecordSubmit(uint32_t op, absl::Span<const LateBinding> late);
  // Keeps the first failure, tells the other ranks, and returns it.
  absl::Status Fail(const absl::Status& status);
  void FailLocked(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Status MakeFlag();
  absl::Status Connect();
  // After something was taken away or moved. Collective.
  absl::Status BeginAnew();
  absl::Status EndRecordedStep();
  absl::Status EndFrozenStep();
  absl::Status FinishRerecording();
  absl::Status Freeze(FrozenOrder order);
  // From here on `frozen` runs the steps; nobody waits in what did before.
  void Replace(std::unique_ptr<FrozenStep> frozen);
  // All ranks show `steps`; collective.
  absl::StatusOr<ShownSteps> Show(const std::vector<CallOrder>& steps);
  std::string DeclaredHash() const;
  // That `rank` has declared something else.
  std::string DeclaredOtherwise(size_t rank) const;
  RecordedOps Recorded() const;

  // Constant after Create.
  const RecordingSpec spec_;
  const uint64_t instance_;
  const bool enqueues_;         // on streams of a device
  std::vector<Stream*> lanes_;  // by compute lane, as many as declared

  // What was declared; grows between steps.
  Graph declared_;
  std::vector<void*> addresses_;    // by BufferId; null: late-bound
  std::vector<uint32_t> segment_;   // by op
  std::vector<bool> alternative_;   // by op
  std::vector<bool> early_;         // by op
  std::vector<bool> tells_counts_;  // by op
  std::vector<std::string> segments_ = {"step"};

  // The calling thread's.
  bool in_step_ = false;
  bool declared_since_ = false;  // since the last step
  bool begins_anew_ = false;     // in the next step
  bool connected_ = false;
  FrozenStep* running_ = nullptr;  // frozen_ within a step
  std::vector<CallOrder> shown_;   // the latest steps, steps_to_record at most
  CallOrder current_;              // while recording
  std::vector<bool> open_;         // by op, while recording
  uint64_t num_to_ignore_ = 0;     // answers, of before the last meeting
  uint64_t num_requests_ = 0;      // submissions that completions tell of
  RecordingInfo info_;

  Submissions submissions_;
  RecordingMeetings meetings_;
  Failure failure_;
  // Written by the calling thread; guarded for Abort(), status(), Wait().
  mutable Mutex mu_;
  CondVar no_waiters_;
  int num_waiters_ ABSL_GUARDED_BY(mu_) = 0;  // in frozen_
  std::unique_ptr<SerialRunner> runner_;
  // Of all plans: to free memory of a device would wait for what others have
  // launched on it.
  std::unique_ptr<DeviationFlag> flag_;
  std::unique_ptr<FrozenStep> frozen_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_RECORDING_RECORDING_H_
