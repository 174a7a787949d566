#ifndef COMMSCHED_SRC_RECORDING_RECORDING_MEETINGS_H_
#define COMMSCHED_SRC_RECORDING_RECORDING_MEETINGS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "comm/meeting/meeting.h"
#include "comm/world.h"

namespace commsched {

// Where the ranks of one recording meet, time after time: before the first
// step, and whenever they show each other what they have recorded. A rank that
// will not come says so, so that nobody waits for it.
//
// Thread-safe.
class RecordingMeetings {
 public:
  // `instance`: the recording's, equal on all ranks.
  RecordingMeetings(std::shared_ptr<World> world, int rank, uint64_t instance,
                    int64_t timeout_ns);
  RecordingMeetings(const RecordingMeetings&) = delete;
  RecordingMeetings& operator=(const RecordingMeetings&) = delete;

  // Blocks until all ranks have come, then returns what they show, by rank.
  // Fails on every rank or on none: with what a rank gave up for, or
  // kDeadlineExceeded. After a failure there are no more meetings. One call at
  // a time.
  absl::StatusOr<std::vector<std::string>> Gather(std::string mine);
  // Likewise, but says only whether what the ranks claim holds together.
  absl::StatusOr<bool> Match(absl::Span<const Claim> claims);

  // This rank comes to no further meeting, because of `why`, which is not OK;
  // if it waits in one, it gets out. The others learn of it in the meeting that
  // they wait in or come to next. The first call counts. Never blocks.
  void GiveUp(const absl::Status& why);

  // Whether one has failed, which all ranks then know.
  bool failed() {
    MutexLock lock(&mu_);
    return failed_;
  }

 private:
  template <typename Shown, typename Meet>
  absl::StatusOr<Shown> MeetNext(const Meet& meet);
  std::string KeyLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DeclineLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<World> world_;
  const int rank_;
  const uint64_t instance_;
  const int64_t timeout_ns_;

  Mutex mu_;
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 0;  // or the one that this rank is in
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status gave_up_ ABSL_GUARDED_BY(mu_);
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_RECORDING_RECORDING_MEETINGS_H_
