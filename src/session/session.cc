#include "session/session.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "device/device_counters.h"
#include "exec/dispatcher.h"
#include "exec/issuer.h"
#include "session/agreement.h"
#include "session/poison.h"
#include "session/session_parts.h"
#include "session/trace_names.h"

namespace commsched {
namespace {

void LogStart(const SessionSpec& spec) {
  if (MinLogLevel() > LogLevel::kInfo) return;
  Log(LogLevel::kInfo, "rank ", spec.world_rank, ": session ", spec.instance,
      " begins: plan ",
      absl::BytesToHexString(
          {reinterpret_cast<const char*>(spec.plan->fingerprint.data()),
           spec.plan->fingerprint.size()}),
      ", ", spec.plan->launches.size(), " launches a step, backend '",
      spec.world->backend()->name, "', a launch may take ",
      spec.launch_timeout_ns / 1'000'000'000.0, " s");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> Session::Create(SessionSpec spec) {
  const WaitingCall waiting(spec.world_rank, "creates a session with others");
  std::unique_ptr<Session> session(new Session(std::move(spec)));
  RETURN_IF_ERROR(session->Meet(session->parts_.Bind()));
  return session;
}

absl::StatusOr<std::vector<std::unique_ptr<Session>>> Session::CreateAll(
    std::vector<SessionSpec> specs) {
  std::vector<std::unique_ptr<Session>> sessions;
  for (SessionSpec& spec : specs) {
    sessions.emplace_back(new Session(std::move(spec)));
    RETURN_IF_ERROR(sessions.back()->parts_.Bind());
  }
  for (const auto& session : sessions) {
    RETURN_IF_ERROR(session->parts_.BorrowLanes(/*together=*/false));
    RETURN_IF_ERROR(session->parts_.Connect());
  }
  for (const auto& session : sessions) RETURN_IF_ERROR(session->Start());
  return sessions;
}

Session::~Session() {
  if (dispatcher_ == nullptr) return;
  if (!parts_.failure.failed()) {
    absl::Status drained = dispatcher_->in_step() || capturing_
                               ? absl::AbortedError(absl::StrCat(
                                     "the session was destroyed inside step ",
                                     dispatcher_->named_step()))
                               : Drain();
    if (!drained.ok()) issuer_->Fail(std::move(drained));
  }
  // Workers may still hold waits for events of ours, and work on the arena. By
  // now every event is complete or poisoned, so that they get through.
  for (Stream* lane : parts_.lanes) lane->Synchronize();
  AwaitLaunches();
  {
    MutexLock lock(&released_mu_);
    for (Stream* stream : released_on_) stream->Synchronize();
  }
  Unlist();
  Log(LogLevel::kInfo, "rank ", parts_.spec.world_rank, ": session ",
      parts_.spec.instance, " ends after ", dispatcher_->steps(), " steps");
}

// Of a device. After a failure launches may be under way that nobody has
// recorded; what is ahead of them on their lanes, which may be other sessions',
// is waited for, too.
void Session::AwaitLaunches() {
  if (parts_.failure.failed()) {
    for (const SideLane& side : parts_.side_lanes) {
      if (side.stream != nullptr) side.stream->Synchronize();
    }
    return;
  }
  if (!parts_.program->enqueue) return;
  for (const LaunchProgram& launch : parts_.program->launches) {
    launch.event->AwaitRecorded();
  }
}

absl::Status Session::Meet(const absl::Status& bound) {
  RETURN_IF_ERROR(AgreeOnPlan(parts_.spec, bound));
  absl::Status ready = parts_.BorrowLanes(/*together=*/true);
  if (ready.ok()) ready = parts_.Connect();
  if (ready.ok()) ready = Start();
  return AgreeOnReadiness(parts_.spec, ready);
}

absl::Status Session::Start() {
  parts_.Finish();
  issuer_ = std::make_unique<Issuer>(parts_.ForIssuer());
  DispatcherSpec dispatcher = parts_.ForDispatcher();
  dispatcher.issuer = issuer_.get();
  dispatcher_ = std::make_unique<Dispatcher>(std::move(dispatcher));
  if (parts_.spec.recorder != nullptr) {
    parts_.spec.recorder->SetNames(TraceNames(parts_.spec));
  }
  RETURN_IF_ERROR(issuer_->Start());
  if (!parts_.spec.manual) List();
  LogStart(parts_.spec);
  return absl::OkStatus();
}

// Steps in which `node` is complete. On a worker's stream `after` comes before
// the work is done; there the event says when.
uint64_t Session::CompletedGenerations(NodeRef node) const {
  if (node.kind == NodeRef::Kind::kLaunch) {
    return issuer_->CompletedGenerations(node.index);
  }
  uint64_t generations = dispatcher_->AfterGenerations(node.index);
  const Event* event = parts_.program->nodes[node.index].event;
  while (event != nullptr && generations > 0 &&
         !event->IsComplete(generations)) {
    --generations;
  }
  return generations;
}

absl::Status Session::Submit(OpId collective, bool drop) {
  if (ABSL_PREDICT_FALSE(drop)) {
    const uint64_t generation = dispatcher_->steps() + 1;
    if (parts_.late != nullptr) {
      parts_.late->StoreDropped(collective, generation);
    }
    parts_.drops->Drop(collective, generation);
  }
  // One launch, but of a split collective.
  const uint32_t only = parts_.gated_launch[collective.value()];
  if (ABSL_PREDICT_TRUE(only != Plan::kNone)) {
    dispatcher_->Submit(only);
    return parts_.failure.status();
  }
  for (LaunchId launch : parts_.spec.plan->LaunchesOf(collective)) {
    dispatcher_->Submit(launch.value());
  }
  return parts_.failure.status();
}

absl::Status Session::CheckBound(OpId collective,
                                 absl::Span<const LateBinding> late) const {
  if (parts_.late == nullptr) return absl::OkStatus();
  return parts_.late->CheckSubmitted(collective, dispatcher_->steps() + 1,
                                     late);
}

// What was bound kRunAhead steps ago has been used first.
absl::Status Session::SubmitBound(OpId collective,
                                  absl::Span<const LateBinding> late) {
  const uint64_t generation = dispatcher_->steps() + 1;
  for (LaunchId launch : parts_.spec.plan->LaunchesOf(collective)) {
    Event* event = parts_.program->launches[launch.value()].event;
    if (event == nullptr || generation <= LateBindings::kRunAhead) continue;
    issuer_->Await(event, generation - LateBindings::kRunAhead);
  }
  parts_.late->StoreSubmitted(collective, generation, late);
  return Submit(collective, /*drop=*/false);
}

bool Session::IsDue(OpId collective) const {
  const LaunchId last = parts_.spec.plan->LaunchesOf(collective).back();
  return issuer_->due() >
         dispatcher_->steps() * parts_.program->launches.size() + last.value();
}

absl::Status Session::AwaitCollective(OpId collective, uint64_t generation,
                                      int64_t deadline_ns) {
  const uint64_t first = (generation - 1) * parts_.program->launches.size();
  for (LaunchId launch : parts_.spec.plan->LaunchesOf(collective)) {
    const uint32_t index = launch.value();
    const bool complete = AwaitLaunchBy(index, generation, deadline_ns);
    if (parts_.failure.failed()) return parts_.failure.status();
    if (complete) continue;
    std::string why = absl::StrCat("launch ", parts_.program->LaunchName(index),
                                   " is not complete");
    const uint64_t due = issuer_->due();
    if (due <= first + index) {
      const uint32_t held = static_cast<uint32_t>(due - std::min(due, first));
      absl::StrAppend(
          &why, ": it has not been issued, since launch ",
          parts_.program->LaunchName(held),
          held == index ? "" : ", which goes first,",
          " waits for ops or collectives that the program has yet to call");
    }
    return absl::DeadlineExceededError(why);
  }
  return parts_.failure.status();
}

// What goes out inline is complete when it is due, and has no event: it is
// looked at now and then.
bool Session::AwaitLaunchBy(uint32_t launch, uint64_t generation,
                            int64_t deadline_ns) {
  Event* const event = parts_.program->launches[launch].event;
  if (event != nullptr) {
    return issuer_->AwaitBy(event, generation, deadline_ns);
  }
  constexpr std::chrono::microseconds kLook{50};
  while (!issuer_->HasCompleted(launch, generation)) {
    if (parts_.failure.failed()) return true;
    if (SystemClock::Get().NowNs() >= deadline_ns) return false;
    std::this_thread::sleep_for(kLook);
  }
  return true;
}

// Everything due is complete once the last launch of each lane is, since a lane
// completes in order.
absl::Status Session::Drain() {
  if (parts_.failure.failed()) return parts_.failure.status();
  RETURN_IF_ERROR(CheckNotCapturing("drain"));
  if (dispatcher_->in_step()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "drain: step ", dispatcher_->named_step(), " has not ended"));
  }
  dispatcher_->AwaitReplay();
  if (!parts_.spec.manual && !parts_.spec.by_caller) AwaitLanes();
  if (parts_.program->issue_inline) return parts_.failure.status();
  const uint64_t steps = dispatcher_->steps();
  uint64_t lanes_seen = 0;
  for (size_t i = parts_.program->launches.size(); i-- > 0 && steps > 0;) {
    const LaunchProgram& launch = parts_.program->launches[i];
    const uint64_t lane = uint64_t{1} << (launch.lane % 64);
    if ((lanes_seen & lane) != 0) continue;
    lanes_seen |= lane;
    if (parts_.spec.manual && !launch.event->IsComplete(steps)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "drain: launch ",
          parts_.program->LaunchName(static_cast<uint32_t>(i)),
          " is not complete; pump a manual session before draining it"));
    }
    issuer_->Await(launch.event, steps);
  }
  if (parts_.program->enqueue) issuer_->AwaitRetired(steps);
  if (parts_.spec.by_caller) AwaitLanes();
  return parts_.failure.status();
}

// Where progress is the caller's, once launches are complete: nobody would look
// after them meanwhile.
void Session::AwaitLanes() {
  for (Stream* lane : parts_.lanes) lane->Synchronize();
}

// Launches on the caller's memory have events, if any launch is ever awaited;
// those on none need no wait.
absl::Status Session::WaitDue() {
  if (!parts_.spec.by_caller) AwaitLanes();
  const uint64_t steps = dispatcher_->steps();
  const uint64_t first = steps * parts_.program->launches.size();
  for (size_t i = 0; i < parts_.program->launches.size(); ++i) {
    Event* event = parts_.program->launches[i].event;
    if (event == nullptr) continue;
    issuer_->Await(event, issuer_->due() > first + i ? steps + 1 : steps);
  }
  if (parts_.spec.by_caller) AwaitLanes();
  return parts_.failure.status();
}

absl::Status Session::NotComputeOp(OpId op) const {
  const std::vector<Op>& ops = parts_.spec.plan->graph->ops();
  if (op.value() >= ops.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "op ", op.value(), " is not in the graph of ", ops.size(), " ops"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("op '", ops[op.value()].name, "' is not a compute op"));
}

absl::StatusOr<void*> Session::Address(OpId op, BufferId buffer) {
  const Graph& graph = *parts_.spec.plan->graph;
  if (op.value() >= graph.ops().size() ||
      buffer.value() >= graph.buffers().size()) {
    return absl::NotFoundError(absl::StrCat("address: op ", op.value(),
                                            " or buffer ", buffer.value(),
                                            " is not in the graph"));
  }
  for (const Access& access : graph.op(op).accesses) {
    if (access.buffer != buffer) continue;
    if (graph.buffer(buffer).ownership == Ownership::kLateBound) {
      return absl::FailedPreconditionError(
          absl::StrCat("address: buffer '", graph.buffer(buffer).name,
                       "' is late-bound: it has the address that is given"));
    }
    return parts_.program->buffer_address[buffer.value()];
  }
  return absl::NotFoundError(absl::StrCat("address: op '", graph.op(op).name,
                                          "' declares no access to buffer '",
                                          graph.buffer(buffer).name, "'"));
}

absl::StatusOr<uint64_t> Session::BufferVersion(BufferId buffer) const {
  if (buffer.value() >= parts_.writers.size()) {
    return absl::NotFoundError(absl::StrCat(
        "buffer_version: buffer ", buffer.value(), " is not in the graph"));
  }
  const std::vector<NodeRef>& writers = parts_.writers[buffer.value()];
  if (writers.empty()) return 0;
  uint64_t version = CompletedGenerations(writers.front());
  for (const NodeRef& writer : writers) {
    version = std::min(version, CompletedGenerations(writer));
  }
  return version;
}

// A launch that is due in a step is complete once its event is.
absl::Status Session::BufferRelease(BufferId buffer, Stream* stream) {
  if (parts_.failure.failed()) return parts_.failure.status();
  RETURN_IF_ERROR(CheckNotCapturing("buffer_release"));
  if (buffer.value() >= parts_.users.size()) {
    return absl::NotFoundError(absl::StrCat(
        "buffer_release: buffer ", buffer.value(), " is not in the graph"));
  }
  const Buffer& released = parts_.spec.plan->graph->buffer(buffer);
  if (released.ownership == Ownership::kOwned) {
    return absl::InvalidArgumentError(
        absl::StrCat("buffer_release: buffer '", released.name,
                     "' is OWNED and cannot be released"));
  }
  const uint64_t due = issuer_->due();
  const uint64_t per_step = parts_.program->launches.size();
  for (LaunchId launch : parts_.users[buffer.value()]) {
    const uint64_t generation =
        due / per_step + (launch.value() < due % per_step ? 1 : 0);
    Event* event = parts_.program->launches[launch.value()].event;
    if (generation == 0 || event == nullptr) continue;
    if (event->IsComplete(generation)) continue;
    if (stream->is_caller()) {
      issuer_->Await(event, generation);
    } else {
      RememberReleasedOn(stream);
      stream->Wait(event, generation);
    }
  }
  return parts_.failure.status();
}

void Session::RememberReleasedOn(Stream* stream) {
  MutexLock lock(&released_mu_);
  if (std::find(released_on_.begin(), released_on_.end(), stream) ==
      released_on_.end()) {
    released_on_.push_back(stream);
  }
}

ProgressAtFailure Session::Progress() const {
  ProgressAtFailure progress;
  progress.steps_begun =
      dispatcher_->steps() + (dispatcher_->in_step() ? 1 : 0);
  for (uint32_t i = 0; i < parts_.program->launches.size(); ++i) {
    progress.completed.push_back(issuer_->CompletedGenerations(i));
  }
  for (uint32_t i = 0; i < parts_.program->nodes.size(); ++i) {
    const Stream* lane = parts_.lanes[parts_.program->nodes[i].lane];
    progress.unguarded.push_back(
        lane->is_caller() ? 0 : dispatcher_->BeforeGenerations(i));
  }
  return progress;
}

absl::StatusOr<bool> Session::BufferPoisoned(BufferId buffer) const {
  const Plan& plan = *parts_.spec.plan;
  if (buffer.value() >= plan.graph->buffers().size()) {
    return absl::NotFoundError(absl::StrCat(
        "buffer_poisoned: buffer ", buffer.value(), " is not in the graph"));
  }
  if (!parts_.failure.failed()) return false;
  const ProgressAtFailure progress = Progress();
  // For all buffers at once, and again only if the session has got on since.
  MutexLock lock(&poison_mu_);
  if (poisoned_.empty() || !(progress == poisoned_at_)) {
    poisoned_ = PoisonedBuffers(plan, progress);
    poisoned_at_ = progress;
  }
  return poisoned_[buffer.value()];
}

SessionCounters Session::counters() const {
  SessionCounters counters;
  counters.steps = dispatcher_->steps();
  const Issuer::Totals totals = issuer_->totals();
  counters.launches = totals.launches;
  counters.collectives = totals.collectives;
  counters.bytes = totals.bytes;
  counters.peak_launches_in_flight = issuer_->window().peak_launches();
  counters.peak_bytes_in_flight = issuer_->window().peak_bytes();
  counters.lock_contentions =
      GlobalBlockingCounters().contended_locks.load(std::memory_order_relaxed);
  counters.events_created =
      GlobalDeviceCounters().events_created.load(std::memory_order_relaxed);
  counters.streams_created =
      GlobalDeviceCounters().streams_created.load(std::memory_order_relaxed);
  counters.registrations = parts_.registrations;
  AddMemory(&counters);
  counters.stall_due_ns = issuer_->StallNs(StallCause::kDue);
  counters.stall_wait_ns = issuer_->StallNs(StallCause::kWait);
  counters.stall_window_ns = issuer_->StallNs(StallCause::kWindow);
  counters.stall_requests_ns = issuer_->StallNs(StallCause::kRequests);
  return counters;
}

void Session::AddMemory(SessionCounters* counters) const {
  counters->arena_bytes = parts_.arena.bytes();
  counters->registered_bytes = parts_.registered_bytes;
  counters->allocation_retries = parts_.arena.retries();
  const BackendRank& rank = *parts_.communicators.rank();
  if (rank.table().mem_stats == nullptr) return;
  commsched_backend_memory_t memory = {};
  memory.struct_size = sizeof(memory);
  rank.table().mem_stats(rank.handle(), &memory);
  counters->backend_peak_bytes = memory.peak_bytes;
  counters->launch_allocations = memory.launch_allocations;
}

// The call itself is the issuer's, who writes the number of the step into it.
absl::StatusOr<commsched_launch_estimate_t> Session::EstimateOf(
    uint64_t launch) const {
  const std::vector<LaunchProgram>& launches = parts_.program->launches;
  if (launch >= launches.size()) {
    return absl::OutOfRangeError(absl::StrCat("launch_estimate: launch is ",
                                              launch, ", the plan has ",
                                              launches.size()));
  }
  const LaunchProgram& program = launches[launch];
  if (program.late.count != 0) {
    return absl::UnimplementedError(absl::StrCat(
        "launch_estimate: each step tells the size of launch ",
        parts_.program->LaunchName(static_cast<uint32_t>(launch))));
  }
  commsched_launch_t call = {};
  call.struct_size = sizeof(call);
  call.key = program.call.key;
  call.slot = UINT32_MAX;
  call.kind = program.call.kind;
  call.dtype = program.call.dtype;
  call.reduce_op = program.call.reduce_op;
  call.root = program.call.root;
  call.deterministic = program.call.deterministic;
  call.num_members = program.call.num_members;
  call.members = program.call.members;
  return parts_.communicators.Estimate(
      call, parts_.communicators.NumberOf(plan().launches[launch]));
}

absl::StatusOr<CodecError> Session::CodecErrorOf(OpId op) const {
  const Plan& plan = *parts_.spec.plan;
  const bool known = op.value() < plan.launch_of_op.size();
  const LaunchId launch = known ? plan.launch_of_op[op.value()] : LaunchId();
  if (launch.valid() && plan.launches[launch.value()].coded) {
    return parts_.codec->ErrorOf(launch.value());
  }
  return absl::NotFoundError(
      absl::StrCat("codec_error: ",
                   known ? absl::StrCat("op '", plan.graph->op(op).name, "'")
                         : absl::StrCat("op ", op.value()),
                   " does not travel through a codec"));
}

// A launch's time is shared out to its members in equal parts.
std::vector<int64_t> Session::CollectiveCpuNs() const {
  const Plan& plan = *parts_.spec.plan;
  std::vector<int64_t> cpu_ns(plan.graph->ops().size());
  for (uint32_t i = 0; i < plan.launches.size(); ++i) {
    const absl::Span<const OpId> members = plan.launches[i].members;
    const int64_t total_ns = issuer_->CpuNs(i);
    const int64_t share_ns = total_ns / static_cast<int64_t>(members.size());
    for (OpId member : members) cpu_ns[member.value()] += share_ns;
    cpu_ns[members.front().value()] +=
        total_ns - share_ns * static_cast<int64_t>(members.size());
  }
  return cpu_ns;
}

}  // namespace commsched
