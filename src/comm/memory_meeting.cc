#include "comm/memory_meeting.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/running_clock.h"

namespace commsched {
namespace {

// "1, 2, 5 and 9 more".
std::string MissingRanks(
    absl::Span<const int> members,
    const std::vector<absl::optional<std::string>>& payloads) {
  constexpr int kMaxNamed = 16;
  std::string names;
  int num_missing = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    if (payloads[i].has_value()) continue;
    if (++num_missing > kMaxNamed) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", members[i]);
  }
  if (num_missing > kMaxNamed) {
    absl::StrAppend(&names, " and ", num_missing - kMaxNamed, " more");
  }
  return names;
}

std::vector<int> RanksBelow(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

constexpr size_t kNoMember = ~size_t{0};

size_t IndexOf(absl::Span<const int> members, int rank) {
  const auto found = std::find(members.begin(), members.end(), rank);
  if (found == members.end()) return kNoMember;
  return static_cast<size_t>(found - members.begin());
}

}  // namespace

MemoryMeeting::MemoryMeeting(int size) : everyone_(RanksBelow(size)) {}

MemoryMeeting::Tables::iterator MemoryMeeting::OpenLocked(
    absl::string_view key, absl::Span<const int> members) {
  const Tables::iterator at =
      tables_.try_emplace(std::string(key.data(), key.size())).first;
  Table& table = at->second;
  if (table.payloads.empty()) {
    table.members.assign(members.begin(), members.end());
    table.payloads.resize(members.size());
  }
  return at;
}

absl::Status MemoryMeeting::TimedOutLocked(absl::string_view key, int rank,
                                           const Table& table,
                                           int64_t timeout_ns) const {
  return absl::DeadlineExceededError(absl::StrCat(
      "meeting '", key, "': rank ", rank, " waited ", timeout_ns / 1'000'000,
      " ms; missing of ", table.members.size(),
      " ranks: ", MissingRanks(table.members, table.payloads)));
}

absl::StatusOr<std::vector<std::string>> MemoryMeeting::LeaveLocked(
    Tables::iterator at) {
  Table& table = at->second;
  // A copy with memory of its own: the ranks' threads drop theirs apart.
  const absl::Status failure(table.failure.code(), table.failure.message());
  std::vector<std::string> payloads;
  if (failure.ok()) {
    payloads.reserve(table.payloads.size());
    for (const auto& payload : table.payloads) payloads.push_back(*payload);
  }
  if (++table.num_left == table.payloads.size()) tables_.erase(at);
  if (!failure.ok()) return failure;
  return payloads;
}

absl::StatusOr<std::vector<std::string>> MemoryMeeting::AllGather(
    absl::string_view key, int rank, std::string payload, int64_t timeout_ns) {
  if (IndexOf(everyone_, rank) == kNoMember) {
    return absl::InvalidArgumentError(absl::StrCat("meeting '", key, "': rank ",
                                                   rank, " is not in 0..",
                                                   everyone_.size() - 1));
  }
  return AllGatherAmong(everyone_, key, rank, std::move(payload), timeout_ns);
}

absl::StatusOr<std::vector<std::string>> MemoryMeeting::AllGatherAmong(
    absl::Span<const int> members, absl::string_view key, int rank,
    std::string payload, int64_t timeout_ns) {
  const size_t me = IndexOf(members, rank);
  if (me == kNoMember) {
    return absl::InvalidArgumentError(
        absl::StrCat("meeting '", key, "': rank ", rank, " is not among ",
                     absl::StrJoin(members, ", ")));
  }
  const RunningClock& clock = RunningClock::Get();
  const int64_t deadline_ns = DeadlineAfter(clock.NowNs(), timeout_ns);
  const std::string name(key.data(), key.size());
  MutexLock lock(&mu_);
  // Pointers and iterators into the map do not survive a wait: others insert.
  Tables::iterator at = OpenLocked(name, members);
  if (at->second.payloads[me].has_value()) {
    return absl::AlreadyExistsError(
        absl::StrCat("rank ", rank, " is already in the meeting '", key, "'"));
  }
  at->second.payloads[me] = std::move(payload);
  if (++at->second.num_arrived == members.size()) changed_.SignalAll();

  while (at->second.num_arrived < members.size() && at->second.failure.ok()) {
    changed_.WaitUntil(&mu_, clock.SleepUntilNs(deadline_ns));
    at = tables_.find(name);
    if (at->second.num_arrived == members.size()) continue;
    if (!at->second.failure.ok() || clock.NowNs() < deadline_ns) continue;
    at->second.failure = TimedOutLocked(key, rank, at->second, timeout_ns);
    changed_.SignalAll();
  }
  return LeaveLocked(at);
}

void MemoryMeeting::Decline(absl::string_view key, int rank,
                            const absl::Status& why) {
  DeclineAmong(everyone_, key, rank, why);
}

// Unless it waits, a rank that comes, fails the meeting and leaves, all at
// once.
void MemoryMeeting::DeclineAmong(absl::Span<const int> members,
                                 absl::string_view key, int rank,
                                 const absl::Status& why) {
  const size_t me = IndexOf(members, rank);
  if (me == kNoMember) return;
  MutexLock lock(&mu_);
  const Tables::iterator at = OpenLocked(key, members);
  Table& table = at->second;
  const bool has_come = table.payloads[me].has_value();
  if (has_come && table.num_arrived == members.size()) return;
  if (table.failure.ok()) {
    table.failure = absl::Status(
        why.code() == absl::StatusCode::kAborted
            ? absl::StatusCode::kAborted
            : absl::StatusCode::kFailedPrecondition,
        absl::StrCat("meeting '", key, "': rank ", rank,
                     has_come ? " left: " : " will not come: ", why.message()));
  }
  changed_.SignalAll();
  if (has_come) return;  // It leaves on its own.
  table.payloads[me].emplace();
  ++table.num_arrived;
  if (++table.num_left == members.size()) tables_.erase(at);
}

int64_t MemoryMeeting::NumOpen() {
  MutexLock lock(&mu_);
  return static_cast<int64_t>(tables_.size());
}

}  // namespace commsched
