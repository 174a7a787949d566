#include "examples/trainer/job_gate.h"

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
int SignalOf(const std::vector<JobGate::Shown>& ranks) {
  for (const JobGate::Shown& rank : ranks) {
    if (rank.signal != 0) return rank.signal;
  }
  return 0;
}

}  // namespace

JobGate::JobGate(int64_t first, int64_t end, const std::atomic<int>* request,
                 Meet meet)
    : planned_end_(end),
      meet_(std::move(meet)),
      end_(end),
      begun_(first),  // Always taken.
      agreed_end_(end) {
  if (request != nullptr) {
    thread_ = std::thread([this, request] { Watch(*request); });
  }
}

JobGate::~JobGate() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

bool JobGate::Enter(int64_t step) {
  Lock lock(mutex_);
  changed_.wait(lock, [&] { return !shows_ || step <= begun_; });
  end_ = agreed_end_;
  signal_ = agreed_signal_;
  if (step >= end_) return false;
  begun_ = std::max(begun_, step);
  return true;
}

void JobGate::Watch(const std::atomic<int>& request) {
  size_t num_ranks = 0;
  std::optional<steady_clock::time_point> parts_at;
  Lock lock(mutex_);
  while (true) {
    const bool is_over = AwaitNextMeeting(&lock, request, num_ranks);
    if (is_over && !parts_at) parts_at = steady_clock::now() + kParting;
    if (parts_at && steady_clock::now() >= *parts_at) return;
    const Shown mine = {.begun = begun_,
                        .signal = request.load(std::memory_order_acquire),
                        .is_over = is_over ? 1 : 0};
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
bool JobGate::AwaitNextMeeting(Lock* lock, const std::atomic<int>& request,
                               size_t num_ranks) {
  const auto factor = static_cast<int>(1 + num_ranks / kManyRanks);
  const auto at = steady_clock::now() + factor * kBetweenMeetings;
  while (!is_over_ && request.load(std::memory_order_acquire) == 0) {
    const auto look = std::min(at, steady_clock::now() + kLook);
    changed_.wait_until(*lock, look);
    if (look == at) break;
  }
  return is_over_;
}

// All ranks are here, since all have seen who has been asked. Whether they have
// agreed, or never will.
bool JobGate::AgreeOnEnd(Lock* lock, int signal) {
  shows_ = true;
  const Shown mine = {
      .begun = begun_, .signal = signal, .is_over = is_over_ ? 1 : 0};
  lock->unlock();
  const absl::StatusOr<std::vector<Shown>> all = meet_(mine);
  lock->lock();
  if (all.ok()) {
    int64_t last = 0;
    for (const Shown& rank : *all) last = std::max(last, rank.begun);
    agreed_end_ = std::min(agreed_end_, last + 1);
    agreed_signal_ = signal;
  }
  shows_ = false;
  changed_.notify_all();
  return all.ok() || !absl::IsDeadlineExceeded(all.status());
}

}  // namespace commsched::trainer
