#include "exec/dispatcher.h"

#include <thread>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace commsched {

Dispatcher::Dispatcher(DispatcherSpec spec)
    : program_(*spec.program),
      issuer_(*spec.issuer),
      failure_(*spec.failure),
      recorder_(spec.instruments.recorder),
      flight_(spec.instruments.flight),
      ranges_(spec.instruments.ranges),
      late_(spec.late),
      manual_(spec.manual),
      clock_(*spec.instruments.clock),
      lanes_(std::move(spec.lanes)),
      lane_ends_(std::move(spec.lane_ends)),
      replays_(spec.replays),
      launches_per_step_(static_cast<uint32_t>(program_.launches.size())),
      writer_(recorder_),
      state_(program_.nodes.size()),
      missing_(program_.launches.size()),
      begun_(recorder_ == nullptr ? 0 : program_.nodes.size()),
      waits_since_ns_(program_.nodes.size()),
      head_(launches_per_step_) {
  for (uint32_t i = 0; i < missing_.size(); ++i) {
    missing_[i].store(Awaited(i), std::memory_order_relaxed);
    one_thread_ |= program_.launches[i].gates != 0;
  }
}

absl::Status Dispatcher::StepBegin() {
  if (ABSL_PREDICT_FALSE(failure_.failed())) return failure_.status();
  if (in_step()) {
    return absl::FailedPreconditionError(
        absl::StrCat("step_begin: step ", named_step(), " has not ended"));
  }
  if (ABSL_PREDICT_FALSE(program_.enqueue)) RETURN_IF_ERROR(BeginOnDevice());
  in_step_ = true;
  NoteBegun();
  MoveHead(0);
  return absl::OkStatus();
}

void Dispatcher::NoteBegun() {
  if (ABSL_PREDICT_FALSE(ranges_ != nullptr)) ranges_->StepBegun(in_replay_);
  if (ABSL_PREDICT_FALSE(flight_ != nullptr)) {
    flight_->Add(FlightEvent::kStepBegin, steps(), clock_.NowNs());
  }
  if (recorder_ != nullptr) {
    stepper_ = std::this_thread::get_id();
    writer_.CatchUp();
    writer_.Add({.begin_ns = clock_.NowNs(), .step = named_step()});
  }
}

absl::Status Dispatcher::StepEnd() {
  if (ABSL_PREDICT_FALSE(failure_.failed())) return failure_.status();
  if (!in_step_) {
    return absl::FailedPreconditionError("step_end: no step has begun");
  }
  const uint64_t done = Done(generation());
  for (uint32_t i = 0; i < state_.size(); ++i) {
    if (state_[i].load(std::memory_order_acquire) >= done) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("step_end: op '", program_.OpName(i),
                     "': its after was not called in step ", named_step()));
  }
  EndStep();
  return absl::OkStatus();
}

void Dispatcher::EndStep() {
  in_step_ = false;
  for (const LaneEnd& end : lane_ends_) {
    end.stream->Record(end.event, generation());
  }
  steps_.store(steps() + 1, std::memory_order_relaxed);
  if (ABSL_PREDICT_FALSE(ranges_ != nullptr)) ranges_->StepEnded();
}

absl::Status Dispatcher::Before(uint32_t index, Stream* stream) {
  RETURN_IF_ERROR(CheckCall(index, stream, "before"));
  const NodeProgram& node = program_.nodes[index];
  RETURN_IF_ERROR(CheckDependencies(node));
  const uint64_t state = state_[index].load(std::memory_order_relaxed);
  if (ABSL_PREDICT_FALSE(state >= Begun(generation())) ||
      ABSL_PREDICT_FALSE(!MoveState(index, state, Begun(generation())))) {
    return absl::FailedPreconditionError(
        absl::StrCat("before: op '", program_.OpName(index),
                     "' was called a second time in step ", named_step()));
  }
  const int64_t begun = EnqueueWaits(node, stream, generation(), 0);
  if (recorder_ != nullptr) begun_[index] = begun;
  if (ABSL_PREDICT_FALSE(failure_.failed())) return failure_.status();
  if (stream->is_caller()) RETURN_IF_ERROR(CheckVersions(node));
  BeginRange(index);
  return absl::OkStatus();
}

absl::Status Dispatcher::After(uint32_t index, Stream* stream,
                               absl::Span<const LateBinding> late) {
  RETURN_IF_ERROR(CheckCall(index, stream, "after"));
  const NodeProgram& node = program_.nodes[index];
  const uint64_t state = state_[index].load(std::memory_order_relaxed);
  if (ABSL_PREDICT_FALSE(state != Begun(generation()))) {
    return absl::FailedPreconditionError(
        absl::StrCat("after: op '", program_.OpName(index), "': its ",
                     state >= Done(generation()) ? "after was already called"
                                                 : "before was not called",
                     " in step ", named_step()));
  }
  const bool binds = node.late_writes.count != 0 || !late.empty();
  if (ABSL_PREDICT_FALSE(binds)) RETURN_IF_ERROR(CheckLate(index, late));
  EndRange(index);
  int64_t now_ns = 0;
  if (recorder_ != nullptr) now_ns = RecordCompute(node, begun_[index]);
  if (node.event != nullptr) stream->Record(node.event, generation());
  if (ABSL_PREDICT_FALSE(!MoveState(index, state, Done(generation())))) {
    return absl::FailedPreconditionError(
        absl::StrCat("after: op '", program_.OpName(index),
                     "': its after was already called in step ", named_step()));
  }
  if (ABSL_PREDICT_FALSE(binds)) late_->Store(generation(), late);
  CountDown(node, now_ns);
  return absl::OkStatus();
}

// Also waits until the slots that are to be written are free: until what was
// bound kRunAhead steps ago has been used.
absl::Status Dispatcher::CheckLate(uint32_t index,
                                   absl::Span<const LateBinding> late) const {
  const NodeProgram& node = program_.nodes[index];
  if (late.empty()) {
    const BufferId buffer =
        program_.late_buffers[node.late_writes.begin].buffer;
    return absl::FailedPreconditionError(absl::StrCat(
        "after: op '", program_.OpName(index), "' writes late-bound buffer '",
        program_.plan->graph->buffer(buffer).name, "' and must bind it"));
  }
  if (node.late_writes.count == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("after: op '", program_.OpName(index),
                     "' writes no late-bound buffer, but binds buffer ",
                     late.front().buffer.value()));
  }
  RETURN_IF_ERROR(late_->Check(index, generation(), late));
  if (generation() <= LateBindings::kRunAhead) return absl::OkStatus();
  const uint64_t used = generation() - LateBindings::kRunAhead;
  for (uint32_t b = 0; b < node.late_writes.count; ++b) {
    const Span32 uses = program_.late_buffers[node.late_writes.begin + b].uses;
    for (uint32_t i = 0; i < uses.count; ++i) {
      const uint32_t member = program_.late_uses[uses.begin + i];
      const uint32_t launch = program_.late_members[member].launch;
      Event* event = program_.launches[launch].event;
      if (event == nullptr || event->IsComplete(used)) continue;
      if (manual_) {
        return absl::UnavailableError(
            absl::StrCat("after: op '", program_.OpName(index), "' is ",
                         LateBindings::kRunAhead, " steps ahead of launch ",
                         program_.LaunchName(launch)));
      }
      issuer_.Await(event, used);
    }
  }
  return failure_.status();
}

absl::Status Dispatcher::Run(Compute compute, void* user, uint64_t num_steps) {
  if (!program_.late_buffers.empty()) {
    const LateBuffer& late = program_.late_buffers.front();
    return absl::FailedPreconditionError(absl::StrCat(
        "run: buffer '", program_.plan->graph->buffer(late.buffer).name,
        "' is late-bound: op '", program_.OpName(late.writer),
        "' must bind it in an after of its own"));
  }
  for (uint64_t i = 0; i < num_steps; ++i) {
    RETURN_IF_ERROR(StepBegin());
    absl::Status status = ReplayStep(compute, user);
    if (ABSL_PREDICT_FALSE(!status.ok())) {
      issuer_.Fail(status);
      return failure_.status();
    }
    EndStep();
  }
  return absl::OkStatus();
}

// The planned order needs no per-node state: one thread runs it, and the plan
// is proved. Node states are written all the same, once, since later steps may
// be driven by Before and After.
absl::Status Dispatcher::ReplayStep(Compute compute, void* user) {
  const uint64_t generation_now = generation();
  int64_t now_ns = 0;
  for (const Instruction& instruction : program_.instructions) {
    if (instruction.kind == Instruction::Kind::kIssue) {
      head_.MoveTo(steps(), instruction.index);
      now_ns = issuer_.MakeDue(head_.number(), now_ns);
      continue;
    }
    const uint32_t index = instruction.index;
    const NodeProgram& node = program_.nodes[index];
    Stream* const stream = lanes_[node.lane];
    const int64_t begun = EnqueueWaits(node, stream, generation_now, now_ns);
    if (ABSL_PREDICT_FALSE(failure_.failed())) return failure_.status();
    BeginRange(index);
    RETURN_IF_ERROR(compute(user, node.op, stream));
    EndRange(index);
    if (recorder_ != nullptr) now_ns = RecordCompute(node, begun);
    if (node.event != nullptr) stream->Record(node.event, generation_now);
    state_[index].store(Done(generation_now), std::memory_order_release);
  }
  return failure_.status();
}

absl::Status Dispatcher::CallError(uint32_t index, const char* call) const {
  if (failure_.failed()) return failure_.status();
  if (!in_step_) {
    return absl::FailedPreconditionError(absl::StrCat(
        call, ": op '", program_.OpName(index), "' was called outside a step"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(call, ": op '", program_.OpName(index),
                   "' was given a stream other than that of its lane ",
                   program_.nodes[index].lane));
}

absl::Status Dispatcher::CheckDependencies(const NodeProgram& node) const {
  const uint64_t done = Done(generation());
  for (uint32_t i = 0; i < node.after.count; ++i) {
    const uint32_t producer = program_.after[node.after.begin + i];
    if (ABSL_PREDICT_FALSE(state_[producer].load(std::memory_order_acquire) <
                           done)) {
      return MissingAfter(node, producer);
    }
  }
  const uint64_t due_needed = steps() * launches_per_step_ + node.due_needed;
  while (ABSL_PREDICT_FALSE(issuer_.due() < due_needed)) {
    RETURN_IF_ERROR(CheckProducersOfNeeded(node));
    // Every producer is done: another thread is inside its `after`, holds the
    // issue token and is about to move the head.
    std::this_thread::yield();
  }
  return absl::OkStatus();
}

absl::Status Dispatcher::MissingAfter(const NodeProgram& node,
                                      uint32_t missing) const {
  return absl::UnavailableError(
      absl::StrCat("before: op '", program_.plan->graph->op(node.op).name,
                   "': not yet: waits for op '", program_.OpName(missing),
                   "', whose after was not called in step ", named_step()));
}

// Names the first op that keeps the due head from passing what `node` needs.
absl::Status Dispatcher::CheckProducersOfNeeded(const NodeProgram& node) const {
  const uint64_t done = Done(generation());
  for (uint32_t launch = 0; launch < node.due_needed; ++launch) {
    const Span32 producers = program_.launches[launch].producers;
    for (uint32_t i = 0; i < producers.count; ++i) {
      const uint32_t producer = program_.producers[producers.begin + i];
      if (state_[producer].load(std::memory_order_acquire) >= done) continue;
      return absl::UnavailableError(absl::StrCat(
          "before: op '", program_.plan->graph->op(node.op).name,
          "': not yet: waits for op '", program_.OpName(producer),
          "', whose after was not called in step ", named_step(),
          " and holds up launch ", program_.LaunchName(node.due_needed - 1)));
    }
    // Launches with gates are driven by one thread: this one.
    if (program_.launches[launch].gates != 0 &&
        steps() * launches_per_step_ + launch >= issuer_.due()) {
      return absl::UnavailableError(absl::StrCat(
          "before: op '", program_.plan->graph->op(node.op).name,
          "': not yet: waits for launch ", program_.LaunchName(launch),
          ", which has not been submitted in step ", named_step(),
          " and holds up launch ", program_.LaunchName(node.due_needed - 1)));
    }
  }
  return failure_.status();
}

// I12: what the op reads has been written in the step it belongs to.
absl::Status Dispatcher::CheckVersions(const NodeProgram& node) const {
  const VersionedRead* read = program_.reads.data() + node.reads.begin;
  for (uint32_t i = 0; i < node.reads.count; ++i, ++read) {
    const uint64_t needed = generation() - read->distance;
    if (ABSL_PREDICT_TRUE(issuer_.HasCompleted(read->launch, needed))) continue;
    return StaleRead(node, *read, issuer_.CompletedGenerations(read->launch));
  }
  return absl::OkStatus();
}

absl::Status Dispatcher::StaleRead(const NodeProgram& node,
                                   const VersionedRead& read,
                                   uint64_t version) const {
  return absl::FailedPreconditionError(
      absl::StrCat("before: op '", program_.plan->graph->op(node.op).name,
                   "' would read the stale result of launch ",
                   program_.LaunchName(read.launch), ": version ", version,
                   ", needs ", generation() - read.distance));
}

inline void Dispatcher::Wait(const NodeProgram& node, Stream* stream,
                             Event* event, uint64_t generation) {
  if (!stream->is_caller()) {
    stream->Wait(event, generation);
  } else if (!event->IsComplete(generation)) {
    WaitOnCaller(node, event, generation);
  }
}

// The caller may have to do what it waits for.
void Dispatcher::WaitOnCaller(const NodeProgram& node, Event* event,
                              uint64_t generation) {
  std::atomic<int64_t>& since_ns =
      waits_since_ns_[static_cast<size_t>(&node - program_.nodes.data())];
  since_ns.store(clock_.NowNs(), std::memory_order_relaxed);
  issuer_.Await(event, generation);
  since_ns.store(0, std::memory_order_relaxed);
}

std::vector<Dispatcher::OpAtWork> Dispatcher::OpsAtWork() const {
  std::vector<OpAtWork> ops;
  for (uint32_t i = 0; i < program_.nodes.size(); ++i) {
    const int64_t since_ns = waits_since_ns_[i].load(std::memory_order_relaxed);
    if (since_ns == 0 &&
        state_[i].load(std::memory_order_acquire) != Begun(generation())) {
      continue;
    }
    OpAtWork op{.node = i, .since_ns = since_ns};
    const Span32 waits = program_.nodes[i].waits;
    for (uint32_t w = 0; w < waits.count && since_ns != 0; ++w) {
      const ProgramWait& wait = program_.waits[waits.begin + w];
      if (wait.event->IsComplete(generation() - wait.distance)) continue;
      op.wait = &wait;
      break;
    }
    ops.push_back(op);
  }
  return ops;
}

inline int64_t Dispatcher::EnqueueWaits(const NodeProgram& node, Stream* stream,
                                        uint64_t generation_now,
                                        int64_t now_ns) {
  const ProgramWait* wait = program_.waits.data() + node.waits.begin;
  if (ABSL_PREDICT_TRUE(recorder_ == nullptr)) {
    for (uint32_t i = 0; i < node.waits.count; ++i, ++wait) {
      Wait(node, stream, wait->event, generation_now - wait->distance);
    }
    return 0;
  }
  if (now_ns == 0) now_ns = clock_.NowNs();
  bool blocked = false;
  for (uint32_t i = 0; i < node.waits.count; ++i, ++wait) {
    const uint64_t needed = generation_now - wait->distance;
    blocked |= stream->is_caller() && !wait->event->IsComplete(needed);
    Wait(node, stream, wait->event, needed);
  }
  if (!blocked) return now_ns;
  const int64_t met = clock_.NowNs();
  RecordSpan(RecordKind::kWait, node, now_ns, met);
  return met;
}

void Dispatcher::CountDown(const NodeProgram& node, int64_t now_ns) {
  bool any_complete = false;
  for (uint32_t i = 0; i < node.feeds.count; ++i) {
    any_complete |= CountDown(program_.feeds[node.feeds.begin + i]);
  }
  if (any_complete) MoveHead(now_ns);
}

// Moves the due head over every launch whose producers are complete, up to the
// end of this step. Of several threads, one does it for all; the others leave a
// request and go on.
void Dispatcher::MoveHead(int64_t now_ns) {
  if (one_thread_) {
    AdvanceHead(now_ns);
    return;
  }
  if (head_requests_.fetch_add(1, std::memory_order_acq_rel) != 0) return;
  uint32_t seen;
  do {
    seen = head_requests_.load(std::memory_order_acquire);
    AdvanceHead(now_ns);
    now_ns = 0;
  } while (head_requests_.fetch_sub(seen, std::memory_order_acq_rel) != seen);
}

void Dispatcher::AdvanceHead(int64_t now_ns) {
  const uint64_t end = (steps() + 1) * launches_per_step_;
  const uint64_t begin = head_.number();
  while (head_.number() < end) {
    const uint32_t launch = head_.index();
    if (missing_[launch].load(std::memory_order_acquire) != 0) break;
    missing_[launch].store(Awaited(launch), std::memory_order_relaxed);
    head_.Advance();
  }
  if (head_.number() != begin) issuer_.MakeDue(head_.number(), now_ns);
}

// And that the launches which it feeds have one producer less to wait for.
int64_t Dispatcher::RecordCompute(const NodeProgram& node, int64_t begin) {
  const int64_t now = clock_.NowNs();
  RecordSpan(RecordKind::kCompute, node, begin, now);
  if (issuer_.notes_ready()) {
    for (uint32_t i = 0; i < node.feeds.count; ++i) {
      issuer_.NoteReady(program_.feeds[node.feeds.begin + i], steps(), now);
    }
  }
  return program_.issue_inline ? now : 0;
}

void Dispatcher::RecordSpan(RecordKind kind, const NodeProgram& node,
                            int64_t begin, int64_t end) {
  AddRecord({.begin_ns = begin,
             .end_ns = end,
             .step = named_step(),
             .index = node.op.value(),
             .kind = kind,
             .lane = static_cast<uint8_t>(node.lane)});
}

}  // namespace commsched
