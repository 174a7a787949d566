#include "comm/memory_meeting.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/running_clock.h"

namespace commsched {
namespace {

// "1, 2, 5 and 9 more".
std::string MissingRanks(
    const std::vector<absl::optional<std::string>>& payloads) {
  constexpr int kMaxNamed = 16;
  std::string names;
  int num_missing = 0;
  for (size_t rank = 0; rank < payloads.size(); ++rank) {
    if (payloads[rank].has_value()) continue;
    if (++num_missing > kMaxNamed) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", rank);
  }
  if (num_missing > kMaxNamed) {
    absl::StrAppend(&names, " and ", num_missing - kMaxNamed, " more");
  }
  return names;
}

}  // namespace

absl::Status MemoryMeeting::TimedOutLocked(absl::string_view key, int rank,
                                           const Table& table,
                                           int64_t timeout_ns) const {
  return absl::DeadlineExceededError(absl::StrCat(
      "meeting '", key, "': rank ", rank, " waited ", timeout_ns / 1'000'000,
      " ms; missing of ", size_, " ranks: ", MissingRanks(table.payloads)));
}

absl::StatusOr<std::vector<std::string>> MemoryMeeting::LeaveLocked(
    Tables::iterator at) {
  Table& table = at->second;
  // A copy with memory of its own: the ranks' threads drop theirs apart.
  const absl::Status failure(table.failure.code(), table.failure.message());
  std::vector<std::string> payloads;
  if (failure.ok()) {
    payloads.reserve(size_);
    for (const auto& payload : table.payloads) payloads.push_back(*payload);
  }
  if (++table.num_left == size_) tables_.erase(at);
  if (!failure.ok()) return failure;
  return payloads;
}

absl::StatusOr<std::vector<std::string>> MemoryMeeting::AllGather(
    absl::string_view key, int rank, std::string payload, int64_t timeout_ns) {
  if (rank < 0 || rank >= size_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "meeting '", key, "': rank ", rank, " is not in 0..", size_ - 1));
  }
  const RunningClock& clock = RunningClock::Get();
  const int64_t deadline_ns = DeadlineAfter(clock.NowNs(), timeout_ns);
  const std::string name(key.data(), key.size());
  MutexLock lock(&mu_);
  // Pointers and iterators into the map do not survive a wait: others insert.
  Tables::iterator at = tables_.try_emplace(name).first;
  if (at->second.payloads.empty()) at->second.payloads.resize(size_);
  if (at->second.payloads[rank].has_value()) {
    return absl::AlreadyExistsError(absl::StrCat(
        "rank ", rank, " has come to the meeting '", key, "' before"));
  }
  at->second.payloads[rank] = std::move(payload);
  if (++at->second.num_arrived == size_) changed_.SignalAll();

  while (at->second.num_arrived < size_ && at->second.failure.ok()) {
    changed_.WaitUntil(&mu_, clock.SleepUntilNs(deadline_ns));
    at = tables_.find(name);
    if (at->second.num_arrived == size_) continue;
    if (!at->second.failure.ok() || clock.NowNs() < deadline_ns) continue;
    at->second.failure = TimedOutLocked(key, rank, at->second, timeout_ns);
    changed_.SignalAll();
  }
  return LeaveLocked(at);
}

// Unless it waits, a rank that comes, fails the meeting and leaves, all at
// once.
void MemoryMeeting::Decline(absl::string_view key, int rank,
                            const absl::Status& why) {
  if (rank < 0 || rank >= size_) return;
  MutexLock lock(&mu_);
  const Tables::iterator at =
      tables_.try_emplace(std::string(key.data(), key.size())).first;
  Table& table = at->second;
  if (table.payloads.empty()) table.payloads.resize(size_);
  const bool has_come = table.payloads[rank].has_value();
  if (has_come && table.num_arrived == size_) return;
  if (table.failure.ok()) {
    table.failure = absl::Status(
        why.code() == absl::StatusCode::kAborted
            ? absl::StatusCode::kAborted
            : absl::StatusCode::kFailedPrecondition,
        absl::StrCat(
            "meeting '", key, "': rank ", rank,
            has_come ? " does not stay: " : " does not come: ", why.message()));
  }
  changed_.SignalAll();
  if (has_come) return;  // It leaves on its own.
  table.payloads[rank].emplace();
  ++table.num_arrived;
  if (++table.num_left == size_) tables_.erase(at);
}

int64_t MemoryMeeting::NumOpen() {
  MutexLock lock(&mu_);
  return static_cast<int64_t>(tables_.size());
}

}  // namespace commsched
