#include "comm/meeting/control_meeting.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace commsched {

absl::Status ControlMeeting::CheckRank(absl::string_view key, int rank) const {
  if (rank == rank_) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("meeting '", key, "': rank ", rank,
                   " is not that of this process, ", rank_));
}

absl::StatusOr<std::vector<std::string>> ControlMeeting::AllGather(
    absl::string_view key, int rank, std::string payload, int64_t timeout_ns) {
  RETURN_IF_ERROR(CheckRank(key, rank));
  const BackendRank::Driven driven(Opened());
  return client_->Gather({}, key, payload, timeout_ns);
}

absl::StatusOr<bool> ControlMeeting::Match(absl::string_view key, int rank,
                                           absl::Span<const Claim> claims,
                                           int64_t timeout_ns) {
  return MatchAmong({}, key, rank, claims, timeout_ns);
}

absl::StatusOr<bool> ControlMeeting::MatchAmong(const MeetingMembers& members,
                                                absl::string_view key, int rank,
                                                absl::Span<const Claim> claims,
                                                int64_t timeout_ns) {
  RETURN_IF_ERROR(CheckRank(key, rank));
  const BackendRank::Driven driven(Opened());
  return client_->Match(members, key, claims, timeout_ns);
}

void ControlMeeting::Decline(absl::string_view key, int rank,
                             const absl::Status& why) {
  if (rank == rank_) client_->Decline({}, key, why);
}

absl::StatusOr<std::vector<std::string>> ControlMeeting::AllGatherAmong(
    const MeetingMembers& members, absl::string_view key, int rank,
    std::string payload, int64_t timeout_ns) {
  RETURN_IF_ERROR(CheckRank(key, rank));
  const BackendRank::Driven driven(Opened());
  return client_->Gather(members, key, payload, timeout_ns);
}

void ControlMeeting::DeclineAmong(const MeetingMembers& members,
                                  absl::string_view key, int rank,
                                  const absl::Status& why) {
  if (rank == rank_) client_->Decline(members, key, why);
}

absl::Status ControlMeeting::Split(const MeetingMembers& members,
                                   absl::string_view key, int rank,
                                   absl::string_view family,
                                   absl::string_view sentence,
                                   int64_t timeout_ns) {
  RETURN_IF_ERROR(CheckRank(key, rank));
  const BackendRank::Driven driven(Opened());
  return client_->Split(
      members, key, MeetingTable::SplitPayload(family, sentence), timeout_ns);
}

}  // namespace commsched
