#ifndef COMMSCHED_SRC_COMM_MEMORY_MEETING_H_
#define COMMSCHED_SRC_COMM_MEMORY_MEETING_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "comm/meeting.h"

namespace commsched {

// Ranks of one process meet in memory. A meeting that fails for one rank fails
// for all, those that come late too: nobody goes on alone. What a meeting holds
// is freed when every rank has left it.
//
// Thread-safe.
class MemoryMeeting final : public Meeting {
 public:
  explicit MemoryMeeting(int size);

  absl::StatusOr<std::vector<std::string>> AllGather(
      absl::string_view key, int rank, std::string payload,
      int64_t timeout_ns) override;
  void Decline(absl::string_view key, int rank,
               const absl::Status& why) override;
  absl::StatusOr<std::vector<std::string>> AllGatherAmong(
      absl::Span<const int> members, absl::string_view key, int rank,
      std::string payload, int64_t timeout_ns) override;
  void DeclineAmong(absl::Span<const int> members, absl::string_view key,
                    int rank, const absl::Status& why) override;

  // Meetings that some rank has come to and not every rank has left.
  int64_t NumOpen();

 private:
  struct Table {
    std::vector<int> members;
    std::vector<absl::optional<std::string>> payloads;  // By member.
    size_t num_arrived = 0;
    size_t num_left = 0;
    absl::Status failure;
  };
  using Tables = absl::flat_hash_map<std::string, Table>;

  Tables::iterator OpenLocked(absl::string_view key,
                              absl::Span<const int> members)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status TimedOutLocked(absl::string_view key, int rank,
                              const Table& table, int64_t timeout_ns) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<std::vector<std::string>> LeaveLocked(Tables::iterator at)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::vector<int> everyone_;

  Mutex mu_;
  CondVar changed_;
  Tables tables_ ABSL_GUARDED_BY(mu_);
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_MEMORY_MEETING_H_
