// What a frozen step does from the first call on that is not the frozen one.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "graph/region.h"
#include "recording/frozen_step.h"

namespace commsched {
namespace {

std::string Times(size_t times) {
  if (times == 1) return "once";
  if (times == 2) return "twice";
  return absl::StrCat(times, " times");
}

}  // namespace

absl::Status FrozenStep::CheckDeclared(const char* what, uint32_t op,
                                       OpKind kind) const {
  const std::vector<Op>& ops = spec_.recorded.ops->ops();
  if (op >= ops.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": op ", op, " is not among the ", ops.size(),
                     " that were declared"));
  }
  if (spec_.recorded.ops->IsClear(OpId(op))) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": op ", op, " has been removed"));
  }
  if (ops[op].kind == kind) return session_->status();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": op '", ops[op].name, "' is ",
                   kind == OpKind::kCompute ? "a collective" : "a compute op"));
}

void FrozenStep::Deviate() {
  if (slow_) return;
  slow_ = true;
  const uint32_t called = next_;
  next_ = num_calls_;
  state_.assign(num_calls_, CallState::kWaiting);
  times_.assign(calls_of_op_.size(), 0);
  for (uint32_t call = 0; call < called; ++call) {
    const uint32_t op = ops_[call];
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
    unexpected_.push_back(op);
    Flag(op);
    return;
  }
  if (call + 1 > highest_) {
    highest_ = call + 1;
    return;
  }
  deviated_ = true;
  if (IsLoose(op)) return;
  unexpected_.push_back(op);
  Flag(op);
}

absl::Status FrozenStep::SlowBefore(uint32_t op, Stream* stream) {
  RETURN_IF_ERROR(CheckDeclared("before", op, OpKind::kCompute));
  const std::string& name = DeclaredOp(op).name;
  const uint32_t lane = DeclaredOp(op).compute.lane;
  if (lane >= lanes_.size() || stream != lanes_[lane]) {
    return absl::InvalidArgumentError(absl::StrCat(
        "before: op '", name,
        "' was given a stream other than that of its lane ", lane));
  }
  Deviate();
  if (open_[op] != kNone) {
    return absl::FailedPreconditionError(
        absl::StrCat("before: op '", name,
                     "' was begun but not ended: its after is missing"));
  }
  const uint32_t call = PlannedCall(op);
  RETURN_IF_ERROR(CheckStrictCall("before", op, call));
  RETURN_IF_ERROR(GiveWay("before", op, /*planned=*/kNone));
  if (call == kNone || state_[call] != CallState::kWaiting) {
    return BeginAlone(op, call, /*is_news=*/true);
  }
  // By now all that the program submitted and the op needs is due. Ops that it
  // passed over are skipped, and run alone if they come after all; collectives
  // that it passed over may still be submitted, unless the order is enforced.
  uint32_t due = frozen_.due_needed[call];
  const std::vector<bool> passed_over = ToSkip(call, &due);
  const std::vector<uint32_t> awaited = AwaitedBelow(due);
  if (std::any_of(awaited.begin(), awaited.end(), [this](uint32_t collective) {
        return !spec_.strict || IsLoose(ops_[collective]);
      })) {
    const bool is_news = std::any_of(
        awaited.begin(), awaited.end(), [this](uint32_t collective) {
          return !spec_.order.calls[collective].optional &&
                 !IsLoose(ops_[collective]);
        });
    RETURN_IF_ERROR(BeginAlone(op, call, is_news));
    state_[call] = CallState::kAhead;
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckMayDrop("before", awaited));
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
absl::Status FrozenStep::BeginAlone(uint32_t op, uint32_t planned,
                                    bool is_news) {
  for (uint32_t call = 0; call < num_calls_; ++call) {
    if (!IsCollective(call) || gated_[call] ||
        state_[call] != CallState::kWaiting || !session_->IsDue(OpId(call)) ||
        !Conflicts(op, call)) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "before: op '", DeclaredOp(op).name,
        "', which came at another place than in the frozen plan, conflicts "
        "with early "
        "collective '",
        DeclaredOp(ops_[call]).name, "', which has been launched"));
  }
  RETURN_IF_ERROR(session_->WaitDue());
  open_[op] = kAlone;
  ++num_open_;
  deviated_ = true;
  if (is_news && planned != kNone && !IsLoose(op)) {
    // NoteCall() lists one that comes after a later call.
    if (planned + 1 > highest_) unexpected_.push_back(op);
    Flag(op);
  }
  NoteCall(op, planned);
  return absl::OkStatus();
}

absl::Status FrozenStep::SlowAfter(uint32_t op, Stream* stream) {
  RETURN_IF_ERROR(CheckDeclared("after", op, OpKind::kCompute));
  if (op >= open_.size() || open_[op] == kNone) {
    return absl::FailedPreconditionError(
        absl::StrCat("after: op '", DeclaredOp(op).name,
                     "' was not begun: its before is missing"));
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

absl::Status FrozenStep::SlowSubmit(uint32_t op,
                                    absl::Span<const LateBinding> late) {
  RETURN_IF_ERROR(CheckDeclared("submit", op, OpKind::kCollective));
  Deviate();
  const uint32_t call = PlannedCall(op);
  RETURN_IF_ERROR(CheckStrictCall("submit", op, call));
  if (call == kNone) {
    NoteCall(op, call);
    return absl::FailedPreconditionError(absl::StrCat(
        "submit: ", Quoted(op), " was submitted ", Times(times_[op]),
        " in step ", step(), ", but the recorded step ",
        calls_of_op_[op].empty()
            ? "does not submit it"
            : absl::StrCat("submits it ", Times(calls_of_op_[op].size())),
        "; declare it an alternative, or submit it once its "
        "segment has been recorded again"));
  }
  RETURN_IF_ERROR(CheckBound(call, late));
  RETURN_IF_ERROR(GiveWay("submit", op, call));
  NoteCall(op, call);
  if (state_[call] == CallState::kSkipped) {
    return absl::FailedPreconditionError(absl::StrCat(
        "submit: ", Quoted(op), " comes too late in step ", step(),
        ": it was launched without the data of rank ", spec_.world_rank,
        " when an op needed a launch behind it"));
  }
  state_[call] = CallState::kDone;
  return Go(call, late);
}

bool FrozenStep::Conflicts(uint32_t op, uint32_t call) const {
  const Graph& ops = *spec_.recorded.ops;
  for (const Access& a : DeclaredOp(op).accesses) {
    for (const Access& b : DeclaredOp(ops_[call]).accesses) {
      if (a.buffer != b.buffer || (!Writes(a.mode) && !Writes(b.mode))) {
        continue;
      }
      if (MayOverlap(ops, a, b)) return true;
    }
  }
  return false;
}

absl::Status FrozenStep::GiveWay(const char* what, uint32_t op,
                                 uint32_t planned) {
  uint32_t due = 0;
  uint32_t last = kNone;  // of what has to go, the one that is issued last
  const uint32_t begin =
      planned != kNone && state_[planned] == CallState::kWaiting ? planned : 0;
  for (uint32_t call = begin; call < num_calls_; ++call) {
    if (!IsCollective(call) || state_[call] != CallState::kDone ||
        session_->IsDue(OpId(call)) || !Conflicts(op, call)) {
      continue;
    }
    const uint32_t needed =
        frozen_.plan->LaunchesOf(OpId(call)).back().value() + 1;
    if (needed <= due) continue;
    due = needed;
    last = call;
  }
  if (last == kNone) return absl::OkStatus();
  const std::vector<bool> passed_over = ToSkip(kNone, &due);
  RETURN_IF_ERROR(CheckStrictDrop(what, op, last, due));
  RETURN_IF_ERROR(CheckMayDrop(what, AwaitedBelow(due)));
  return SkipAll(passed_over, due);
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

std::vector<uint32_t> FrozenStep::AwaitedBelow(uint32_t due) const {
  std::vector<uint32_t> awaited;
  for (uint32_t k = 0; k < due; ++k) {
    for (OpId op : frozen_.plan->launches[k].members) {
      const uint32_t call = op.value();
      if (call < num_calls_ && gated_[call] && IsToCome(call)) {
        awaited.push_back(call);
      }
    }
  }
  return awaited;
}

absl::Status FrozenStep::SkipAll(const std::vector<bool>& calls, uint32_t due) {
  for (uint32_t call = 0; call < num_calls_; ++call) {
    if (calls[call]) RETURN_IF_ERROR(Skip(call));
  }
  DropUnsubmitted(due);
  return session_->status();
}

void FrozenStep::DropUnsubmitted(uint32_t due) {
  for (uint32_t call : AwaitedBelow(due)) {
    if (state_[call] == CallState::kSkipped) continue;  // of several launches
    LeaveOut(call);
    session_->Submit(OpId(call), /*drop=*/true).IgnoreError();  // sticks
  }
}

absl::Status FrozenStep::Skip(uint32_t call) {
  const uint32_t op = ops_[call];
  DropUnsubmitted(frozen_.due_needed[call]);
  Stream* const stream = lanes_[DeclaredOp(op).compute.lane];
  RETURN_IF_ERROR(session_->Before(OpId(call), stream));
  RETURN_IF_ERROR(session_->After(OpId(call), stream));
  state_[call] = CallState::kSkipped;
  deviated_ = true;
  return absl::OkStatus();
}

void FrozenStep::LeaveOut(uint32_t call) {
  state_[call] = CallState::kSkipped;
  deviated_ = true;
  if (!gated_[call]) return;  // an early one sends what its input holds
  ++num_left_out_;
  if (spec_.order.calls[call].optional) return;
  without_data_.push_back(ops_[call]);
  Flag(ops_[call]);
}

absl::Status FrozenStep::FinishCalls() {
  RETURN_IF_ERROR(CheckStrictEnd());
  std::vector<uint32_t> to_drop;
  for (uint32_t call = 0; call < num_calls_; ++call) {
    if (gated_[call] && IsToCome(call)) to_drop.push_back(call);
  }
  RETURN_IF_ERROR(CheckMayDrop("step_end", to_drop));
  for (uint32_t call = 0; call < num_calls_; ++call) {
    if (gated_[call] || !IsMissing(call)) continue;
    not_called_.push_back(ops_[call]);
    Flag(ops_[call]);
  }
  for (uint32_t call = 0; call < num_calls_; ++call) {
    if (!IsToCome(call)) continue;
    if (!IsCollective(call)) {
      RETURN_IF_ERROR(Skip(call));
      continue;
    }
    LeaveOut(call);
    if (gated_[call]) {
      RETURN_IF_ERROR(session_->Submit(OpId(call), /*drop=*/true));
    }
  }
  return session_->status();
}

// ---- What is said of it -----------------------------------------------------

std::string FrozenStep::Quoted(uint32_t op) const {
  const Op& declared = DeclaredOp(op);
  return absl::StrCat(
      declared.kind == OpKind::kCollective ? "collective '" : "op '",
      declared.name, "'");
}

// Calls that may be left out, and other orders of segments that are loose, are
// part of what was frozen.
absl::Status FrozenStep::CheckStrictCall(const char* what, uint32_t op,
                                         uint32_t call) const {
  if (!spec_.strict) return absl::OkStatus();
  uint32_t expected = 0;
  while (expected < num_calls_ && expected != call &&
         (!IsMissing(expected) || IsLoose(ops_[expected]))) {
    ++expected;
  }
  const bool in_order = expected == call && (call >= highest_ || IsLoose(op));
  if (call != kNone && in_order) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      what, ": ", Quoted(op), " is not the next call of step ", step(),
      " of rank ", spec_.world_rank, ": the recorded step ",
      expected == num_calls_ || expected == call
          ? "has no such call here"
          : absl::StrCat("has ", Quoted(ops_[expected]), " here"),
      ", and the recording is strict"));
}

absl::Status FrozenStep::CheckStrictEnd() const {
  if (!spec_.strict) return absl::OkStatus();
  for (uint32_t call = 0; call < num_calls_; ++call) {
    if (!IsMissing(call)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "step_end: step ", step(), " of rank ", spec_.world_rank, " lacks ",
        Quoted(ops_[call]),
        ", which the recorded step has, and the recording is strict"));
  }
  return absl::OkStatus();
}

absl::Status FrozenStep::CheckStrictDrop(const char* what, uint32_t op,
                                         uint32_t submitted,
                                         uint32_t due) const {
  if (!spec_.strict) return absl::OkStatus();
  for (uint32_t call : AwaitedBelow(due)) {
    if (spec_.order.calls[call].optional) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        what, ": ", Quoted(op), " conflicts with ", Quoted(ops_[submitted]),
        ", which goes behind ", Quoted(ops_[call]), "; step ", step(),
        " of rank ", spec_.world_rank, " has not submitted '",
        DeclaredOp(ops_[call]).name, "', and the recording is strict"));
  }
  return absl::OkStatus();
}

absl::Status FrozenStep::CheckMayDrop(
    const char* what, const std::vector<uint32_t>& calls) const {
  for (uint32_t call : calls) {
    if (!spec_.tells_counts[ops_[call]]) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        what, ": ", Quoted(ops_[call]), " has not been submitted in step ",
        step(), " of rank ", spec_.world_rank,
        ", and cannot go without its data: how much it moves is told at each "
        "submit"));
  }
  return absl::OkStatus();
}

void FrozenStep::LogDeviation() const {
  std::string text;
  const auto add = [&](const std::vector<uint32_t>& ops, const char* what) {
    constexpr size_t kMaxNamed = 8;
    if (ops.empty()) return;
    absl::StrAppend(&text, text.empty() ? "" : "; ", what);
    for (size_t i = 0; i < std::min(ops.size(), kMaxNamed); ++i) {
      absl::StrAppend(&text, i == 0 ? " '" : ", '", DeclaredOp(ops[i]).name,
                      "'");
    }
    if (ops.size() <= kMaxNamed) return;
    absl::StrAppend(&text, " and ", ops.size() - kMaxNamed, " more");
  };
  add(without_data_, "went without its data:");
  add(not_called_, "not called:");
  add(unexpected_, "not where they were recorded:");
  Log(LogLevel::kWarning, "recording: step ", step(), " of rank ",
      spec_.world_rank, " is not the recorded one; ", text);
}

}  // namespace commsched
