#include "examples/trainer/step_gate.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

namespace commsched::trainer {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How often the request is looked at: a signal can wake nobody.
constexpr milliseconds kLook{50};
// How often ranks meet. What all show goes to all, so that many meet less
// often.
constexpr milliseconds kBetweenMeetings{200};
constexpr size_t kManyRanks = 64;
// How long a rank that is over waits for the others to be over.
constexpr milliseconds kParting{500};

// Of the first rank that has been asked; 0: none has.
int SignalOf(const std::vector<StepGate::Shown>& ranks) {
  for (const StepGate::Shown& rank : ranks) {
    if (rank.signal != 0) return rank.signal;
  }
  return 0;
}

}  // namespace

StepGate::StepGate(int64_t first, int64_t end, const std::atomic<int>* request,
                   Meet meet)
    : planned_end_(end),
      request_(request),
      meet_(std::move(meet)),
      next_(first + 1),  // The first is always taken.
      end_(end) {
  if (request != nullptr && meet_ != nullptr) {
    thread_ = std::thread([this] { Watch(); });
  }
}

StepGate::~StepGate() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

bool StepGate::Enter(int64_t step) {
  Lock lock(mutex_);
  changed_.wait(lock, [&] { return !shows_ || step < next_; });
  if (meet_ == nullptr && step >= next_ && step < end_ && Requested() != 0) {
    end_ = step;
    signal_ = Requested();
  }
  if (step >= end_) return false;
  next_ = std::max(next_, step + 1);
  return true;
}

int64_t StepGate::end() const {
  const Lock lock(mutex_);
  return end_;
}

int StepGate::signal() const {
  const Lock lock(mutex_);
  return end_ < planned_end_ ? signal_ : 0;
}

void StepGate::Watch() {
  size_t num_ranks = 0;
  std::optional<steady_clock::time_point> parts_at;
  Lock lock(mutex_);
  while (true) {
    const bool is_over = AwaitNextMeeting(&lock, num_ranks);
    if (is_over && !parts_at) parts_at = steady_clock::now() + kParting;
    if (parts_at && steady_clock::now() >= *parts_at) return;
    const Shown mine = MineLocked(Requested());
    lock.unlock();
    const absl::StatusOr<std::vector<Shown>> all = meet_(mine);
    lock.lock();
    if (!all.ok()) {
      if (is_over || !absl::IsDeadlineExceeded(all.status())) return;
      continue;
    }
    num_ranks = all->size();
    const auto over = [](const Shown& rank) { return rank.is_over != 0; };
    if (std::all_of(all->begin(), all->end(), over)) return;
    const int signal = SignalOf(*all);
    if (signal != 0 && AgreeOnEnd(&lock, signal)) return;
  }
}

// Returns whether the rank is over, which is no reason to wait, as little as
// that it has been asked.
bool StepGate::AwaitNextMeeting(Lock* lock, size_t num_ranks) {
  const auto factor = static_cast<int>(1 + num_ranks / kManyRanks);
  const auto at = steady_clock::now() + factor * kBetweenMeetings;
  while (!is_over_ && Requested() == 0) {
    const auto look = std::min(at, steady_clock::now() + kLook);
    changed_.wait_until(*lock, look);
    if (look == at) break;
  }
  return is_over_;
}

// All ranks are here, since all have seen who has been asked. Whether they have
// agreed, or never will.
bool StepGate::AgreeOnEnd(Lock* lock, int signal) {
  shows_ = true;
  const Shown mine = MineLocked(signal);
  lock->unlock();
  const absl::StatusOr<std::vector<Shown>> all = meet_(mine);
  lock->lock();
  if (all.ok()) {
    int64_t last = 0;
    for (const Shown& rank : *all) last = std::max(last, rank.begun);
    end_ = std::min(end_, last + 1);
    signal_ = signal;
  }
  shows_ = false;
  changed_.notify_all();
  return all.ok() || !absl::IsDeadlineExceeded(all.status());
}

}  // namespace commsched::trainer
