#include "exec/enqueued_mode.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"

namespace commsched {
namespace {

// How long the monitor sleeps between two looks at what is under way: if
// somebody is told when a launch ended, and if only deadlines and run-ahead
// wait for it. Each look takes some microseconds of a core.
constexpr int64_t kTimedLookNs = int64_t{100} * 1000;
constexpr int64_t kLookNs = int64_t{500} * 1000;
// How long it goes on looking when there is nothing: to wake it costs who
// issues a system call, which a session in the middle of its steps does not
// pay.
constexpr int64_t kLingerNs = int64_t{50} * 1000 * 1000;
// How often ranks say in which order they launch, beside each so many launches.
constexpr int64_t kSayNs = int64_t{1} * 1000 * 1000 * 1000;

// Empty: none is known.
std::string OrderDifferenceOn(const SideLane& lane) {
  return lane.order == nullptr ? "" : lane.order->Difference();
}

}  // namespace

EnqueuedMode::EnqueuedMode(IssueState* state)
    : state_(*state),
      marks_(kMarkedSteps * state_.launches_per_step),
      issued_(state_.launches_per_step),
      watchdog_(state_.ForWatchdog()) {}

// ---- Issuing ----

int64_t EnqueuedMode::MakeDue(uint64_t number, int64_t now_ns) {
  while (issued_.number() < number && !state_.failed()) {
    if (!EnqueueNext(now_ns)) break;
    now_ns = 0;
    issued_.Advance();
  }
  // Issued is due: whoever may wait for a launch finds it recorded.
  state_.due.store(issued_.number(), std::memory_order_release);
  if (idle_.load(std::memory_order_acquire)) {
    state_.spec.rank->parker()->Unpark();
  }
  return 0;
}

bool EnqueuedMode::EnqueueNext(int64_t now_ns) {
  const uint32_t index = issued_.index();
  const uint64_t step = issued_.step();
  const IssuerSpec& spec = state_.spec;
  LaunchProgram& launch = spec.program->launches[index];
  if (launch.late.count != 0 && !state_.BindLate(index, step)) return false;
  if (ABSL_PREDICT_FALSE(IsReplay(step))) {
    // With the turns of all lanes (Replays::TakeTurns()).
    if (launch.queue != nullptr) launch.queue->Note();
    MarkOf(index, step) =
        state_.instruments.Replaying(index, step, launch.payload_bytes, now_ns);
    state_.window.Pass(launch.payload_bytes);
    return true;
  }
  const LaunchMark mark =
      state_.instruments.Issuing(index, step, launch.payload_bytes, now_ns);
  commsched_status_t code = COMMSCHED_OK;
  if (ABSL_PREDICT_FALSE(!EnqueueLaunch(index, step, &code))) {
    if (code != COMMSCHED_OK) {
      state_.Fail(state_.BackendError("launch", code, index, step, message_));
    } else {
      state_.Fail(state_.LaunchError(
          index, step, refusal_.ok() ? spec.device->status() : refusal_));
    }
    return false;
  }
  state_.instruments.Issued(index, step, mark);
  if (ABSL_PREDICT_FALSE(state_.instruments.listens())) {
    MarkOf(index, step) = mark;
  }
  return true;
}

inline bool EnqueuedMode::EnqueueLaunch(uint32_t index, uint64_t step,
                                        commsched_status_t* code) {
  const IssuerSpec& spec = state_.spec;
  LaunchProgram* const launch = &spec.program->launches[index];
  const SideLane& lane = spec.side_lanes[launch->lane];
  if (ABSL_PREDICT_FALSE(!lane.turn->TryTake())) {
    if (!TakeAfterOthers(lane.turn)) return false;
  }
  const Turn::Given turn(lane.turn);
  if (launch->queue != nullptr) launch->queue->Note();
  if (ABSL_PREDICT_FALSE(state_.HasDrops(index, step))) {
    return EnqueueWithDrops(index, step, lane.stream, code);
  }
  EnqueueInput(*launch, step, lane.stream);
  if (ABSL_PREDICT_FALSE(spec.device->failed())) return false;
  launch->call.step = state_.program.first_step + step;
  state_.window.Pass(launch->payload_bytes);
  *code = spec.backend->launch(launch->comm, &launch->call, 0,
                               lane.stream->handle(), message_.Begin(),
                               PluginMessage::size());
  if (ABSL_PREDICT_FALSE(*code != COMMSCHED_OK)) return false;
  EnqueueOutput(*launch, step, lane.stream);
  return ABSL_PREDICT_TRUE(!spec.device->failed());
}

bool EnqueuedMode::EnqueueWithDrops(uint32_t index, uint64_t step,
                                    Stream* stream, commsched_status_t* code) {
  const IssuerSpec& spec = state_.spec;
  LaunchProgram& launch = spec.program->launches[index];
  EnqueueWaits(launch, step, stream);
  if (last_drop_ != nullptr) stream->Wait(last_drop_, last_drop_generation_);
  launch.call.step = state_.program.first_step + step;
  const commsched_launch_t* const call =
      spec.drops->Begin(index, step + 1, stream);
  if (spec.device->failed()) return false;
  state_.window.Pass(launch.payload_bytes);
  *code = spec.backend->launch(launch.comm, call, 0, stream->handle(),
                               message_.Begin(), PluginMessage::size());
  if (*code != COMMSCHED_OK) return false;
  spec.drops->End();
  stream->Record(launch.event, step + 1);
  last_drop_ = launch.event;
  last_drop_generation_ = step + 1;
  return !spec.device->failed();
}

// False, and why as the device's failure would be: it would wait for itself.
bool EnqueuedMode::TakeAfterOthers(Turn* turn) {
  if (!turn->IsKeptHere()) return turn->TakeBy(kNoDeadlineNs);
  refusal_ = absl::FailedPreconditionError(
      "this thread launches the graph of another session, which has the lane; "
      "its replay_end() comes first");
  return false;
}

inline void EnqueuedMode::EnqueueWaits(const LaunchProgram& launch,
                                       uint64_t step, Stream* stream) {
  const ProgramWait* wait = state_.program.waits.data() + launch.waits.begin;
  for (uint32_t i = 0; i < launch.waits.count; ++i, ++wait) {
    stream->Wait(wait->event, step + 1 - wait->distance);
  }
}

inline void EnqueuedMode::EnqueueInput(const LaunchProgram& launch,
                                       uint64_t step, Stream* stream) {
  EnqueueWaits(launch, step, stream);
  const StagingStep* staging = state_.program.staging.data();
  for (uint32_t i = 0; i < launch.staging_in.count; ++i) {
    stream->Copy(staging[launch.staging_in.begin + i]);
  }
}

inline void EnqueuedMode::EnqueueOutput(const LaunchProgram& launch,
                                        uint64_t step, Stream* stream) {
  const StagingStep* staging = state_.program.staging.data();
  for (uint32_t i = 0; i < launch.staging_out.count; ++i) {
    stream->Copy(staging[launch.staging_out.begin + i]);
  }
  stream->Record(launch.event, step + 1);
}

// ---- The monitor ----

EnqueuedMode::~EnqueuedMode() {
  if (guarded_ != 0) MonitorGuard::Process().Unwatch(guarded_);
}

// Of the caller's threads nothing is changed; and what holds one of them up in
// a call holds up its own program.
void EnqueuedMode::EnterMonitor() {
  if (state_.spec.by_caller) return;
  state_.spec.device->EnterMonitor();
  // Who pumps by hand, and on a clock of its own, waits for nobody.
  if (state_.running == nullptr || state_.spec.manual) return;
  guarded_ = MonitorGuard::Process().Watch(
      &round_, state_.spec.instruments.launch_timeout_ns,
      [this](const absl::Status& why) { state_.Fail(why); });
}

bool EnqueuedMode::Pump() {
  if (!std::exchange(entered_, true)) EnterMonitor();
  if (guarded_ != 0) round_.Enter(state_.running->NowNs());
  const bool got_on = Look();
  round_.Leave();
  return got_on;
}

bool EnqueuedMode::Look() {
  Device* const device = state_.spec.device;
  state_.instruments.CatchUp();
  if (state_.failed()) {
    state_.instruments.TellFailed(*state_.spec.failure);
    return false;
  }
  if (device->failed()) {
    state_.Fail(device->status());
    return false;
  }
  const uint64_t issued = state_.due.load(std::memory_order_acquire);
  const bool any = RetireEnded(issued);
  if (!any && state_.failed()) return false;
  if (num_retired_ < issued) {
    CheckDeadline(num_retired_);
  } else {
    round_.SetDeadline(MonitorRound::kNone);
  }
  DecideWhenToLook(any || num_retired_ != issued);
  return any || (idle_.load(std::memory_order_relaxed) &&
                 state_.due.load(std::memory_order_acquire) != issued);
}

// Retires what has ended; whether that was anything.
bool EnqueuedMode::RetireEnded(uint64_t issued) {
  if (state_.spec.replays != nullptr) state_.spec.replays->Settle();
  const uint64_t ended = NumEnded(issued);
  // A launch ends by an abort, too. Its communicator says so before.
  state_.CheckCommunicators();
  if (state_.failed() || ended == num_retired_) return false;
  while (num_retired_ < ended) Retire(num_retired_++);
  state_.retired.AdvanceTo(num_retired_);
  return true;
}

// Whole steps first: to look at a launch moves what its issuer writes to this
// core.
uint64_t EnqueuedMode::NumEnded(uint64_t issued) const {
  if (num_retired_ == issued) return issued;
  const uint64_t per_step = state_.launches_per_step;
  uint64_t ended = num_retired_;
  uint64_t step = ended / per_step;
  while ((step + 1) * per_step <= issued && HasEnded(step)) {
    ended = ++step * per_step;
  }
  while (ended < issued) {
    const LaunchProgram& launch = state_.program.launches[ended % per_step];
    if (!launch.event->IsComplete(ended / per_step + 1)) break;
    ++ended;
  }
  return ended;
}

bool EnqueuedMode::HasEnded(uint64_t step) const {
  for (const Event* last : state_.last_of_lanes) {
    if (!last->IsComplete(step + 1)) return false;
  }
  return true;
}

void EnqueuedMode::Retire(uint64_t number) {
  const uint32_t index =
      static_cast<uint32_t>(number % state_.launches_per_step);
  const uint64_t step = number / state_.launches_per_step;
  state_.instruments.Retired(index, step, MarkOf(index, step));
  state_.MarkComplete(index, step);
  state_.instruments.Ended(index, step);
}

// The oldest launch. It has its time from when its waits are met: before that
// it is not in flight, and what it waits for is the caller's work. In a graph
// nobody can tell when that is: there the caller's work is part of the time.
void EnqueuedMode::CheckDeadline(uint64_t number) {
  const uint32_t index =
      static_cast<uint32_t>(number % state_.launches_per_step);
  const LaunchProgram& launch = state_.program.launches[index];
  const uint64_t step = number / state_.launches_per_step;
  const bool waits =
      !IsReplay(step) && state_.FirstWait(launch, step) != nullptr;
  if (number != watched_ || waits) {
    watched_ = number;
    watchdog_.Restart(launch.lane);
  }
  const int64_t now_ns = state_.NowForDeadlinesNs();
  watchdog_.Look(now_ns);
  const int64_t deadline_ns = watchdog_.DeadlineNs(launch.lane);
  round_.SetDeadline(deadline_ns);
  if (now_ns < deadline_ns) return;
  const absl::Status expired =
      watchdog_.Expired(index, step, /*request=*/0, now_ns);
  const std::string order =
      OrderDifferenceOn(state_.spec.side_lanes[launch.lane]);
  state_.Fail(order.empty()
                  ? expired
                  : absl::Status(expired.code(),
                                 absl::StrCat(expired.message(), "; ", order)));
}

// What is under way as a deadline comes near has been said some times before.
void EnqueuedMode::LookAtOrders(int64_t now_ns) {
  const int64_t every_ns =
      std::min(kSayNs, state_.spec.instruments.launch_timeout_ns / 8);
  for (const SideLane& lane : state_.spec.side_lanes) {
    if (lane.order != nullptr) lane.order->Look(now_ns, every_ns);
  }
}

void EnqueuedMode::DecideWhenToLook(bool busy) {
  const int64_t now_ns = state_.spec.instruments.clock->NowNs();
  LookAtOrders(now_ns);
  if (busy) busy_ns_ = now_ns;
  const bool is_idle = now_ns - busy_ns_ > kLingerNs;
  // A caller that looks waits for something, if only of the program's own work.
  // Who issues at this moment may not see it, since no fence keeps its two
  // accesses in order: so there is one look more before the monitor rests.
  rests_ = is_idle && idle_.load(std::memory_order_relaxed) &&
           !state_.spec.by_caller;
  idle_.store(is_idle, std::memory_order_seq_cst);
  next_look_ns_ =
      now_ns + (state_.instruments.tells_ends() ? kTimedLookNs : kLookNs);
}

int64_t EnqueuedMode::NextWakeNs() const {
  return rests_ ? kNoDeadlineNs : next_look_ns_;
}

}  // namespace commsched
