// The state of the meetings of a world, whoever holds it: the memory of one
// process or the server of many.
#ifndef COMMSCHED_SRC_CONTROL_MEETING_TABLE_H_
#define COMMSCHED_SRC_CONTROL_MEETING_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
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

// Who meets. Thread-compatible.
struct MeetingMembers {
  MeetingMembers() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): the ranks alone.
  MeetingMembers(absl::Span<const int> of_ranks) : ranks(of_ranks) {}
  // NOLINTNEXTLINE(google-explicit-constructor): likewise.
  MeetingMembers(const std::vector<int>& of_ranks) : ranks(of_ranks) {}
  // NOLINTNEXTLINE(google-explicit-constructor): likewise.
  MeetingMembers(std::initializer_list<int> of_ranks) : ranks(of_ranks) {}
  MeetingMembers(absl::Span<const int> of_ranks, absl::Span<const int> called)
      : ranks(of_ranks), names(called) {}

  absl::Span<const int> ranks;  // Of the job.
  // By member: the number by which messages call it, which is that of its rank
  // in a world of some ranks of the job. Empty: its rank.
  absl::Span<const int> names;
};

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
//   kSplit      decided when all have come; gives nothing. Payloads are a
//               family and a sentence of what the rank does (SplitPayload()). A
//               rank is in one such meeting of a family at a time. So if two
//               ranks wait for each other in different ones, neither can end:
//               both fail at once, with both sentences
//
// Decides, but waits for nobody and reads no clock. Thread-compatible.
class MeetingTable {
 public:
  static constexpr char kMatches[] = "=";
  static constexpr char kDiffers[] = "!";

  struct Meeting {
    absl::optional<MeetingKind> kind;  // None: only declined so far.
    std::vector<int> members;
    std::vector<int> names;             // MeetingMembers::names
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

  // Of kSplit: "splits the world into ..." follows the rank's name.
  static std::string SplitPayload(absl::string_view family,
                                  absl::string_view sentence);

  // `rank` comes with `payload`. An error is the caller's, and changes nothing:
  // a rank that is no member or is there already, members that are no ranks or
  // named twice, a meeting of another kind or other members, or a payload that
  // is no claims, or of no split. Adds the keys of other meetings that this has
  // decided to `decided`, unless that is null.
  absl::Status Come(MeetingKind kind, absl::string_view key,
                    const MeetingMembers& members, int rank,
                    std::string payload,
                    std::vector<std::string>* decided = nullptr);

  // `rank` will not come to `key`, or not stay: because of `why`, which is not
  // OK. All others get a status that names both: kAborted if `why` is that, and
  // else kFailedPrecondition. Nothing happens if the meeting is decided.
  void Decline(absl::string_view key, const MeetingMembers& members, int rank,
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
                            const MeetingMembers& members) const;
  Meeting& Open(absl::string_view key, const MeetingMembers& members);
  absl::Status CheckSplit(absl::string_view key, int rank, int name,
                          absl::string_view payload) const;
  void FailCrossing(absl::string_view key, size_t member, Meeting* meeting,
                    std::vector<std::string>* decided);
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
