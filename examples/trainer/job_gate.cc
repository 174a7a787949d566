#include "examples/trainer/job_gate.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace commsched::trainer {
namespace {

// How often the request is looked at: a signal can wake nobody.
constexpr std::chrono::milliseconds kLook{50};

}  // namespace

JobGate::JobGate(int64_t first, int64_t end, const std::atomic<int>* request,
                 Show show)
    : planned_end_(end),
      show_(std::move(show)),
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
    over_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

bool JobGate::Enter(int64_t step) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return !shows_ || step <= begun_; });
  end_ = agreed_end_;
  if (step >= end_) return false;
  begun_ = std::max(begun_, step);
  return true;
}

void JobGate::Watch(const std::atomic<int>& request) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (request.load(std::memory_order_acquire) == 0) {
    if (changed_.wait_for(lock, kLook, [&] { return over_; })) return;
  }
  shows_ = true;
  const int64_t begun = begun_;
  lock.unlock();
  const absl::StatusOr<std::vector<int64_t>> all = show_(begun);
  lock.lock();
  if (all.ok() && !all->empty()) {
    agreed_end_ =
        std::min(agreed_end_, *std::max_element(all->begin(), all->end()) + 1);
  }
  shows_ = false;
  changed_.notify_all();
}

}  // namespace commsched::trainer
