#include "exec/polled_mode.h"

#include <algorithm>
#include <utility>

#include "absl/base/optimization.h"
#include "device/host_device.h"

namespace commsched {
namespace {

constexpr uint32_t kStartsAtOnce = 16;

}  // namespace

uint32_t PolledMode::RequestsFor(const Plan& plan) {
  const uint32_t cap = plan.options.max_launches_in_flight;
  return cap == 0 ? kMaxInFlight : std::min(cap, kMaxInFlight);
}

PolledMode::PolledMode(IssueState* state)
    : state_(*state),
      requests_(RequestsFor(*state_.program.plan)),
      reads_starts_(state_.instruments.wants_starts() &&
                    state_.spec.backend->comm_starts != nullptr),
      issued_(state_.launches_per_step),
      comm_issued_(state_.spec.comms.size()),
      watchdog_(state_.ForWatchdog()) {
  in_flight_.reserve(requests_);
}

int64_t PolledMode::MakeDue(uint64_t number, int64_t /*now_ns*/) {
  state_.due.store(number, std::memory_order_release);
  if (ABSL_PREDICT_FALSE(state_.spec.by_caller)) {
    state_.spec.rank->Drive();
  } else {
    state_.spec.rank->Begin();
  }
  return 0;
}

bool PolledMode::Pump() {
  state_.instruments.Resumed();
  if (state_.failed()) {
    state_.instruments.TellFailed(*state_.spec.failure);
    return false;
  }
  bool progressed = PollInFlight();
  while (!state_.failed() && TryIssue()) progressed = true;
  if (progressed) return true;
  if (ABSL_PREDICT_FALSE(reads_starts_)) ReadStarts();
  CheckDeadlines();
  if (in_flight_.empty()) state_.CheckCommunicators();
  if (!state_.failed()) state_.instruments.Stalled(stall_cause_);
  return false;
}

// ---- Issuing ----

bool PolledMode::TryIssue() {
  if (issued_.number() >= state_.due.load(std::memory_order_acquire)) {
    stall_cause_ = StallCause::kDue;
    return false;
  }
  const uint32_t index = issued_.index();
  const uint64_t step = issued_.step();
  const LaunchProgram& launch = state_.program.launches[index];
  const bool drops = state_.HasDrops(index, step);
  if (drops && state_.spec.drops->busy()) {
    stall_cause_ = StallCause::kWait;
    return false;
  }
  if (!MayIssue(launch, step)) return false;
  if (launch.late.count != 0 && !state_.BindLate(index, step)) return false;
  InFlight entry{.step = step, .launch = index, .drops = drops, .mark = {}};
  entry.request =
      static_cast<uint32_t>(comm_issued_[launch.group]++ % requests_);
  entry.mark =
      state_.instruments.Issuing(index, step, state_.window.bytes(), 0);
  if (LaneIsEmpty(launch.lane)) watchdog_.Restart(launch.lane);
  const commsched_launch_t* call = state_.Prepare(index, step, drops);
  const commsched_status_t code = state_.spec.backend->launch(
      launch.comm, call, entry.request, commsched_stream_caller(),
      message_.Begin(), PluginMessage::size());
  if (code != COMMSCHED_OK) {
    state_.Fail(state_.BackendError("launch", code, index, step, message_));
    return false;
  }
  in_flight_.push_back(entry);
  issued_.Advance();
  state_.instruments.Issued(index, step, entry.mark);
  return true;
}

// The plan's waits keep the window's caps as well (I3); those of its waits
// count as the window's.
bool PolledMode::MayIssue(const LaunchProgram& launch, uint64_t step) {
  if (in_flight_.size() >= requests_) {
    stall_cause_ = StallCause::kRequests;
    return false;
  }
  if (const ProgramWait* wait = state_.FirstWait(launch, step)) {
    stall_cause_ = wait->cause == WaitCause::kWindow ? StallCause::kWindow
                                                     : StallCause::kWait;
    return false;
  }
  stall_cause_ = StallCause::kWindow;
  return state_.window.TryAdmit(launch.payload_bytes);
}

bool PolledMode::LaneIsEmpty(uint32_t lane) const {
  return std::none_of(
      in_flight_.begin(), in_flight_.end(),
      [&](const InFlight& entry) { return LaneOf(entry) == lane; });
}

bool PolledMode::IsOldest(const InFlight& entry) const {
  return std::none_of(in_flight_.data(), &entry, [&](const InFlight& older) {
    return LaneOf(older) == LaneOf(entry);
  });
}

// ---- Completion ----

bool PolledMode::PollInFlight() {
  bool any_done = false;
  for (InFlight& entry : in_flight_) {
    if (entry.done) continue;
    absl::Status status = Poll(&entry);
    if (!status.ok()) {
      state_.Fail(std::move(status));
      return false;
    }
    any_done |= entry.done;
  }
  if (any_done) RetireInOrder();
  return any_done;
}

absl::Status PolledMode::Poll(InFlight* entry) {
  const commsched_backend_t& backend = *state_.spec.backend;
  if ((backend.capabilities & COMMSCHED_BACKEND_INLINE) != 0) {
    entry->done = true;
    return absl::OkStatus();
  }
  commsched_launch_result_t result = {};
  const commsched_status_t code =
      backend.poll(state_.program.launches[entry->launch].comm, entry->request,
                   &result, message_.Begin(), PluginMessage::size());
  if (code != COMMSCHED_OK) {
    return state_.BackendError("poll", code, entry->launch, entry->step,
                               message_);
  }
  if (ABSL_PREDICT_FALSE(result.done > 1)) {
    return state_.LaunchError(entry->launch, entry->step,
                              CheckLaunchResult(backend, result));
  }
  entry->wake_at_ns = result.wake_at_ns;
  if (result.done == 0) return absl::OkStatus();
  entry->done = true;
  state_.instruments.Completed(entry->launch, entry->step, result.started_ns,
                               &entry->mark);
  state_.ChargeCpu(entry->launch, result.cpu_ns);
  return absl::OkStatus();
}

// Retires what is done, except behind an older launch of the same lane.
void PolledMode::RetireInOrder() {
  uint64_t held_lanes = 0;
  size_t kept = 0;
  for (size_t i = 0; i < in_flight_.size(); ++i) {
    const uint64_t lane = uint64_t{1} << (LaneOf(in_flight_[i]) % 64);
    if (in_flight_[i].done && (held_lanes & lane) == 0) {
      Retire(in_flight_[i]);
      continue;
    }
    held_lanes |= lane;
    in_flight_[kept++] = in_flight_[i];
  }
  in_flight_.resize(kept);
}

void PolledMode::Retire(const InFlight& entry) {
  const LaunchProgram& launch = state_.program.launches[entry.launch];
  state_.Finish(entry.launch, entry.drops);
  absl::Status released = state_.window.Release(launch.payload_bytes);
  if (!released.ok()) {
    state_.Fail(std::move(released));
    return;
  }
  watchdog_.Restart(launch.lane);
  state_.instruments.Retired(entry.launch, entry.step, entry.mark);
  state_.MarkComplete(entry.launch, entry.step);
  if (launch.event != nullptr) {
    CallerStream()->Record(launch.event, entry.step + 1);
  }
  state_.instruments.Ended(entry.launch, entry.step);
}

// What ranks have told each other of when launches were issued.
void PolledMode::ReadStarts() {
  commsched_launch_start_t starts[kStartsAtOnce];
  for (uint32_t group = 0; group < state_.spec.comms.size(); ++group) {
    uint32_t count = kStartsAtOnce;
    while (count == kStartsAtOnce) {
      count = std::min(kStartsAtOnce,
                       state_.spec.backend->comm_starts(
                           state_.spec.comms[group], starts, kStartsAtOnce));
      for (uint32_t i = 0; i < count; ++i) ReadStart(group, starts[i]);
    }
  }
}

void PolledMode::ReadStart(uint32_t group,
                           const commsched_launch_start_t& start) {
  const std::vector<LaunchProgram>& launches = state_.program.launches;
  const auto found =
      std::lower_bound(launches.begin(), launches.end(), start.key,
                       [](const LaunchProgram& launch, uint64_t key) {
                         return launch.call.key < key;
                       });
  const std::vector<int>& ranks = state_.spec.group_ranks[group];
  const size_t last = static_cast<size_t>(start.last_rank);
  if (found == launches.end() || found->call.key != start.key ||
      found->group != group || last >= ranks.size()) {
    return;
  }
  state_.instruments.Started(static_cast<uint32_t>(found - launches.begin()),
                             start.step,
                             {.started_ns = start.started_ns,
                              .error_ns = start.error_ns,
                              .last_rank = ranks[last]});
}

// ---- Deadlines ----

// An end that the backend foretold, or the next deadline.
int64_t PolledMode::NextWakeNs() const {
  int64_t wake_ns = kNoDeadlineNs;
  int64_t deadline_ns = kNoDeadlineNs;
  for (const InFlight& entry : in_flight_) {
    deadline_ns = std::min(deadline_ns, watchdog_.NextLookNs(LaneOf(entry)));
    if (!entry.done && entry.wake_at_ns != 0) {
      wake_ns = std::min(wake_ns, entry.wake_at_ns);
    }
  }
  if (state_.running != nullptr) {
    deadline_ns = state_.running->SleepUntilNs(deadline_ns);
  }
  return std::min(wake_ns, deadline_ns);
}

void PolledMode::Ask() const {
  for (const InFlight& entry : in_flight_) {
    if (!entry.done) watchdog_.Ask(entry.launch, entry.request);
  }
}

std::vector<PendingLaunch> PolledMode::Pending() const {
  const int64_t now_ns = state_.NowForDeadlinesNs();
  std::vector<PendingLaunch> pending;
  for (const InFlight& entry : in_flight_) {
    if (entry.done) continue;
    pending.push_back(
        watchdog_.Pending(entry.launch, entry.step, entry.request, now_ns));
  }
  return pending;
}

// Of a lane the oldest launch is named.
void PolledMode::CheckDeadlines() {
  if (in_flight_.empty()) return;
  const int64_t now_ns = state_.NowForDeadlinesNs();
  watchdog_.Look(now_ns);
  for (const InFlight& entry : in_flight_) {
    if (now_ns < watchdog_.AskNs(LaneOf(entry)) || !IsOldest(entry)) continue;
    if (!watchdog_.HasExpired(entry.launch, entry.request, now_ns)) continue;
    state_.Fail(
        watchdog_.Expired(entry.launch, entry.step, entry.request, now_ns));
    return;
  }
}

}  // namespace commsched
