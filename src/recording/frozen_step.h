// A recorded step, frozen into a plan, that the program goes on calling.
#ifndef COMMSCHED_SRC_RECORDING_FROZEN_STEP_H_
#define COMMSCHED_SRC_RECORDING_FROZEN_STEP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "recording/deviation_flag.h"
#include "recording/finished_submissions.h"
#include "recording/frozen_plan.h"
#include "recording/submissions.h"
#include "session/session.h"

namespace commsched {

struct FrozenStepSpec {
  std::shared_ptr<World> world;
  int world_rank = 0;
  uint64_t instance = 0;
  std::vector<GroupSpec> groups;  // the declared ones
  RecordedOps recorded;           // what it points to outlives the step
  FrozenOrder order;
  std::vector<bool> early;         // by declared op
  std::vector<bool> tells_counts;  // by declared op, as RecordedCollective
  std::vector<void*> addresses;    // by declared buffer; null: late-bound
  PlanOptions options;
  CostProfile profile;
  std::vector<Stream*> lanes;
  Recorder* recorder = nullptr;
  std::function<void(const absl::Status&)> on_failure;  // of the session
  int64_t launch_timeout_ns = 0;
  uint64_t first_step = 0;  // of the recording that the frozen plan runs
  bool strict = false;
  bool by_caller = false;                    // SessionSpec::by_caller
  std::shared_ptr<Completions> completions;  // null: nobody is told
  Submissions* submissions = nullptr;        // outlive the step, ...
  DeviationFlag* flag = nullptr;             // ... used by it alone
};

// Takes the calls of an eager program, in whatever order they come, to a
// session that runs the frozen plan. As long as they are the frozen ones, that
// is a comparison each.
//
// Otherwise the step deviates, from the first call that is another:
// - A planned op that is not called is skipped: its `before` and `after` are
//   done here, at the end of the step or when a later op would wait for it.
// - A collective that is not submitted goes without this rank's data, at the
//   end of the step or when an op needs a launch behind it.
// - An op that is not planned, or not where it is called, runs alone:
//   everything in flight is waited for, and the op is, too.
// - A collective that comes too late or is not planned is an error, and so is a
//   call for which one that tells its counts would have to go without them.
// What the program submitted goes before later ops that conflict with it. Of a
// step that deviates in a way that is news, the log says what went without this
// rank's data.
//
// If the recording is strict, a call that would be news is refused, naming it
// and the one that was expected, and changes nothing: the program can go on
// with that one. So is a call for which a collective that is not optional would
// have to go without this rank's data. An optional one goes without as soon as
// an op that needs its launch is called: the order is enforced, so that it can
// no longer come.
//
// At the end of each step all ranks exchange whether a segment deviated in a
// way that recording it again would cure; they see the answer at the end of a
// later one (DeviationFlag).
//
// One thread; Await(), and the session's Abort() and status(), any.
class FrozenStep {
 public:
  // Collective.
  static absl::StatusOr<std::unique_ptr<FrozenStep>> Create(
      FrozenStepSpec spec);
  FrozenStep(const FrozenStep&) = delete;
  FrozenStep& operator=(const FrozenStep&) = delete;

  // `note`: keep the order of the calls, for noted().
  absl::Status StepBegin(bool note);
  absl::Status StepEnd();

  absl::Status Before(uint32_t op, Stream* stream);
  absl::Status After(uint32_t op, Stream* stream);
  // `late`: what the collective binds.
  absl::Status Submit(uint32_t op, absl::Span<const LateBinding> late);
  // `op`, which Submit() has just taken, is to be told of by `completion`, for
  // which there is a place.
  void TellOf(uint32_t op, const Completion& completion) {
    finished_->Submitted(spec_.submissions->LatestCall(op), steps_, completion);
  }
  // As Session::BufferRelease(). kUnavailable, naming it, if a collective that
  // uses `buffer` has been submitted and is not due. `in_step`: between
  // StepBegin() and StepEnd().
  absl::Status BufferRelease(BufferId buffer, Stream* stream, bool in_step);

  // Blocks until `call` of step `step` is complete, a collective that was
  // submitted; kDeadlineExceeded, naming what is not, at `deadline_ns`.
  absl::Status Await(uint32_t call, uint64_t step, int64_t deadline_ns) {
    return session_->AwaitCollective(OpId(call), step - spec_.first_step + 1,
                                     deadline_ns);
  }
  uint64_t first_step() const { return spec_.first_step; }

  // After StepEnd(): 0, or 1 + a segment that some rank wants recorded again,
  // as of agreed_distance() steps before. Equal on all ranks.
  uint32_t agreed_deviation() const { return agreed_deviation_; }
  // If that is not 0: the highest rank that wants it.
  int agreed_rank() const { return agreed_rank_; }
  uint64_t agreed_distance() const { return spec_.flag->distance(); }
  // Collectives that went without this rank's data in the last step.
  uint32_t num_left_out() const { return num_left_out_; }
  // Whether the calls of the last step were not the frozen ones.
  bool deviated() const { return deviated_; }
  const CallOrder& noted() const { return noted_; }

  const FrozenOrder& order() const { return spec_.order; }
  // Takes over what is optional and loose; the calls are the same. Between
  // steps.
  void SetOrder(FrozenOrder order);
  // Takes over what has been declared since. Between steps.
  void SetRecorded(RecordedOps recorded);
  Session& session() { return *session_; }
  std::shared_ptr<const Plan> plan() const { return frozen_.plan; }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr uint32_t kAlone = kNone - 1;  // open, not a planned call

  // kAhead: the op has run alone, since its planned call had to wait for what
  // the program may yet submit; the call is still to be skipped.
  enum class CallState : uint8_t { kWaiting, kAhead, kOpen, kDone, kSkipped };

  explicit FrozenStep(FrozenStepSpec spec) : spec_(std::move(spec)) {}
  absl::Status Init();
  absl::Status MakePlan();
  absl::Status AddFlagLane();
  SessionSpec MakeSessionSpec();

  const Op& DeclaredOp(uint32_t op) const {
    return spec_.recorded.ops->op(OpId(op));
  }
  bool IsCollective(uint32_t call) const {
    return DeclaredOp(ops_[call]).kind == OpKind::kCollective;
  }
  absl::Status CheckDeclared(const char* what, uint32_t op, OpKind kind) const;
  // Makes the calls that the program left out of the step.
  absl::Status EndCalls();
  // From here on this step's calls are looked up.
  void Deviate();
  // The planned call that the next one of `op` is, or kNone.
  uint32_t PlannedCall(uint32_t op) const;
  void Flag(uint32_t op);
  // As the recording counts.
  uint64_t step() const { return spec_.first_step + steps_; }
  // "collective 'ar'", "op 'bwd'".
  std::string Quoted(uint32_t op) const;
  bool IsLoose(uint32_t op) const {
    return spec_.order.loose[spec_.recorded.segment[op]];
  }
  // Whether the program has yet to make a call that it may not leave out.
  bool IsMissing(uint32_t call) const {
    return times_[ops_[call]] <= spec_.order.calls[call].occurrence &&
           !spec_.order.calls[call].optional;
  }
  // Of a strict recording: whether `op`, of which the next planned call is
  // `call`, may be called here; whether the step may end.
  absl::Status CheckStrictCall(const char* what, uint32_t op,
                               uint32_t call) const;
  absl::Status CheckStrictEnd() const;
  // Whether the launches below `due` may be issued, so that `submitted`, with
  // which `op` conflicts, is due.
  absl::Status CheckStrictDrop(const char* what, uint32_t op,
                               uint32_t submitted, uint32_t due) const;
  // Whether any of `calls` cannot go without this rank's data, and so not for
  // the sake of `what`.
  absl::Status CheckMayDrop(const char* what,
                            const std::vector<uint32_t>& calls) const;
  // Notes that collective `call` was left out.
  void LeaveOut(uint32_t call);
  void LogDeviation() const;
  void NoteCall(uint32_t op, uint32_t call);

  absl::Status SlowBefore(uint32_t op, Stream* stream);
  absl::Status SlowAfter(uint32_t op, Stream* stream);
  absl::Status SlowSubmit(uint32_t op, absl::Span<const LateBinding> late);
  // Whether `late` may come with planned call `call`.
  absl::Status CheckBound(uint32_t call,
                          absl::Span<const LateBinding> late) const;
  // The end of each Submit(): nothing is wrong with it.
  absl::Status Go(uint32_t call, absl::Span<const LateBinding> late) {
    spec_.submissions->Note(ops_[call], call);
    if (ABSL_PREDICT_FALSE(late_[call])) {
      return session_->SubmitBound(OpId(call), late);
    }
    return gated_[call] ? session_->Submit(OpId(call), /*drop=*/false)
                        : session_->status();
  }
  // `planned`: the call that it would be, or kNone. `is_news`: whether it is
  // not where it was recorded, if its segment is not loose.
  absl::Status BeginAlone(uint32_t op, uint32_t planned, bool is_news);
  // Issues what was submitted, is not due and conflicts with `op`. Collective
  // `planned` (kNone: none) goes behind the calls before it in any case.
  absl::Status GiveWay(const char* what, uint32_t op, uint32_t planned);
  // What has to be skipped before the launches below `*due` are due and op
  // `target` (kNone: none) may begin, by call; raises `*due` by what those
  // need.
  std::vector<bool> ToSkip(uint32_t target, uint32_t* due) const;
  // The collectives whose submission launches below `due` wait for, as calls;
  // once for each launch.
  std::vector<uint32_t> AwaitedBelow(uint32_t due) const;
  absl::Status SkipAll(const std::vector<bool>& calls, uint32_t due);
  bool IsToCome(uint32_t call) const {
    return state_[call] == CallState::kWaiting ||
           state_[call] == CallState::kAhead;
  }
  void DropUnsubmitted(uint32_t due);
  absl::Status Skip(uint32_t call);
  absl::Status FinishCalls();
  bool Conflicts(uint32_t op, uint32_t call) const;

  // Constant after Create, but for the order's flags.
  FrozenStepSpec spec_;
  FrozenPlan frozen_;
  uint32_t num_calls_ = 0;
  std::vector<uint32_t> ops_;                       // by call: the declared op
  std::vector<uint8_t> gated_;                      // by call
  std::vector<uint8_t> late_;                       // by call: binds something
  std::vector<std::vector<uint32_t>> calls_of_op_;  // by declared op
  std::vector<Stream*> lanes_;
  uint32_t flag_lane_ = 0;
  std::unique_ptr<FinishedSubmissions> finished_;  // null: nobody is told
  std::unique_ptr<Session> session_;  // goes before its memory and listener

  uint64_t steps_ = 0;  // that have ended

  // This step.
  uint32_t next_ = 0;           // call; num_calls_ once the step deviates
  std::vector<uint32_t> open_;  // by declared op: call, kAlone or kNone
  uint32_t num_open_ = 0;
  bool slow_ = false;
  bool note_ = false;
  bool deviated_ = false;
  uint32_t deviation_ = 0;  // 1 + segment
  uint32_t agreed_deviation_ = 0;
  int agreed_rank_ = 0;
  uint32_t num_left_out_ = 0;
  // What was news in this step, as declared ops, for the log.
  std::vector<uint32_t> without_data_, not_called_, unexpected_;
  // Only while slow_.
  std::vector<CallState> state_;  // by call
  std::vector<uint32_t> times_;   // by declared op: calls so far
  uint32_t highest_ = 0;          // 1 + the furthest call so far
  CallOrder noted_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_RECORDING_FROZEN_STEP_H_
