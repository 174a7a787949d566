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
  return absl::StrCat("recording ", instance_, " meeting ", next_);
}

void RecordingMeetings::DeclineLocked() {
  world_->meeting()->Decline(KeyLocked(), rank_, gave_up_);
}

template <typename Shown, typename Meet>
absl::StatusOr<Shown> RecordingMeetings::MeetNext(const Meet& meet) {
  std::string key;
  {
    MutexLock lock(&mu_);
    if (!gave_up_.ok()) return gave_up_;
    key = KeyLocked();
  }
  absl::StatusOr<Shown> all = meet(key);
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

absl::StatusOr<std::vector<std::string>> RecordingMeetings::Gather(
    std::string mine) {
  return MeetNext<std::vector<std::string>>([&](const std::string& key) {
    return world_->meeting()->AllGather(key, rank_, std::move(mine),
                                        timeout_ns_);
  });
}

absl::StatusOr<bool> RecordingMeetings::Match(absl::Span<const Claim> claims) {
  return MeetNext<bool>([&](const std::string& key) {
    return world_->meeting()->Match(key, rank_, claims, timeout_ns_);
  });
}

void RecordingMeetings::GiveUp(const absl::Status& why) {
  MutexLock lock(&mu_);
  if (failed_ || !gave_up_.ok()) return;
  gave_up_ = why;
  DeclineLocked();
}

}  // namespace commsched
