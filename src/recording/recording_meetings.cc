#include "recording/recording_meetings.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace commsched {

RecordingMeetings::RecordingMeetings(std::shared_ptr<World> world, int rank,
                                     uint64_t instance, int64_t timeout_ns)
    : world_(std::move(world)),
      rank_(rank),
      instance_(instance),
      timeout_ns_(timeout_ns) {}

std::string RecordingMeetings::KeyLocked() const {
  return next_ == 0
             ? absl::StrCat("recording ", instance_, " begin")
             : absl::StrCat("recording ", instance_, " order ", next_ - 1);
}

void RecordingMeetings::DeclineLocked() {
  world_->meeting()->Decline(KeyLocked(), rank_, gave_up_);
}

absl::StatusOr<std::vector<std::string>> RecordingMeetings::Gather(
    std::string mine) {
  std::string key;
  {
    MutexLock lock(&mu_);
    if (!gave_up_.ok()) return gave_up_;
    key = KeyLocked();
  }
  absl::StatusOr<std::vector<std::string>> all =
      world_->meeting()->AllGather(key, rank_, std::move(mine), timeout_ns_);
  MutexLock lock(&mu_);
  if (!all.ok()) {
    failed_ = true;
    return gave_up_.ok() ? all.status() : gave_up_;
  }
  // A rank that gave up when all had come already got through, like the others:
  // they miss it in the next one.
  ++next_;
  if (!gave_up_.ok()) DeclineLocked();
  return all;
}

void RecordingMeetings::GiveUp(const absl::Status& why) {
  MutexLock lock(&mu_);
  if (failed_ || !gave_up_.ok()) return;
  gave_up_ = why;
  DeclineLocked();
}

}  // namespace commsched
