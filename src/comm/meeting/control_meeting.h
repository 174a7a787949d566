#ifndef COMMSCHED_SRC_COMM_MEETING_CONTROL_MEETING_H_
#define COMMSCHED_SRC_COMM_MEETING_CONTROL_MEETING_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "comm/backend_rank.h"
#include "comm/meeting/meeting.h"
#include "control/client.h"

namespace commsched {

// One rank of a job of processes meets the others at the control server. While
// it waits there its backend is driven: others may wait for what it has sent.
// Thread-safe.
class ControlMeeting final : public Meeting {
 public:
  // `client`, that of `rank`, outlives the meeting. `opened` returns the rank
  // as the backend has opened it, or null: not yet.
  ControlMeeting(ControlClient* client, int rank,
                 std::function<BackendRank*()> opened = nullptr)
      : client_(client), rank_(rank), opened_(std::move(opened)) {}

  // `rank` is always that of the client.
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
  absl::Status CheckRank(absl::string_view key, int rank) const;
  BackendRank* Opened() const { return opened_ ? opened_() : nullptr; }

  ControlClient* const client_;
  const int rank_;
  const std::function<BackendRank*()> opened_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_MEETING_CONTROL_MEETING_H_
