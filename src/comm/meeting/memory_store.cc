#include "comm/meeting/memory_store.h"

#include "absl/strings/str_cat.h"
#include "base/running_clock.h"

namespace commsched {

absl::Status MemoryStore::Put(const std::string& key,
                              const std::string& value) {
  MutexLock lock(&mu_);
  if (!values_.emplace(key, value).second) {
    return absl::AlreadyExistsError(
        absl::StrCat("key '", key, "' has a value already"));
  }
  changed_.SignalAll();
  return absl::OkStatus();
}

absl::StatusOr<std::string> MemoryStore::Get(const std::string& key,
                                             int64_t timeout_ns) {
  const RunningClock& clock = RunningClock::Get();
  const int64_t deadline_ns = DeadlineAfter(clock.NowNs(), timeout_ns);
  MutexLock lock(&mu_);
  while (true) {
    const auto found = values_.find(key);
    if (found != values_.end()) return found->second;
    if (clock.NowNs() >= deadline_ns) break;
    changed_.WaitUntil(&mu_, clock.SleepUntilNs(deadline_ns));
  }
  return absl::DeadlineExceededError(
      absl::StrCat("waited ", timeout_ns / 1'000'000, " ms for key '", key,
                   "', which nobody has put"));
}

}  // namespace commsched
