#include "recording/frozen_step.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "comm/hosts.h"
#include "device/host_device.h"
#include "plan/host_links.h"
#include "recording/late_submits.h"
#include "session/agreement.h"

namespace commsched {

absl::StatusOr<std::unique_ptr<FrozenStep>> FrozenStep::Create(
    FrozenStepSpec spec) {
  std::unique_ptr<FrozenStep> step(new FrozenStep(std::move(spec)));
  RETURN_IF_ERROR(step->Init());
  return step;
}

absl::Status FrozenStep::Init() {
  num_calls_ = static_cast<uint32_t>(spec_.order.calls.size());
  calls_of_op_.resize(spec_.recorded.ops->ops().size());
  open_.assign(calls_of_op_.size(), kNone);
  for (uint32_t call = 0; call < num_calls_; ++call) {
    const uint32_t op = spec_.order.calls[call].op;
    const bool collective = DeclaredOp(op).kind == OpKind::kCollective;
    ops_.push_back(op);
    gated_.push_back(collective && !spec_.early[op]);
    late_.push_back(collective &&
                    LateBoundOf(*spec_.recorded.ops, DeclaredOp(op)).valid());
    calls_of_op_[op].push_back(call);
  }
  // The number of the session is one that the other ranks wait for.
  if (absl::Status planned = MakePlan(); !planned.ok()) {
    SessionSpec mine;
    mine.world = spec_.world;
    mine.world_rank = spec_.world_rank;
    mine.instance = spec_.instance;
    DeclineToAgree(mine, planned);
    return planned;
  }
  if (spec_.completions != nullptr) {
    finished_ = std::make_unique<FinishedSubmissions>(
        spec_.completions, *frozen_.plan, num_calls_);
  }
  ASSIGN_OR_RETURN(session_, Session::Create(MakeSessionSpec()));
  return absl::OkStatus();
}

absl::Status FrozenStep::MakePlan() {
  spec_.flag->Reset();
  RETURN_IF_ERROR(AddFlagLane());
  FrozenPlanSpec plan;
  plan.recorded = spec_.recorded;
  plan.order = &spec_.order;
  plan.early = &spec_.early;
  plan.world_size = spec_.world->spec().size;
  plan.flag_lane = flag_lane_;
  plan.options = spec_.options;
  plan.profile = spec_.profile;
  // Only what a codec could take is planned by hosts.
  if (!plan.options.codec.name.empty() && plan.options.hosts.num_ranks == 0) {
    ASSIGN_OR_RETURN(const std::vector<int32_t> hosts,
                     HostsOf(spec_.world.get()));
    plan.options.hosts = HostLinksOf(hosts);
  }
  ASSIGN_OR_RETURN(frozen_, PlanFrozen(plan));
  return absl::OkStatus();
}

// That of the calling thread, if that is what the flag is exchanged on and
// there is one.
absl::Status FrozenStep::AddFlagLane() {
  lanes_ = spec_.lanes;
  for (const Op& op : spec_.recorded.ops->ops()) {
    if (op.kind != OpKind::kCompute || op.compute.lane < lanes_.size()) {
      continue;
    }
    lanes_.resize(op.compute.lane + 1, CallerStream());
  }
  const auto found =
      std::find(lanes_.begin(), lanes_.end(), spec_.flag->stream());
  flag_lane_ = static_cast<uint32_t>(found - lanes_.begin());
  if (found != lanes_.end()) return absl::OkStatus();
  if (lanes_.size() == Graph::kMaxLanes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "recording: all ", lanes_.size(),
        " lanes are streams; one must be left for what ranks agree on"));
  }
  lanes_.push_back(spec_.flag->stream());
  return absl::OkStatus();
}

SessionSpec FrozenStep::MakeSessionSpec() {
  SessionSpec session;
  session.world = spec_.world;
  session.world_rank = spec_.world_rank;
  session.instance = spec_.instance;
  session.plan = frozen_.plan;
  session.groups = spec_.groups;
  GroupSpec world;
  world.axis = frozen_.plan->graph->groups().back().name;
  for (int rank = 0; rank < spec_.world->spec().size; ++rank) {
    world.ranks.push_back(rank);
  }
  world.rank = spec_.world_rank;
  session.groups.push_back(world);
  for (uint32_t i = 0; i < spec_.addresses.size(); ++i) {
    if (spec_.addresses[i] == nullptr) continue;
    session.bindings.push_back(
        {BufferId(i), spec_.addresses[i],
         spec_.recorded.ops->buffer(BufferId(i)).bytes()});
  }
  session.bindings.push_back(
      {frozen_.flag_in, spec_.flag->in(), DeviationFlag::kBytes});
  session.bindings.push_back(
      {frozen_.flag_out, spec_.flag->out(), DeviationFlag::kBytes});
  session.lanes = lanes_;
  session.submitted = frozen_.gated;
  session.recorder = spec_.recorder;
  session.on_failure = [this](const absl::Status& failure) {
    if (finished_ != nullptr) finished_->Fail(failure.code());
    spec_.on_failure(failure);
  };
  session.listener = finished_.get();
  session.launch_timeout_ns = spec_.launch_timeout_ns;
  session.first_step = spec_.first_step;
  session.by_caller = spec_.by_caller;
  return session;
}

void FrozenStep::SetOrder(FrozenOrder order) { spec_.order = std::move(order); }

void FrozenStep::SetRecorded(RecordedOps recorded) {
  spec_.recorded = std::move(recorded);
  spec_.order.loose.resize(spec_.recorded.num_segments);
  calls_of_op_.resize(spec_.recorded.ops->ops().size());
  open_.resize(calls_of_op_.size(), kNone);
}

absl::Status FrozenStep::StepBegin(bool note) {
  RETURN_IF_ERROR(session_->StepBegin());
  next_ = 0;
  slow_ = false;
  deviated_ = false;
  deviation_ = 0;
  num_left_out_ = 0;
  without_data_.clear();
  not_called_.clear();
  unexpected_.clear();
  note_ = note;
  noted_.clear();
  if (note) Deviate();
  return absl::OkStatus();
}

absl::Status FrozenStep::StepEnd() {
  RETURN_IF_ERROR(session_->status());
  RETURN_IF_ERROR(EndCalls());
  // The calling thread waits until every rank has ended the step before.
  RETURN_IF_ERROR(session_->Before(frozen_.deviation, spec_.flag->stream()));
  // The highest segment wins, then the highest rank.
  const int world_size = spec_.world->spec().size;
  const int32_t mine =
      deviation_ == 0
          ? 0
          : static_cast<int32_t>(deviation_) * world_size + spec_.world_rank;
  const int32_t told = spec_.flag->Exchange(steps_, mine);
  agreed_deviation_ = static_cast<uint32_t>(told / world_size);
  agreed_rank_ = told % world_size;
  if (ABSL_PREDICT_FALSE(deviation_ != 0)) LogDeviation();
  RETURN_IF_ERROR(session_->After(frozen_.deviation, spec_.flag->stream()));
  RETURN_IF_ERROR(session_->StepEnd());
  ++steps_;
  return absl::OkStatus();
}

absl::Status FrozenStep::EndCalls() {
  if (num_open_ != 0) {
    for (uint32_t op = 0; op < open_.size(); ++op) {
      if (open_[op] == kNone) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "step_end: op '", DeclaredOp(op).name,
          "' was begun but not ended: its after is missing in step ", step()));
    }
  }
  if (next_ == num_calls_ && !slow_) return absl::OkStatus();
  Deviate();
  return FinishCalls();
}

absl::Status FrozenStep::Before(uint32_t op, Stream* stream) {
  if (next_ == num_calls_ || ops_[next_] != op || IsCollective(next_)) {
    return SlowBefore(op, stream);
  }
  RETURN_IF_ERROR(session_->Before(OpId(next_), stream));
  open_[op] = next_++;
  ++num_open_;
  return absl::OkStatus();
}

absl::Status FrozenStep::After(uint32_t op, Stream* stream) {
  if (slow_ || op >= open_.size() || open_[op] >= num_calls_) {
    return SlowAfter(op, stream);
  }
  RETURN_IF_ERROR(session_->After(OpId(open_[op]), stream));
  open_[op] = kNone;
  --num_open_;
  return absl::OkStatus();
}

absl::Status FrozenStep::Submit(uint32_t op,
                                absl::Span<const LateBinding> late) {
  if (next_ == num_calls_ || ops_[next_] != op || !IsCollective(next_)) {
    return SlowSubmit(op, late);
  }
  if (ABSL_PREDICT_FALSE(late_[next_] || !late.empty())) {
    RETURN_IF_ERROR(CheckBound(next_, late));
  }
  return Go(next_++, late);
}

absl::Status FrozenStep::CheckBound(uint32_t call,
                                    absl::Span<const LateBinding> late) const {
  RETURN_IF_ERROR(session_->status());
  const uint32_t op = ops_[call];
  RETURN_IF_ERROR(CheckSubmittedWith(*spec_.recorded.ops, OpId(op),
                                     spec_.tells_counts[op], late));
  return session_->CheckBound(OpId(call), late);
}

absl::Status FrozenStep::BufferRelease(BufferId buffer, Stream* stream,
                                       bool in_step) {
  // One that was declared since is not the plan's.
  if (buffer.value() >= spec_.addresses.size()) return session_->status();
  for (uint32_t call = 0; in_step && call < num_calls_; ++call) {
    const bool submitted =
        slow_ ? state_[call] == CallState::kDone : call < next_;
    if (!submitted || !gated_[call] || session_->IsDue(OpId(call))) continue;
    for (const Access& access : DeclaredOp(ops_[call]).accesses) {
      if (access.buffer != buffer) continue;
      return absl::UnavailableError(absl::StrCat(
          "buffer_release: ", Quoted(ops_[call]), ", which uses buffer '",
          spec_.recorded.ops->buffer(buffer).name,
          "', has been submitted in step ", step(),
          ", but its launch waits for what the program has yet to call"));
    }
  }
  return session_->BufferRelease(buffer, stream);
}

}  // namespace commsched
