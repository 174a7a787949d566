#include "session/frozen_step.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "device/host_device.h"
#include "graph/region.h"
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
    keys_.push_back(collective ? op | kSubmit : op);
    gated_.push_back(collective && !spec_.early[op]);
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
  ASSIGN_OR_RETURN(session_, Session::Create(MakeSessionSpec()));
  return absl::OkStatus();
}

absl::Status FrozenStep::MakePlan() {
  // The flags are read and written on the calling thread.
  lanes_ = spec_.lanes;
  const auto caller =
      std::find_if(lanes_.begin(), lanes_.end(),
                   [](const Stream* lane) { return lane->is_caller(); });
  const uint32_t flag_lane = static_cast<uint32_t>(caller - lanes_.begin());
  if (!lanes_.empty() && caller == lanes_.end()) {
    if (lanes_.size() == Graph::kMaxLanes) {
      return absl::InvalidArgumentError(
          absl::StrCat("recording: all ", lanes_.size(),
                       " lanes are worker threads; one must be the calling "
                       "thread"));
    }
    lanes_.push_back(CallerStream());
  }
  FrozenPlanSpec plan;
  plan.recorded = spec_.recorded;
  plan.order = &spec_.order;
  plan.early = &spec_.early;
  plan.world_size = spec_.world->spec().size;
  plan.flag_lane = flag_lane;
  plan.options = spec_.options;
  plan.profile = spec_.profile;
  ASSIGN_OR_RETURN(frozen_, PlanFrozen(plan));
  if (lanes_.empty()) {
    lanes_.assign(frozen_.plan->num_compute_lanes, CallerStream());
  }
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
    session.bindings.push_back(
        {BufferId(i), spec_.addresses[i],
         spec_.recorded.ops->buffer(BufferId(i)).bytes()});
  }
  session.bindings.push_back({frozen_.flag_in, &flag_in_, sizeof(flag_in_)});
  session.bindings.push_back({frozen_.flag_out, &flag_out_, sizeof(flag_out_)});
  session.lanes = lanes_;
  session.submitted = frozen_.gated;
  session.recorder = spec_.recorder;
  session.on_failure = spec_.on_failure;
  session.launch_timeout_ns = spec_.launch_timeout_ns;
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
  next_ = keys_.data();
  end_ = next_ + num_calls_;
  slow_ = false;
  deviated_ = false;
  deviation_ = 0;
  note_ = note;
  noted_.clear();
  if (note) Deviate();
  return absl::OkStatus();
}

absl::Status FrozenStep::StepEnd() {
  RETURN_IF_ERROR(session_->status());
  if (num_open_ != 0) {
    for (uint32_t op = 0; op < open_.size(); ++op) {
      if (open_[op] == kNone) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("step_end: op '", DeclaredOp(op).name,
                       "' has had a before and no after"));
    }
  }
  if (ABSL_PREDICT_FALSE(next_ != end_ || slow_)) {
    Deviate();
    RETURN_IF_ERROR(FinishCalls());
  }
  // Waits until every rank has ended the step before.
  Stream* const here = CallerStream();
  RETURN_IF_ERROR(session_->Before(frozen_.deviation, here));
  agreed_deviation_ = static_cast<uint32_t>(flag_out_);
  flag_in_ = static_cast<int32_t>(deviation_);
  RETURN_IF_ERROR(session_->After(frozen_.deviation, here));
  return session_->StepEnd();
}

absl::Status FrozenStep::CheckDeclared(const char* what, uint32_t op,
                                       OpKind kind) const {
  const std::vector<Op>& ops = spec_.recorded.ops->ops();
  if (op >= ops.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": op ", op, " is not among the ", ops.size(),
                     " that were declared"));
  }
  if (ops[op].kind == kind) return session_->status();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": op '", ops[op].name, "' is ",
                   kind == OpKind::kCompute ? "a collective" : "a compute op"));
}

void FrozenStep::Deviate() {
  if (slow_) return;
  slow_ = true;
  const uint32_t called = static_cast<uint32_t>(next_ - keys_.data());
  next_ = end_;
  state_.assign(num_calls_, CallState::kWaiting);
  times_.assign(calls_of_op_.size(), 0);
  for (uint32_t call = 0; call < called; ++call) {
    const uint32_t op = keys_[call] & ~kSubmit;
    ++times_[op];
    state_[call] = open_[op] == call ? CallState::kOpen : CallState::kDone;
  }
  highest_ = called;
}

uint32_t FrozenStep::PlannedCall(uint32_t op) const {
  const std::vector<uint32_t>& calls = calls_of_op_[op];
  return times_[op] < calls.size() ? calls[times_[op]] : kNone;
}

void FrozenStep::Flag(uint32_t op) {
  deviation_ = std::max(deviation_, 1 + spec_.recorded.segment[op]);
}

// A call has been made: what is new about it?
void FrozenStep::NoteCall(uint32_t op, uint32_t call) {
  ++times_[op];
  if (note_) noted_.push_back(op);
  if (call == kNone) {
    deviated_ = true;
    Flag(op);
    return;
  }
  if (call + 1 > highest_) {
    highest_ = call + 1;
    return;
  }
  deviated_ = true;
  if (!spec_.order.loose[spec_.recorded.segment[op]]) Flag(op);
}

absl::Status FrozenStep::SlowBefore(uint32_t op, Stream* stream) {
  RETURN_IF_ERROR(CheckDeclared("before", op, OpKind::kCompute));
  const std::string& name = DeclaredOp(op).name;
  const uint32_t lane = DeclaredOp(op).compute.lane;
  if (lane >= lanes_.size() || stream != lanes_[lane]) {
    return absl::InvalidArgumentError(absl::StrCat(
        "before: op '", name,
        "' is given a stream that is not that of its lane ", lane));
  }
  Deviate();
  if (open_[op] != kNone) {
    return absl::FailedPreconditionError(
        absl::StrCat("before: op '", name, "' has had a before and no after"));
  }
  const uint32_t call = PlannedCall(op);
  RETURN_IF_ERROR(GiveWay(op));
  if (call == kNone || state_[call] != CallState::kWaiting) {
    return BeginAlone(op, call);
  }
  // By now all that the program submitted and the op needs is due. Ops that it
  // passed over are skipped, and run alone if they come after all; collectives
  // that it passed over may still be submitted.
  uint32_t due = frozen_.due_needed[call];
  const std::vector<bool> passed_over = ToSkip(call, &due);
  if (AwaitsSubmission(due)) {
    RETURN_IF_ERROR(BeginAlone(op, call));
    state_[call] = CallState::kAhead;
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(SkipAll(passed_over, due));
  RETURN_IF_ERROR(session_->Before(OpId(call), stream));
  state_[call] = CallState::kOpen;
  open_[op] = call;
  ++num_open_;
  NoteCall(op, call);
  return absl::OkStatus();
}

// Everything that the program did so far is done before the op begins; its
// `after` waits for the op. An early collective that the program has yet to
// submit may have read or written what the op touches.
absl::Status FrozenStep::BeginAlone(uint32_t op, uint32_t planned) {
  for (uint32_t call = 0; call < num_calls_; ++call) {
    if (!IsCollective(call) || gated_[call] ||
        state_[call] != CallState::kWaiting || !session_->IsDue(OpId(call)) ||
        !Conflicts(op, call)) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "before: op '", DeclaredOp(op).name,
        "', which is not where the frozen plan has it, conflicts with early "
        "collective '",
        DeclaredOp(keys_[call] & ~kSubmit).name, "', which has been launched"));
  }
  RETURN_IF_ERROR(session_->WaitDue());
  open_[op] = kAlone;
  ++num_open_;
  deviated_ = true;
  if (planned != kNone && !spec_.order.loose[spec_.recorded.segment[op]]) {
    Flag(op);
  }
  NoteCall(op, planned);
  return absl::OkStatus();
}

absl::Status FrozenStep::SlowAfter(uint32_t op, Stream* stream) {
  RETURN_IF_ERROR(CheckDeclared("after", op, OpKind::kCompute));
  if (op >= open_.size() || open_[op] == kNone) {
    return absl::FailedPreconditionError(absl::StrCat(
        "after: op '", DeclaredOp(op).name, "' has had no before"));
  }
  if (open_[op] == kAlone) {
    stream->Synchronize();
  } else {
    const uint32_t call = open_[op];
    RETURN_IF_ERROR(session_->After(OpId(call), stream));
    state_[call] = CallState::kDone;
  }
  open_[op] = kNone;
  --num_open_;
  return absl::OkStatus();
}

absl::Status FrozenStep::SlowSubmit(uint32_t op) {
  RETURN_IF_ERROR(CheckDeclared("submit", op, OpKind::kCollective));
  Deviate();
  const std::string& name = DeclaredOp(op).name;
  const uint32_t call = PlannedCall(op);
  if (call == kNone) {
    NoteCall(op, call);
    return absl::FailedPreconditionError(absl::StrCat(
        "submit: collective '", name, "' is not planned a ", times_[op],
        ". time in a step; declare it an alternative, or submit it once its "
        "segment has been recorded again"));
  }
  RETURN_IF_ERROR(GiveWay(op));
  NoteCall(op, call);
  if (state_[call] == CallState::kSkipped) {
    return absl::FailedPreconditionError(absl::StrCat(
        "submit: collective '", name,
        "' comes too late: it went without this rank's data when an op needed "
        "a launch behind it"));
  }
  state_[call] = CallState::kDone;
  return gated_[call] ? session_->Submit(OpId(call), /*drop=*/false)
                      : session_->status();
}

bool FrozenStep::Conflicts(uint32_t op, uint32_t call) const {
  const Graph& ops = *spec_.recorded.ops;
  for (const Access& a : DeclaredOp(op).accesses) {
    for (const Access& b : DeclaredOp(keys_[call] & ~kSubmit).accesses) {
      if (a.buffer != b.buffer || (!Writes(a.mode) && !Writes(b.mode))) {
        continue;
      }
      if (MayOverlap(ops, a, b)) return true;
    }
  }
  return false;
}

absl::Status FrozenStep::GiveWay(uint32_t op) {
  for (uint32_t call = 0; call < num_calls_; ++call) {
    if (!IsCollective(call) || state_[call] != CallState::kDone ||
        session_->IsDue(OpId(call)) || !Conflicts(op, call)) {
      continue;
    }
    uint32_t due = frozen_.plan->LaunchesOf(OpId(call)).back().value() + 1;
    const std::vector<bool> passed_over = ToSkip(kNone, &due);
    RETURN_IF_ERROR(SkipAll(passed_over, due));
  }
  return absl::OkStatus();
}

std::vector<bool> FrozenStep::ToSkip(uint32_t target, uint32_t* due) const {
  const Plan& plan = *frozen_.plan;
  std::vector<bool> marked(num_calls_);
  std::vector<uint32_t> to_visit;
  auto mark = [&](OpId op) {
    const uint32_t call = op.value();
    if (call >= num_calls_ || call == target || marked[call]) return;
    if (!IsToCome(call)) return;
    marked[call] = true;
    to_visit.push_back(call);
  };
  if (target != kNone) to_visit.push_back(target);
  uint32_t visited = 0;
  while (!to_visit.empty() || visited < *due) {
    for (; visited < *due; ++visited) {
      for (OpId op : plan.launches[visited].producers) mark(op);
    }
    if (to_visit.empty()) break;
    const uint32_t call = to_visit.back();
    to_visit.pop_back();
    *due = std::max(*due, frozen_.due_needed[call]);
    for (OpId op : plan.nodes[plan.node_of_op[call]].after) mark(op);
  }
  return marked;
}

bool FrozenStep::AwaitsSubmission(uint32_t due) const {
  for (uint32_t k = 0; k < due; ++k) {
    for (OpId op : frozen_.plan->launches[k].members) {
      const uint32_t call = op.value();
      if (call < num_calls_ && gated_[call] && IsToCome(call)) return true;
    }
  }
  return false;
}

absl::Status FrozenStep::SkipAll(const std::vector<bool>& calls, uint32_t due) {
  for (uint32_t call = 0; call < num_calls_; ++call) {
    if (calls[call]) RETURN_IF_ERROR(Skip(call));
  }
  DropUnsubmitted(due);
  return session_->status();
}

void FrozenStep::DropUnsubmitted(uint32_t due) {
  const Plan& plan = *frozen_.plan;
  for (uint32_t k = 0; k < due; ++k) {
    for (OpId op : plan.launches[k].members) {
      const uint32_t call = op.value();
      if (call >= num_calls_ || state_[call] != CallState::kWaiting) continue;
      if (!gated_[call]) continue;
      state_[call] = CallState::kSkipped;
      session_->Submit(op, /*drop=*/true).IgnoreError();  // sticks
      deviated_ = true;
      if (!spec_.order.calls[call].optional) Flag(keys_[call] & ~kSubmit);
    }
  }
}

absl::Status FrozenStep::Skip(uint32_t call) {
  const uint32_t op = keys_[call];
  DropUnsubmitted(frozen_.due_needed[call]);
  Stream* const stream = lanes_[DeclaredOp(op).compute.lane];
  RETURN_IF_ERROR(session_->Before(OpId(call), stream));
  RETURN_IF_ERROR(session_->After(OpId(call), stream));
  if (state_[call] == CallState::kWaiting &&
      !spec_.order.calls[call].optional) {
    Flag(op);
  }
  state_[call] = CallState::kSkipped;
  deviated_ = true;
  return absl::OkStatus();
}

absl::Status FrozenStep::FinishCalls() {
  for (uint32_t call = 0; call < num_calls_; ++call) {
    if (!IsToCome(call)) continue;
    if (!IsCollective(call)) {
      RETURN_IF_ERROR(Skip(call));
      continue;
    }
    const uint32_t op = keys_[call] & ~kSubmit;
    state_[call] = CallState::kSkipped;
    if (gated_[call]) {
      RETURN_IF_ERROR(session_->Submit(OpId(call), /*drop=*/true));
    }
    deviated_ = true;
    if (!spec_.order.calls[call].optional) Flag(op);
  }
  return session_->status();
}

}  // namespace commsched
