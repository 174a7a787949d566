#include "comm/meeting/part_meeting.h"

#include <numeric>
#include <utility>

namespace commsched {
namespace {

std::vector<int> NumbersBelow(size_t size) {
  std::vector<int> numbers(size);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

}  // namespace

PartMeeting::PartMeeting(Meeting* job, std::shared_ptr<const JobPart> part)
    : job_(job),
      part_(std::move(part)),
      everyone_(NumbersBelow(part_->members().size())) {}

std::vector<int> PartMeeting::JobRanks(absl::Span<const int> ranks) const {
  std::vector<int> job_ranks;
  job_ranks.reserve(ranks.size());
  for (const int rank : ranks) job_ranks.push_back(part_->JobRank(rank));
  return job_ranks;
}

absl::StatusOr<std::vector<std::string>> PartMeeting::AllGather(
    absl::string_view key, int rank, std::string payload, int64_t timeout_ns) {
  return AllGatherAmong(everyone_, key, rank, std::move(payload), timeout_ns);
}

absl::StatusOr<bool> PartMeeting::Match(absl::string_view key, int rank,
                                        absl::Span<const Claim> claims,
                                        int64_t timeout_ns) {
  return MatchAmong(everyone_, key, rank, claims, timeout_ns);
}

void PartMeeting::Decline(absl::string_view key, int rank,
                          const absl::Status& why) {
  DeclineAmong(everyone_, key, rank, why);
}

absl::StatusOr<std::vector<std::string>> PartMeeting::AllGatherAmong(
    const MeetingMembers& members, absl::string_view key, int rank,
    std::string payload, int64_t timeout_ns) {
  auto gathered = job_->AllGatherAmong({JobRanks(members.ranks), members.ranks},
                                       part_->KeyOf(key), part_->JobRank(rank),
                                       std::move(payload), timeout_ns);
  if (!gathered.ok()) return part_->Named(gathered.status());
  return gathered;
}

absl::StatusOr<bool> PartMeeting::MatchAmong(const MeetingMembers& members,
                                             absl::string_view key, int rank,
                                             absl::Span<const Claim> claims,
                                             int64_t timeout_ns) {
  auto matched = job_->MatchAmong({JobRanks(members.ranks), members.ranks},
                                  part_->KeyOf(key), part_->JobRank(rank),
                                  claims, timeout_ns);
  if (!matched.ok()) return part_->Named(matched.status());
  return matched;
}

void PartMeeting::DeclineAmong(const MeetingMembers& members,
                               absl::string_view key, int rank,
                               const absl::Status& why) {
  job_->DeclineAmong({JobRanks(members.ranks), members.ranks},
                     part_->KeyOf(key), part_->JobRank(rank), why);
}

absl::Status PartMeeting::Split(const MeetingMembers& members,
                                absl::string_view key, int rank,
                                absl::string_view family,
                                absl::string_view sentence,
                                int64_t timeout_ns) {
  return part_->Named(job_->Split({JobRanks(members.ranks), members.ranks},
                                  part_->KeyOf(key), part_->JobRank(rank),
                                  part_->KeyOf(family), sentence, timeout_ns));
}

}  // namespace commsched
