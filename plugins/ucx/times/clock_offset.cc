#include "ucx/times/clock_offset.h"

#include <algorithm>

namespace commsched::ucx {

namespace {

// What two clocks may part by in so much time.
int64_t DriftNs(int64_t ns) {
  return std::max<int64_t>(0, ns) / 1000 * ClockOffset::kDriftNsPerS /
         1'000'000;
}

}  // namespace

ClockOffset ClockOffset::None() {
  ClockOffset offset;
  offset.is_known_ = true;
  offset.drifts_ = false;
  return offset;
}

void ClockOffset::Add(const RoundTrip& trip) {
  const int64_t under_way_ns =
      (trip.back_ns - trip.asked_ns) - (trip.answered_ns - trip.heard_ns);
  const int64_t error_ns = std::max<int64_t>(0, under_way_ns / 2) + 1 +
                           DriftNs(trip.back_ns - trip.asked_ns);
  if (!drifts_ || (is_known_ && error_ns > ErrorNs(trip.back_ns))) return;
  is_known_ = true;
  // Halves: a sum of two times of a clock may be too large.
  offset_ns_ = (trip.heard_ns - trip.asked_ns) / 2 +
               (trip.answered_ns - trip.back_ns) / 2;
  error_ns_ = error_ns;
  measured_ns_ = trip.back_ns;
}

int64_t ClockOffset::ErrorNs(int64_t here_ns) const {
  if (!drifts_) return 0;
  return error_ns_ + DriftNs(std::max(here_ns, measured_ns_) -
                             std::min(here_ns, measured_ns_));
}

}  // namespace commsched::ucx
