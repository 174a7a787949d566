// The state of the meetings of a world, whoever holds it: the memory of one
// process or the server of many.
#ifndef COMMSCHED_SRC_CONTROL_MEETING_TABLE_H_
#define COMMSCHED_SRC_CONTROL_MEETING_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "control/claims.h"
#include "control/messages.h"

namespace commsched {

// A meeting is known by its key. Each of its members, given by world rank and
// by all in the same order, comes once, waits until the meeting is decided, and
// leaves with what was decided. One that fails for a member fails for all,
// those that come late too: nobody goes on alone. It is forgotten when all
// members have left.
//
//   kGather     decided when all have come; gives all payloads, by member
//   kAgree      the same, but fails as soon as two payloads differ; gives one
//   kBroadcast  decided when the first member has come; gives its payload
//   kMatch      decided when all have come, with claims (control/claims.h);
//               gives kMatches if they hold together, else kDiffers
//
// Decides, but waits for nobody and reads no clock. Thread-compatible.
class MeetingTable {
 public:
  static constexpr char kMatches[] = "=";
  static constexpr char kDiffers[] = "!";

  struct Meeting {
    absl::optional<MeetingKind> kind;  // None: only declined so far.
    std::vector<int> members;
    std::vector<std::string> payloads;  // By member; of kMatch none.
    ClaimTally tally;                   // Of kMatch.
    std::vector<bool> has_come;
    std::vector<bool> has_left;
    size_t num_come = 0;
    size_t num_left = 0;
    bool decided = false;
    absl::Status failure;              // If decided; else OK.
    std::vector<std::string> results;  // If decided and `failure` is OK.
  };

  // Of ranks 0 to `size` - 1.
  explicit MeetingTable(int size);

  // `rank` comes with `payload`. An error is the caller's, and changes nothing:
  // a rank that is no member or is there already, members that are no ranks or
  // named twice, a meeting of another kind or other members, or a payload that
  // is no claims.
  absl::Status Come(MeetingKind kind, absl::string_view key,
                    absl::Span<const int> members, int rank,
                    std::string payload);

  // `rank` will not come to `key`, or not stay: because of `why`, which is not
  // OK. All others get a status that names both: kAborted if `why` is that, and
  // else kFailedPrecondition. Nothing happens if the meeting is decided.
  void Decline(absl::string_view key, absl::Span<const int> members, int rank,
               const absl::Status& why);

  // `rank` is gone, because of `why`, from all meetings now and later. Returns
  // the keys of those that this decided.
  std::vector<std::string> Lose(int rank, const absl::Status& why);

  // `rank` has waited `waited_ns` for `key` and waits no more: the meeting
  // fails with kDeadlineExceeded, naming who is missing. Nothing happens if it
  // is decided.
  void Expire(absl::string_view key, int rank, int64_t waited_ns);

  // The meeting, or nullptr. Valid until the table changes.
  const Meeting* Find(absl::string_view key) const;

  // Members that have come and not left, of a meeting that exists.
  std::vector<int> Waiting(absl::string_view key) const;

  // `rank`, which waits for `key`, leaves.
  void Leave(absl::string_view key, int rank);

  // Meetings that some rank has come to and not every rank has left.
  size_t num_open() const { return meetings_.size(); }

 private:
  using Meetings = absl::flat_hash_map<std::string, Meeting>;

  absl::Status CheckMembers(absl::string_view key,
                            absl::Span<const int> members) const;
  Meeting& Open(absl::string_view key, absl::Span<const int> members);
  void DecideIfDue(absl::string_view key, size_t member, Meeting* meeting);
  // Marks members that are gone as having come and left.
  void LeaveLost(Meeting* meeting);
  void EraseIfEmpty(absl::string_view key);

  const int size_;
  Meetings meetings_;
  absl::flat_hash_map<int, absl::Status> lost_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_CONTROL_MEETING_TABLE_H_
