#include "exec/issuer.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <thread>

#include "base/clock.h"
#include "base/status_macros.h"
#include "device/event_by.h"
#include "exec/enqueued_mode.h"
#include "exec/inline_mode.h"
#include "exec/polled_mode.h"

namespace commsched {
namespace {

// How often one looks for the answers of other ranks.
constexpr int64_t kAnswerLookNs = int64_t{1} * 1000 * 1000;
// And whether a device is through with a launch.
constexpr std::chrono::microseconds kDeviceLook{50};

std::unique_ptr<IssueMode> ModeOf(IssueState* state) {
  if (state->program.issue_inline) return std::make_unique<InlineMode>(state);
  if (state->program.enqueue) return std::make_unique<EnqueuedMode>(state);
  return std::make_unique<PolledMode>(state);
}

}  // namespace

Issuer::Issuer(const IssuerSpec& spec) : state_(spec), mode_(ModeOf(&state_)) {}

Issuer::~Issuer() {
  if (attached_) state_.spec.rank->Detach(this);
  state_.instruments.TellFailed(*state_.spec.failure);
}

absl::Status Issuer::Start() {
  if (state_.program.issue_inline || state_.spec.manual ||
      state_.launches_per_step == 0) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(state_.spec.rank->Attach(
      this, state_.spec.by_caller ? BackendRank::By::kCaller
                                  : BackendRank::By::kThread));
  attached_ = true;
  return absl::OkStatus();
}

// On the progress thread nobody else would catch it.
bool Issuer::Pump() {
  try {
    return mode_->Pump();
  } catch (const std::bad_alloc&) {
    Fail(absl::ResourceExhaustedError("out of host memory"));
    return false;
  }
}

std::vector<PendingLaunch> Issuer::PendingBy(int64_t deadline_ns) {
  std::vector<PendingLaunch> pending;
  const auto any_is_asked = [&] {
    return std::any_of(pending.begin(), pending.end(),
                       [](const PendingLaunch& launch) {
                         return !launch.wait.silent.empty();
                       });
  };
  bool asks = true;
  while (state_.spec.rank->LookBy(deadline_ns, [&] {
    if (asks) mode_->Ask();
    pending = mode_->Pending();
  })) {
    asks = false;
    if (!any_is_asked()) break;
    if (SystemClock::Get().NowNs() + kAnswerLookNs >= deadline_ns) break;
    std::this_thread::sleep_for(std::chrono::nanoseconds(kAnswerLookNs));
  }
  return pending;
}

void Issuer::AwaitRetired(uint64_t steps) {
  const uint64_t number = steps * state_.launches_per_step;
  if (ABSL_PREDICT_TRUE(state_.retired.Reached(number))) return;
  // Rather than until the monitor looks the next time.
  for (Event* last : state_.last_of_lanes) Await(last, steps);
  if (state_.spec.by_caller) {
    while (!state_.retired.Reached(number)) state_.spec.rank->Drive();
    return;
  }
  state_.spec.rank->parker()->Unpark();
  state_.retired.WaitFor(number);
}

bool Issuer::AwaitBy(Event* event, uint64_t generation, int64_t deadline_ns) {
  if (event->IsComplete(generation)) return true;
  if (deadline_ns == kNoDeadlineNs) {
    Await(event, generation);
    return true;
  }
  if (!state_.spec.by_caller && state_.program.enqueue) {
    return LookUntil(event, generation, deadline_ns);
  }
  if (!state_.spec.by_caller) {
    EventBy by(event, deadline_ns);
    state_.spec.rank->Await(&by, generation);
    return event->IsComplete(generation);
  }
  BackendRank::Turn turn(state_.spec.rank);
  while (!event->IsComplete(generation)) {
    if (SystemClock::Get().NowNs() >= deadline_ns) return false;
    turn.Sleep(deadline_ns);
  }
  return true;
}

// Nobody tells that a device has got on.
bool Issuer::LookUntil(const Event* event, uint64_t generation,
                       int64_t deadline_ns) const {
  while (!event->IsComplete(generation)) {
    if (SystemClock::Get().NowNs() >= deadline_ns) return false;
    std::this_thread::sleep_for(kDeviceLook);
  }
  return true;
}

Issuer::Totals Issuer::totals() const {
  Totals totals;
  for (size_t i = 0; i < state_.completed.size(); ++i) {
    const uint64_t times = state_.completed[i].load(std::memory_order_relaxed);
    totals.launches += times;
    totals.collectives += times * state_.program.launches[i].num_collectives;
    totals.bytes += times * state_.program.launches[i].payload_bytes;
  }
  return totals;
}

}  // namespace commsched
