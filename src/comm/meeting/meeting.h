#ifndef COMMSCHED_SRC_COMM_MEETING_MEETING_H_
#define COMMSCHED_SRC_COMM_MEETING_MEETING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "control/claims.h"
#include "control/meeting_table.h"

namespace commsched {

// Where ranks meet off the hot path: to compare fingerprints, to agree on ids.
// In one process it is memory; across processes the control plane.
//
// Thread-safe.
class Meeting {
 public:
  virtual ~Meeting() = default;

  // Blocks until every rank of the world has called with the same `key`, then
  // returns all payloads in rank order. A key is used once per rank; callers
  // number their meetings. kDeadlineExceeded, naming the missing ranks, after
  // `timeout_ns` (base/running_clock.h).
  virtual absl::StatusOr<std::vector<std::string>> AllGather(
      absl::string_view key, int rank, std::string payload,
      int64_t timeout_ns) = 0;

  // Among all ranks, like MatchAmong() below.
  virtual absl::StatusOr<bool> Match(absl::string_view key, int rank,
                                     absl::Span<const Claim> claims,
                                     int64_t timeout_ns) = 0;

  // Instead of meeting, or to end one that waits: `rank` will not come or not
  // stay, because of `why`, which is not OK. All who have come or will come to
  // `key` get a status that names both, kAborted if `why` is that and else
  // kFailedPrecondition; unless the meeting has failed before, or all have
  // come. Never blocks.
  virtual void Decline(absl::string_view key, int rank,
                       const absl::Status& why) = 0;

  // The same for a meeting of some ranks of the world: `members`, which all of
  // them give in the same order, and in which the payloads are returned. `rank`
  // is one of them, and a world rank.
  virtual absl::StatusOr<std::vector<std::string>> AllGatherAmong(
      const MeetingMembers& members, absl::string_view key, int rank,
      std::string payload, int64_t timeout_ns) = 0;
  // Likewise, but says only whether what the members claim holds together, so
  // that each takes as much as it brings, however many they are. A meeting of
  // its own kind: all call this with `key`, or nobody.
  virtual absl::StatusOr<bool> MatchAmong(const MeetingMembers& members,
                                          absl::string_view key, int rank,
                                          absl::Span<const Claim> claims,
                                          int64_t timeout_ns) = 0;
  virtual void DeclineAmong(const MeetingMembers& members,
                            absl::string_view key, int rank,
                            const absl::Status& why) = 0;

  // Blocks until all members have called with `key`, which stands for a part
  // of the world that they make. A rank makes one part at a time; so two that
  // wait for each other with different keys of one `family` fail at once,
  // with the sentence of either ("splits into ..."), which follows its rank.
  virtual absl::Status Split(const MeetingMembers& members,
                             absl::string_view key, int rank,
                             absl::string_view family,
                             absl::string_view sentence,
                             int64_t timeout_ns) = 0;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_MEETING_MEETING_H_
