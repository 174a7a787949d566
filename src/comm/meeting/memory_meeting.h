#ifndef COMMSCHED_SRC_COMM_MEETING_MEMORY_MEETING_H_
#define COMMSCHED_SRC_COMM_MEETING_MEMORY_MEETING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "comm/meeting/meeting.h"
#include "control/meeting_table.h"

namespace commsched {

// Ranks of one process meet in memory, by the rules of a MeetingTable.
//
// Thread-safe.
class MemoryMeeting final : public Meeting {
 public:
  explicit MemoryMeeting(int size);

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

  // Meetings that some rank has come to and not every rank has left.
  int64_t NumOpen();

 private:
  absl::StatusOr<std::vector<std::string>> Meet(MeetingKind kind,
                                                const MeetingMembers& members,
                                                absl::string_view key, int rank,
                                                std::string payload,
                                                int64_t timeout_ns);

  const std::vector<int> everyone_;

  Mutex mu_;
  CondVar changed_;
  MeetingTable table_ ABSL_GUARDED_BY(mu_);
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_MEETING_MEMORY_MEETING_H_
