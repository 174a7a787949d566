// Ranks show each other what they must have in common.
#ifndef COMMSCHED_SRC_COMM_MEETING_COMPARISON_H_
#define COMMSCHED_SRC_COMM_MEETING_COMPARISON_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "comm/meeting/meeting.h"

namespace commsched {

// "weight_decay" and "0.1".
struct Fact {
  std::string subject;
  std::string value;
};

// A comparison of a name among `members`.
struct ComparisonName {
  std::string name;
  std::vector<int> members;  // World ranks, in an order that all share.
};

// The comparisons that one rank takes part in, off the hot path. Comparisons of
// one name among the same members are numbered, so that a name can be used
// again.
//
// Thread-safe; of one name, one Compare() at a time.
class Comparisons {
 public:
  // `meeting` outlives it. `rank` is a world rank.
  Comparisons(Meeting* meeting, int rank) : meeting_(meeting), rank_(rank) {}
  Comparisons(const Comparisons&) = delete;
  Comparisons& operator=(const Comparisons&) = delete;

  // Blocks until all members have come, and returns the number of this
  // comparison of `name`, from 0, if the facts of all who gave the same `scope`
  // are equal. Otherwise every member gets the same kFailedPrecondition, which
  // names the first difference and both ranks' values. What is shown is bounded
  // unless there is a difference: a claim, to nobody; then two hashes, 16 bytes
  // per fact, and one fact. Those of the meeting: kDeadlineExceeded, kAborted.
  absl::StatusOr<uint64_t> Compare(const ComparisonName& name,
                                   absl::string_view scope,
                                   const std::vector<Fact>& facts,
                                   int64_t timeout_ns);

  // This rank does not come to the next comparison of `name`, or does not stay
  // in the one that it waits in, because of `why`, which is not OK. After
  // kAborted it comes to no later one either: Compare() returns that. Never
  // blocks.
  void Decline(const ComparisonName& name, const absl::Status& why);

 private:
  struct State {
    uint64_t next = 0;  // Or the one that this rank is in.
    bool is_in = false;
    absl::Status gave_up;  // That one; or, if kAborted, all.
  };

  Meeting* const meeting_;
  const int rank_;

  Mutex mu_;
  absl::flat_hash_map<std::string, State> states_ ABSL_GUARDED_BY(mu_);
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_MEETING_COMPARISON_H_
