#ifndef COMMSCHED_SRC_PLAN_PREDICT_LINK_STATE_H_
#define COMMSCHED_SRC_PLAN_PREDICT_LINK_STATE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/predict/job_model.h"

namespace commsched {

// A role's link in a simulation: when it is free, what is in flight on it. It
// is free while what it has carried is a latency away from its end. Transfers
// complete in the order in which they are issued, by one issuer, who gives each
// its overhead before the next.
class LinkState {
 public:
  LinkState(uint32_t max_launches, uint64_t max_bytes)
      : max_launches_(max_launches), max_bytes_(max_bytes) {}

  int64_t free() const { return free_; }
  int64_t issuer_free() const { return issuer_free_; }
  int64_t last_done() const { return last_done_; }

  // When one more launch, of no bytes, enters the window.
  int64_t RoomForLaunch() const {
    if (max_launches_ == 0 || flights_.size() < max_launches_) return 0;
    return flights_[flights_.size() - max_launches_].done;
  }

  // The first time from `at` when `bytes` enter the window: they fit, or it is
  // empty.
  int64_t RoomForBytes(int64_t at, uint64_t bytes) {
    if (max_bytes_ == 0) return at;
    while (first_ < flights_.size() &&
           (flights_[first_].done <= at || in_flight_ + bytes > max_bytes_)) {
      at = std::max(at, flights_[first_].done);
      in_flight_ -= flights_[first_++].bytes;
    }
    return at;
  }

  void Issue(int64_t issuer_free, int64_t off_link, int64_t done,
             uint64_t bytes) {
    issuer_free_ = issuer_free;
    free_ = off_link;
    last_done_ = done;
    if (max_launches_ == 0 && max_bytes_ == 0) return;
    flights_.push_back({done, bytes});
    in_flight_ += bytes;
  }

 private:
  struct Flight {
    int64_t done = 0;
    uint64_t bytes = 0;
  };

  uint32_t max_launches_;
  uint64_t max_bytes_;
  int64_t free_ = 0;
  int64_t issuer_free_ = 0;
  int64_t last_done_ = 0;
  std::vector<Flight> flights_;  // all so far
  size_t first_ = 0;             // of those that count against the bytes
  uint64_t in_flight_ = 0;       // bytes from first_ on
};

// Issues `transfer` on the links of its roles at `issue`, or when the bytes
// enter the window. Returns when it is complete.
int64_t IssueTransfer(const JobModel::Transfer& transfer, int64_t issue,
                      std::vector<LinkState>* links, const JobModel& model);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_PREDICT_LINK_STATE_H_
