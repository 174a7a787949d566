// The cap on what is on the wire.
#ifndef COMMSCHED_SRC_EXEC_INFLIGHT_WINDOW_H_
#define COMMSCHED_SRC_EXEC_INFLIGHT_WINDOW_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"

namespace commsched {

// Counts what is on the wire and refuses what would exceed the caps: at most
// `max_launches` launches of at most `max_bytes` together (I3).
//
// The plan's window waits already keep the caps; this is where it is checked
// and where the peaks that reports show are measured. There is no queue in
// here, on purpose: every rank must launch in the same order, so launches are
// offered one by one, and letting a small one overtake a large one would
// deadlock the job. A launch larger than `max_bytes` is admitted when nothing
// else is in flight, since otherwise it would wait for ever.
//
// TryAdmit and Release: the issuer, one at a time. Peaks: any thread.
class InflightWindow {
 public:
  struct Limits {
    uint64_t max_launches = 0;  // 0: no limit
    uint64_t max_bytes = 0;     // 0: no limit
  };

  explicit InflightWindow(Limits limits) : limits_(limits) {}
  InflightWindow(const InflightWindow&) = delete;
  InflightWindow& operator=(const InflightWindow&) = delete;

  // Takes room for a launch of `bytes`, or returns false and changes nothing.
  [[nodiscard]] bool TryAdmit(uint64_t bytes) {
    if (launches_ > 0) {
      if (limits_.max_launches != 0 && launches_ >= limits_.max_launches) {
        return false;
      }
      if (limits_.max_bytes != 0 &&
          (bytes > limits_.max_bytes || bytes_ > limits_.max_bytes - bytes)) {
        return false;
      }
    }
    ++launches_;
    bytes_ += bytes;
    RaiseTo(peak_launches_, launches_);
    RaiseTo(peak_bytes_, bytes_);
    return true;
  }

  // Counts a launch of `bytes` that is complete when it is issued. Nothing may
  // be on the wire.
  void Pass(uint64_t bytes) {
    RaiseTo(peak_launches_, 1);
    RaiseTo(peak_bytes_, bytes);
  }

  // Gives back the room of one admitted launch. Fails with kInternal, changing
  // nothing, if more would be given back than was taken: a completion was
  // counted twice.
  absl::Status Release(uint64_t bytes) {
    if (launches_ == 0 || bytes > bytes_ ||
        (launches_ == 1 && bytes != bytes_)) {
      return NotTaken(bytes);
    }
    --launches_;
    bytes_ -= bytes;
    return absl::OkStatus();
  }

  uint64_t launches() const { return launches_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t peak_launches() const {
    return peak_launches_.load(std::memory_order_relaxed);
  }
  uint64_t peak_bytes() const {
    return peak_bytes_.load(std::memory_order_relaxed);
  }

 private:
  static void RaiseTo(std::atomic<uint64_t>& peak, uint64_t value) {
    if (value > peak.load(std::memory_order_relaxed)) {
      peak.store(value, std::memory_order_relaxed);
    }
  }
  absl::Status NotTaken(uint64_t bytes) const;

  const Limits limits_;

  // Owned by the issuer. Invariant: launches_ == 0 implies bytes_ == 0.
  uint64_t launches_ = 0;
  uint64_t bytes_ = 0;

  // Statistics: written by the issuer, read by anyone, order irrelevant.
  std::atomic<uint64_t> peak_launches_{0};
  std::atomic<uint64_t> peak_bytes_{0};
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_INFLIGHT_WINDOW_H_
