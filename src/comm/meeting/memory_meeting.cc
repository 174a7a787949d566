#include "comm/meeting/memory_meeting.h"

#include <numeric>
#include <utility>

#include "base/running_clock.h"
#include "base/status_macros.h"

namespace commsched {
namespace {

std::vector<int> RanksBelow(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

MemoryMeeting::MemoryMeeting(int size)
    : everyone_(RanksBelow(size)), table_(size) {}

absl::StatusOr<std::vector<std::string>> MemoryMeeting::AllGather(
    absl::string_view key, int rank, std::string payload, int64_t timeout_ns) {
  return AllGatherAmong(everyone_, key, rank, std::move(payload), timeout_ns);
}

absl::StatusOr<std::vector<std::string>> MemoryMeeting::AllGatherAmong(
    const MeetingMembers& members, absl::string_view key, int rank,
    std::string payload, int64_t timeout_ns) {
  return Meet(MeetingKind::kGather, members, key, rank, std::move(payload),
              timeout_ns);
}

absl::StatusOr<bool> MemoryMeeting::Match(absl::string_view key, int rank,
                                          absl::Span<const Claim> claims,
                                          int64_t timeout_ns) {
  return MatchAmong(everyone_, key, rank, claims, timeout_ns);
}

absl::StatusOr<bool> MemoryMeeting::MatchAmong(const MeetingMembers& members,
                                               absl::string_view key, int rank,
                                               absl::Span<const Claim> claims,
                                               int64_t timeout_ns) {
  ASSIGN_OR_RETURN(const std::vector<std::string> answer,
                   Meet(MeetingKind::kMatch, members, key, rank,
                        EncodeClaims(claims), timeout_ns));
  return answer.front() == MeetingTable::kMatches;
}

absl::StatusOr<std::vector<std::string>> MemoryMeeting::Meet(
    MeetingKind kind, const MeetingMembers& members, absl::string_view key,
    int rank, std::string payload, int64_t timeout_ns) {
  const RunningClock& clock = RunningClock::Get();
  const int64_t deadline_ns = DeadlineAfter(clock.NowNs(), timeout_ns);
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(table_.Come(kind, key, members, rank, std::move(payload)));
  // The table may move a meeting while this thread waits.
  const MeetingTable::Meeting* meeting = table_.Find(key);
  if (meeting->decided) changed_.SignalAll();
  while (!meeting->decided) {
    changed_.WaitUntil(&mu_, clock.SleepUntilNs(deadline_ns));
    if (clock.NowNs() >= deadline_ns) {
      table_.Expire(key, rank, timeout_ns);
      changed_.SignalAll();
    }
    meeting = table_.Find(key);
  }
  // A copy with memory of its own: the ranks' threads drop theirs apart.
  const absl::Status failure(meeting->failure.code(),
                             meeting->failure.message());
  std::vector<std::string> payloads = meeting->results;
  table_.Leave(key, rank);
  if (!failure.ok()) return failure;
  return payloads;
}

void MemoryMeeting::Decline(absl::string_view key, int rank,
                            const absl::Status& why) {
  DeclineAmong(everyone_, key, rank, why);
}

void MemoryMeeting::DeclineAmong(const MeetingMembers& members,
                                 absl::string_view key, int rank,
                                 const absl::Status& why) {
  MutexLock lock(&mu_);
  table_.Decline(key, members, rank, why);
  changed_.SignalAll();
}

absl::Status MemoryMeeting::Split(const MeetingMembers& members,
                                  absl::string_view key, int rank,
                                  absl::string_view family,
                                  absl::string_view sentence,
                                  int64_t timeout_ns) {
  return Meet(MeetingKind::kSplit, members, key, rank,
              MeetingTable::SplitPayload(family, sentence), timeout_ns)
      .status();
}

int64_t MemoryMeeting::NumOpen() {
  MutexLock lock(&mu_);
  return static_cast<int64_t>(table_.num_open());
}

}  // namespace commsched
