#include "recording/recording.h"

#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "device/host_device.h"
#include "exec/bound_ranges.h"
#include "graph/json.h"
#include "recording/late_submits.h"
#include "session/backend_model.h"
#include "session/binding.h"
#include "session/group_members.h"

namespace commsched {
namespace {

constexpr int64_t kDefaultTimeoutNs = int64_t{600} * 1000 * 1000 * 1000;

absl::Status CheckSpec(const RecordingSpec& spec) {
  if (spec.steps_to_record == 0 ||
      spec.max_recorded_steps < spec.steps_to_record) {
    return absl::InvalidArgumentError(absl::StrCat(
        "recording: steps_to_record is ", spec.steps_to_record,
        ", not 1 to max_recorded_steps, which is ", spec.max_recorded_steps));
  }
  if (!spec.profile.op_cost_ns.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "recording: the profile measures ", spec.profile.op_cost_ns.size(),
        " ops, but which ops there are is not known yet"));
  }
  return absl::OkStatus();
}

// What is recorded is planned for the backend that it runs on.
RecordingSpec ForItsBackend(RecordingSpec spec) {
  spec.options.backend = ModelOf(*spec.world->backend());
  return spec;
}

}  // namespace

Recording::Recording(RecordingSpec spec, uint64_t instance)
    : spec_(ForItsBackend(std::move(spec))),
      instance_(instance),
      enqueues_(EnqueuesOn(*spec_.world->backend())),
      meetings_(spec_.world, spec_.world_rank, instance,
                spec_.launch_timeout_ns) {}

absl::StatusOr<std::unique_ptr<Recording>> Recording::Create(
    RecordingSpec spec) {
  if (spec.launch_timeout_ns == 0) spec.launch_timeout_ns = kDefaultTimeoutNs;
  const uint64_t instance = spec.take_instance();
  std::unique_ptr<Recording> recording(
      new Recording(std::move(spec), instance));
  if (absl::Status checked = recording->Init(); !checked.ok()) {
    recording->meetings_.GiveUp(checked);
    return checked;
  }
  return recording;
}

absl::Status Recording::Init() {
  RETURN_IF_ERROR(CheckSpec(spec_));
  declared_.BindLateAtSubmit();
  RETURN_IF_ERROR(CheckLanes());
  for (const GroupSpec& group : spec_.groups) {
    RETURN_IF_ERROR(
        declared_.AddGroup(group.axis, static_cast<int>(group.ranks.size()))
            .status());
  }
  return absl::OkStatus();
}

absl::Status Recording::CheckLanes() const {
  const Device& device = *spec_.world->device(spec_.world_rank);
  for (size_t i = 0; i < spec_.lanes.size(); ++i) {
    const Stream& lane = *spec_.lanes[i];
    if (lane.is_caller()) continue;
    if (lane.is_device() != enqueues_) {
      return absl::InvalidArgumentError(absl::StrCat(
          "recording: lane ", i, " is ",
          lane.is_device() ? "a stream of a device" : "a HOST stream",
          ", but backend '", spec_.world->backend()->name, "' works on ",
          device.name()));
    }
    if (!spec_.by_caller || enqueues_) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("recording: lane ", i,
                     " is a stream, but progress is the caller's, for whom it "
                     "would wait"));
  }
  return absl::OkStatus();
}

void Recording::Decline(const RecordingSpec& spec, const absl::Status& why) {
  RecordingMeetings(spec.world, spec.world_rank, spec.take_instance(),
                    spec.launch_timeout_ns)
      .GiveUp(why);
}

// Others may be waiting for what this rank would have submitted or shown.
Recording::~Recording() {
  const absl::Status gone = absl::AbortedError(
      absl::StrCat("the recording was destroyed ",
                   in_step_ ? "inside step " : "before step ", info_.steps));
  if (runner_ != nullptr && frozen_ == nullptr && in_step_) {
    runner_->Abort(gone, /*others_know=*/false);
  }
  meetings_.GiveUp(gone);
}

// ---- Steps ------------------------------------------------------------------

absl::Status Recording::Fail(const absl::Status& status) {
  {
    MutexLock lock(&mu_);
    FailLocked(status);
  }
  return failure_.status();
}

void Recording::FailLocked(const absl::Status& status) {
  if (!failure_.Set(status)) return;
  if (runner_ != nullptr && frozen_ == nullptr) {
    runner_->Abort(status, /*others_know=*/meetings_.failed());
  }
  meetings_.GiveUp(status);
}

absl::Status Recording::StepBegin() {
  RETURN_IF_ERROR(status());
  if (in_step_) {
    return absl::FailedPreconditionError(
        absl::StrCat("step_begin: step ", info_.steps, " has not ended"));
  }
  if (!connected_) {
    absl::Status connected = Connect();
    if (!connected.ok()) return Fail(connected);
    begins_anew_ = false;
  }
  if (ABSL_PREDICT_FALSE(begins_anew_)) {
    absl::Status begun = BeginAnew();
    if (!begun.ok()) return Fail(begun);
    begins_anew_ = false;
  }
  if (frozen_ != nullptr) {
    if (ABSL_PREDICT_FALSE(declared_since_)) {
      frozen_->SetRecorded(Recorded());
      declared_since_ = false;
    }
    RETURN_IF_ERROR(
        frozen_->StepBegin(info_.phase == RecordingPhase::kRerecording));
    running_ = frozen_.get();
  } else {
    current_.clear();
    open_.assign(declared_.ops().size(), false);
  }
  submissions_.BeginStep(info_.steps);
  in_step_ = true;
  return absl::OkStatus();
}

absl::Status Recording::MakeFlag() {
  ASSIGN_OR_RETURN(
      flag_,
      DeviationFlag::Create(spec_.world->device(spec_.world_rank), enqueues_));
  return absl::OkStatus();
}

// All ranks come with the same settings, and their communicators stand.
absl::Status Recording::Connect() {
  SerialRunnerSpec spec;
  spec.world = spec_.world;
  spec.world_rank = spec_.world_rank;
  spec.instance = instance_;
  spec.groups = spec_.groups;
  spec.ops = &declared_;
  spec.addresses = &addresses_;
  spec.deterministic = spec_.options.deterministic;
  spec.launch_timeout_ns = spec_.launch_timeout_ns;
  auto runner = std::make_unique<SerialRunner>(std::move(spec));
  absl::Status ready =
      BoundRanges(declared_, addresses_).CheckApart("recording");
  if (ready.ok()) ready = MakeFlag();
  if (ready.ok()) ready = runner->Connect();
  {
    MutexLock lock(&mu_);
    runner_ = std::move(runner);
  }
  // An abort that came before had no runner to tell.
  if (ready.ok()) ready = failure_.status();
  const std::string mine =
      ready.ok() ? absl::StrCat("records ", spec_.steps_to_record, " to ",
                                spec_.max_recorded_steps,
                                spec_.strict ? " steps strictly" : " steps")
                 : absl::StrCat("cannot connect: ", ready.message());
  std::vector<std::string> axes;
  std::vector<Claim> claims = {Claim::Of("begins", mine)};
  for (const GroupSpec& group : spec_.groups) {
    axes.push_back(group.axis);
    claims.push_back(Claim::Of(
        absl::StrCat(group.axis, "\n", absl::StrJoin(group.ranks, " ")), "",
        static_cast<uint32_t>(group.ranks.size())));
  }
  ASSIGN_OR_RETURN(const bool matches, meetings_.Match(claims));
  if (matches && ready.ok()) {
    connected_ = true;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   meetings_.Gather(absl::StrCat(
                       mine, "\n", ShowGroups(axes, spec_.groups))));
  RETURN_IF_ERROR(ready);
  std::vector<absl::string_view> groups;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const std::pair<absl::string_view, absl::string_view> shown =
        absl::StrSplit(all[rank], absl::MaxSplits('\n', 1));
    groups.push_back(shown.second);
    if (shown.first == mine) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("recording: rank ", rank, " ", shown.first, ", rank ",
                     spec_.world_rank, " ", mine));
  }
  RETURN_IF_ERROR(CheckGroupsAgree("recording", groups));
  connected_ = true;
  return absl::OkStatus();
}

// What other ranks wait for here is done: nobody gives up a plan that another
// rank still runs.
absl::Status Recording::BeginAnew() {
  if (frozen_ != nullptr) RETURN_IF_ERROR(frozen_->session().Drain());
  const absl::Status ready =
      BoundRanges(declared_, addresses_).CheckApart("recording");
  const std::string mine =
      ready.ok() ? DeclaredHash() : absl::StrCat("!", ready.message());
  ASSIGN_OR_RETURN(const std::vector<std::string> all, meetings_.Gather(mine));
  RETURN_IF_ERROR(ready);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == mine) continue;
    return absl::FailedPreconditionError(
        all[rank][0] == '!'
            ? absl::StrCat("rank ", rank, ": ", all[rank].substr(1))
            : DeclaredOtherwise(rank));
  }
  if (frozen_ != nullptr) Replace(nullptr);
  runner_->Forget();
  shown_.clear();
  num_to_ignore_ = 0;
  declared_since_ = false;
  info_.phase = RecordingPhase::kRecording;
  info_.steps_recorded = 0;
  return failure_.status();
}

std::string Recording::DeclaredOtherwise(size_t rank) const {
  return absl::StrCat("recording: rank ", rank, " and rank ", spec_.world_rank,
                      " have declared different groups, buffers or ops");
}

absl::Status Recording::CheckInStep(const char* what, uint32_t op,
                                    OpKind kind) const {
  RETURN_IF_ERROR(status());
  if (op >= declared_.ops().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": op ", op, " is not among the ",
                     declared_.ops().size(), " that were declared"));
  }
  const Op& declared = declared_.op(OpId(op));
  if (declared_.IsClear(OpId(op))) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": op ", op, " has been removed"));
  }
  if (declared.kind != kind) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, ": op '", declared.name, "' is ",
        kind == OpKind::kCompute ? "a collective" : "a compute op"));
  }
  if (in_step_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      what, ": op '", declared.name, "' was called outside a step"));
}

absl::Status Recording::RecordBefore(uint32_t op, Stream* stream) {
  RETURN_IF_ERROR(CheckInStep("before", op, OpKind::kCompute));
  const Op& declared = declared_.op(OpId(op));
  if (stream != lanes_[declared.compute.lane]) {
    return absl::InvalidArgumentError(
        absl::StrCat("before: op '", declared.name,
                     "' was given a stream other than that of its lane ",
                     declared.compute.lane));
  }
  if (open_[op]) {
    return absl::FailedPreconditionError(
        absl::StrCat("before: op '", declared.name,
                     "' was begun but not ended: its after is missing"));
  }
  open_[op] = true;
  current_.push_back(op);
  return absl::OkStatus();
}

// What was enqueued is done before anything else begins.
absl::Status Recording::RecordAfter(uint32_t op, Stream* stream) {
  RETURN_IF_ERROR(CheckInStep("after", op, OpKind::kCompute));
  if (!open_[op]) {
    return absl::FailedPreconditionError(
        absl::StrCat("after: op '", declared_.op(OpId(op)).name,
                     "' was not begun: its before is missing"));
  }
  stream->Synchronize();
  open_[op] = false;
  return absl::OkStatus();
}

absl::Status Recording::RecordSubmit(uint32_t op,
                                     absl::Span<const LateBinding> late) {
  RETURN_IF_ERROR(CheckInStep("submit", op, OpKind::kCollective));
  if (ABSL_PREDICT_FALSE(
          !late.empty() ||
          LateBoundOf(declared_, declared_.op(OpId(op))).valid())) {
    RETURN_IF_ERROR(
        CheckSubmittedWith(declared_, OpId(op), tells_counts_[op], late));
    RETURN_IF_ERROR(runner_->CheckBound(OpId(op), late));
  }
  absl::Status ran = runner_->Run(OpId(op), info_.steps, late);
  if (!ran.ok()) return Fail(ran);
  current_.push_back(op);
  submissions_.Note(op, Submissions::kComplete);
  return absl::OkStatus();
}

// The place comes first: without one nothing is submitted.
absl::Status Recording::SubmitAndTell(uint32_t op,
                                      absl::Span<const LateBinding> late) {
  RETURN_IF_ERROR(spec_.completions->Reserve());
  if (absl::Status refused = SubmitUntold(op, late); !refused.ok()) {
    spec_.completions->GiveBack();
    return refused;
  }
  const Completion completion = {
      .key = spec_.key, .request = ++num_requests_, .user = op};
  if (running_ != nullptr) {
    running_->TellOf(op, completion);
  } else {
    spec_.completions->Add(completion);
  }
  return absl::OkStatus();
}

// What is recorded is complete when it has been submitted.
absl::Status Recording::BufferRelease(BufferId buffer, Stream* stream) {
  RETURN_IF_ERROR(status());
  if (buffer.value() >= declared_.buffers().size()) {
    return absl::NotFoundError(absl::StrCat(
        "buffer_release: buffer ", buffer.value(), " is not among the ",
        declared_.buffers().size(), " that were declared"));
  }
  if (frozen_ == nullptr) return absl::OkStatus();
  return frozen_->BufferRelease(buffer, stream, in_step_);
}

absl::Status Recording::Wait(uint32_t op, int64_t timeout_ns) {
  if (timeout_ns < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("wait: timeout_ns is ", timeout_ns, ", below 0"));
  }
  RETURN_IF_ERROR(status());
  ASSIGN_OR_RETURN(const Submissions::Latest latest, submissions_.Find(op));
  FrozenStep* frozen = nullptr;
  {
    MutexLock lock(&mu_);
    // What ran alone is complete, and so is what an earlier plan launched.
    if (latest.call == Submissions::kComplete || frozen_ == nullptr ||
        latest.step < frozen_->first_step()) {
      return absl::OkStatus();
    }
    frozen = frozen_.get();
    ++num_waiters_;
  }
  const absl::Status waited =
      frozen->Await(latest.call, latest.step,
                    DeadlineAfter(SystemClock::Get().NowNs(), timeout_ns));
  {
    MutexLock lock(&mu_);
    if (--num_waiters_ == 0) no_waiters_.SignalAll();
  }
  if (waited.ok()) return waited;
  RETURN_IF_ERROR(status());  // A deadline of the session is one, too.
  return absl::DeadlineExceededError(absl::StrCat(
      "wait: step ", latest.step, ", after ", timeout_ns / 1'000'000,
      " ms on rank ", spec_.world_rank, ": ", waited.message()));
}

absl::Status Recording::StepEnd() {
  RETURN_IF_ERROR(status());
  if (!in_step_) {
    return absl::FailedPreconditionError("step_end: no step has begun");
  }
  if (running_ != nullptr) {
    RETURN_IF_ERROR(running_->StepEnd());
    running_ = nullptr;
    in_step_ = false;
    ++info_.steps;
    return EndFrozenStep();
  }
  for (uint32_t op = 0; op < open_.size(); ++op) {
    if (!open_[op]) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("step_end: op '", declared_.op(OpId(op)).name,
                     "' was begun but not ended: its after is missing"));
  }
  in_step_ = false;
  ++info_.steps;
  ++info_.steps_recorded;
  absl::Status ended = EndRecordedStep();
  return ended.ok() ? ended : Fail(ended);
}

absl::Status Recording::EndRecordedStep() {
  if (shown_.size() == spec_.steps_to_record) shown_.erase(shown_.begin());
  shown_.push_back(current_);
  if (shown_.size() < spec_.steps_to_record) return absl::OkStatus();
  ASSIGN_OR_RETURN(const ShownSteps shown, Show(shown_));
  ASSIGN_OR_RETURN(
      std::optional<FrozenOrder> order,
      OrderToFreeze(Recorded(), shown,
                    info_.steps_recorded >= spec_.max_recorded_steps));
  if (!order) return absl::OkStatus();
  return Freeze(*std::move(order));
}

absl::Status Recording::EndFrozenStep() {
  if (frozen_->deviated()) ++info_.steps_deviating;
  info_.collectives_left_out += frozen_->num_left_out();
  if (frozen_->agreed_deviation() != 0) {
    info_.deviating_step = info_.steps - 1 - frozen_->agreed_distance();
    info_.deviating_rank = frozen_->agreed_rank();
  }
  if (info_.phase == RecordingPhase::kRerecording) {
    shown_.push_back(frozen_->noted());
    if (shown_.size() < spec_.steps_to_record) return absl::OkStatus();
    absl::Status finished = FinishRerecording();
    return finished.ok() ? finished : Fail(finished);
  }
  const uint32_t agreed = frozen_->agreed_deviation();
  if (ABSL_PREDICT_FALSE(num_to_ignore_ != 0)) {
    --num_to_ignore_;
    return absl::OkStatus();
  }
  if (ABSL_PREDICT_TRUE(agreed == 0)) return absl::OkStatus();
  info_.phase = RecordingPhase::kRerecording;
  info_.segment = agreed - 1;
  shown_.clear();
  return absl::OkStatus();
}

absl::Status Recording::FinishRerecording() {
  ASSIGN_OR_RETURN(const ShownSteps shown, Show(shown_));
  FrozenOrder order =
      Rerecorded(Recorded(), frozen_->order(), shown, info_.segment);
  info_.phase = RecordingPhase::kFrozen;
  ++info_.rerecordings;
  const std::vector<FrozenCall>& now = frozen_->order().calls;
  const bool same_calls =
      std::equal(now.begin(), now.end(), order.calls.begin(), order.calls.end(),
                 [](const FrozenCall& a, const FrozenCall& b) {
                   return a.op == b.op && a.occurrence == b.occurrence;
                 });
  if (!same_calls) {
    RETURN_IF_ERROR(frozen_->session().Drain());
    return Freeze(std::move(order));
  }
  frozen_->SetOrder(std::move(order));
  // Answers that come are about steps that have ended, for so long.
  num_to_ignore_ = frozen_->agreed_distance();
  return absl::OkStatus();
}

absl::Status Recording::Freeze(FrozenOrder order) {
  FrozenStepSpec spec;
  spec.world = spec_.world;
  spec.world_rank = spec_.world_rank;
  spec.instance = spec_.take_instance();
  spec.groups = spec_.groups;
  spec.recorded = Recorded();
  spec.order = std::move(order);
  spec.early = early_;
  spec.tells_counts = tells_counts_;
  spec.addresses = addresses_;
  spec.options = spec_.options;
  spec.profile = spec_.profile;
  spec.lanes = spec_.lanes;
  spec.recorder = spec_.recorder;
  spec.on_failure = [this](const absl::Status& failure) {
    meetings_.GiveUp(failure);
  };
  spec.launch_timeout_ns = spec_.launch_timeout_ns;
  spec.first_step = info_.steps;
  spec.strict = spec_.strict;
  spec.by_caller = spec_.by_caller;
  spec.completions = spec_.completions;
  spec.submissions = &submissions_;
  spec.flag = flag_.get();
  ASSIGN_OR_RETURN(std::unique_ptr<FrozenStep> frozen,
                   FrozenStep::Create(std::move(spec)));
  info_.phase = RecordingPhase::kFrozen;
  ++info_.plans;
  Replace(std::move(frozen));
  // An abort that came before had no session to tell.
  if (failure_.failed()) frozen_->session().Abort(failure_.status().message());
  return failure_.status();
}

// What was there before goes, the lock released. All of it is complete. The
// serial runner stays, for steps that are recorded anew.
void Recording::Replace(std::unique_ptr<FrozenStep> frozen) {
  runner_->Forget();
  MutexLock lock(&mu_);
  frozen_.swap(frozen);
  while (num_waiters_ != 0) no_waiters_.Wait(&mu_);
  // An abort that came since it was drained.
  if (frozen != nullptr) {
    const absl::Status ended = frozen->session().status();
    if (!ended.ok()) FailLocked(ended);
  }
}

std::string Recording::DeclaredHash() const {
  const std::string json = GraphToJson(declared_);
  return absl::StrCat(
      absl::Hex(XXH3_64bits(json.data(), json.size()), absl::kZeroPad16));
}

absl::StatusOr<ShownSteps> Recording::Show(
    const std::vector<CallOrder>& steps) {
  const std::string hash = DeclaredHash();
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   meetings_.Gather(absl::StrCat(hash, EncodeSteps(steps))));
  ShownSteps shown;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (!absl::StartsWith(all[rank], hash)) {
      return absl::FailedPreconditionError(DeclaredOtherwise(rank));
    }
    ASSIGN_OR_RETURN(
        std::vector<CallOrder> orders,
        DecodeSteps(absl::string_view(all[rank]).substr(hash.size())));
    shown.push_back(std::move(orders));
  }
  return shown;
}

absl::Status Recording::Drain() {
  RETURN_IF_ERROR(status());
  if (in_step_) {
    return absl::FailedPreconditionError(
        absl::StrCat("drain: step ", info_.steps, " has not ended"));
  }
  if (frozen_ != nullptr) return frozen_->session().Drain();
  return absl::OkStatus();  // What is recorded runs at once.
}

void Recording::Abort(absl::string_view reason) {
  MutexLock lock(&mu_);
  if (frozen_ != nullptr) {
    frozen_->session().Abort(reason);
    return;
  }
  FailLocked(absl::AbortedError(reason));
}

absl::Status Recording::status() const {
  if (failure_.failed()) return failure_.status();
  MutexLock lock(&mu_);
  return frozen_ == nullptr ? absl::OkStatus() : frozen_->session().status();
}

RecordingInfo Recording::info() const { return info_; }

std::shared_ptr<const Plan> Recording::plan() const {
  return frozen_ == nullptr ? nullptr : frozen_->plan();
}

}  // namespace commsched
