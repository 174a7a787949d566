#include "exec/monitor_guard.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/running_clock.h"
#include "base/thread.h"

namespace commsched {
namespace {

// What a round may take beyond the deadline that it may be about to find.
constexpr int64_t kGraceNs = int64_t{1} * 1000 * 1000 * 1000;

}  // namespace

int64_t MonitorRound::LimitNs(int64_t timeout_ns) const {
  const int64_t entered_ns = this->entered_ns();
  if (entered_ns == kNone) return kNone;
  const int64_t deadline_ns = deadline_ns_.load(std::memory_order_relaxed);
  if (deadline_ns == kNone) {
    return timeout_ns > kNone - entered_ns ? kNone : entered_ns + timeout_ns;
  }
  return std::max(deadline_ns, entered_ns) + kGraceNs;
}

MonitorGuard& MonitorGuard::Process() {
  // Never destroyed: monitors may outlive main().
  static auto* const guard = new MonitorGuard;
  return *guard;
}

MonitorGuard::~MonitorGuard() = default;

uint64_t MonitorGuard::Watch(const MonitorRound* round, int64_t timeout_ns,
                             std::function<void(const absl::Status&)> fail) {
  const std::lock_guard<std::mutex> lock(mu_);
  const uint64_t number = ++last_number_;
  watched_[number] = {round, timeout_ns, std::move(fail)};
  if (thread_.joinable()) return number;
  absl::StatusOr<std::thread> started =
      StartThread("the thread that looks after monitors",
                  [this, mine = ++thread_number_] { Run(mine); });
  if (started.ok()) {
    thread_ = *std::move(started);
  } else {
    Log(LogLevel::kWarning, started.status().message(),
        "; a call of CUDA's that does not return is not found");
  }
  return number;
}

void MonitorGuard::Unwatch(uint64_t number) {
  std::thread ended;
  {
    std::unique_lock<std::mutex> lock(mu_);
    changed_.wait(lock, [&] { return failing_ != number; });
    watched_.erase(number);
    if (!watched_.empty() || !thread_.joinable()) return;
    ended = std::move(thread_);
    ++thread_number_;
    changed_.notify_all();
  }
  ended.join();
}

MonitorGuard::Watched* MonitorGuard::FindLate(int64_t now_ns) {
  for (auto& [number, each] : watched_) {
    if (each.has_failed || now_ns < each.round->LimitNs(each.timeout_ns)) {
      continue;
    }
    failing_ = number;
    return &each;
  }
  return nullptr;
}

void MonitorGuard::Run(uint64_t thread_number) {
  std::unique_lock<std::mutex> lock(mu_);
  while (thread_number_ == thread_number) {
    const int64_t now_ns = RunningClock::Get().NowNs();
    if (Watched* const late = FindLate(now_ns)) {
      late->has_failed = true;
      const int64_t since_ns = now_ns - late->round->entered_ns();
      lock.unlock();
      // It stays where it is: Unwatch() waits.
      late->fail(absl::DeadlineExceededError(absl::StrCat(
          "the thread that watches launches has been in a call of CUDA or NCCL "
          "for ",
          since_ns / 1'000'000,
          " ms, beyond the deadline of its oldest launch")));
      lock.lock();
      failing_ = 0;
      changed_.notify_all();
      continue;
    }
    changed_.wait_for(lock, std::chrono::nanoseconds(RunningClock::kTickNs));
  }
}

}  // namespace commsched
