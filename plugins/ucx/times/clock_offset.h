// How far another host's clock is from this one's.
#ifndef COMMSCHED_PLUGINS_UCX_TIMES_CLOCK_OFFSET_H_
#define COMMSCHED_PLUGINS_UCX_TIMES_CLOCK_OFFSET_H_

#include <cstdint>

namespace commsched::ucx {

// A question and its answer: times of the two clocks.
struct RoundTrip {
  int64_t asked_ns = 0;     // Here,
  int64_t heard_ns = 0;     // there,
  int64_t answered_ns = 0;  // there, perhaps much later,
  int64_t back_ns = 0;      // and here again.
};

// Monotonic clocks of two machines have nothing in common but their rate, and
// that not quite. A round trip shows how far they are apart to within half of
// the time that it was on its way: the answer's way may have been all of it or
// none; and of what the clocks may have parted by meanwhile. The best one
// counts, which is worse the further away in time it is.
//
// Thread-compatible.
class ClockOffset {
 public:
  // What two clocks part by per second, at most: 50 us each.
  static constexpr int64_t kDriftNsPerS = 100'000;

  // Of one clock.
  static ClockOffset None();

  void Add(const RoundTrip& trip);
  // Until then the rest means nothing.
  bool is_known() const { return is_known_; }
  int64_t Here(int64_t there_ns) const { return there_ns - offset_ns_; }
  int64_t There(int64_t here_ns) const { return here_ns + offset_ns_; }
  // How far Here() and There() may be off for `here_ns`, before or after it was
  // measured.
  int64_t ErrorNs(int64_t here_ns) const;

 private:
  bool is_known_ = false;
  bool drifts_ = true;
  int64_t offset_ns_ = 0;
  int64_t error_ns_ = 0;  // At `measured_ns_`.
  int64_t measured_ns_ = 0;
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_TIMES_CLOCK_OFFSET_H_
