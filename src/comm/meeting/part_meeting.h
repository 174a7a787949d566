#ifndef COMMSCHED_SRC_COMM_MEETING_PART_MEETING_H_
#define COMMSCHED_SRC_COMM_MEETING_PART_MEETING_H_

#include <memory>
#include <string>
#include <vector>

#include "comm/failure_board.h"
#include "comm/meeting/meeting.h"

namespace commsched {

// The ranks of a part of a job meet where the job does, under keys of their
// own. Messages name the world, and number ranks as it does. Thread-safe.
class PartMeeting final : public Meeting {
 public:
  // `job`, the meeting of all of the job, outlives this one. `part` is not all
  // of it.
  PartMeeting(Meeting* job, std::shared_ptr<const JobPart> part);

  absl::StatusOr<std::vector<std::string>> AllGather(
      absl::string_view key, int rank, std::string payload,
      int64_t timeout_ns) override;
  absl::StatusOr<bool> Match(absl::string_view key, int rank,
                             absl::Span<const Claim> claims,
                             int64_t timeout_ns) override;
  void Decline(absl::string_view key, int rank,
               const absl::Status& why) override;
  absl::StatusOr<std::vector<std::string>> AllGatherAmong(
      const MeetingMembers& members, absl::string_view key, int rank,
      std::string payload, int64_t timeout_ns) override;
  absl::StatusOr<bool> MatchAmong(const MeetingMembers& members,
                                  absl::string_view key, int rank,
                                  absl::Span<const Claim> claims,
                                  int64_t timeout_ns) override;
  void DeclineAmong(const MeetingMembers& members, absl::string_view key,
                    int rank, const absl::Status& why) override;
  absl::Status Split(const MeetingMembers& members, absl::string_view key,
                     int rank, absl::string_view family,
                     absl::string_view sentence, int64_t timeout_ns) override;

 private:
  std::vector<int> JobRanks(absl::Span<const int> ranks) const;

  Meeting* const job_;
  const std::shared_ptr<const JobPart> part_;
  const std::vector<int> everyone_;  // 0, 1, ...
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_MEETING_PART_MEETING_H_
