#include "comm/emulated_link.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "base/checked_math.h"

namespace commsched {

int64_t EmulatedLink::DurationNs(double bytes) const {
  // About 30 years: beyond it sums of times would leave int64.
  constexpr double kMaxNs = 1e18;
  const double transfer_ns = bytes / spec_.bytes_per_s * 1e9;
  const double total_ns = static_cast<double>(spec_.latency_ns) + transfer_ns;
  return static_cast<int64_t>(std::llround(std::min(total_ns, kMaxNs)));
}

int64_t EmulatedLink::Book(absl::Span<const int32_t> ranks, int64_t arrived_ns,
                           double bytes) {
  if (!enabled() || ranks.size() < 2) return arrived_ns;
  const int64_t duration_ns = DurationNs(bytes);
  while (busy_.test_and_set(std::memory_order_acquire)) {
    std::this_thread::yield();
  }
  int64_t start_ns = arrived_ns;
  for (const int32_t rank : ranks) {
    start_ns = std::max(start_ns, free_at_ns_[rank]);
  }
  // The end of time: a link that is booked for ever stays so.
  constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
  const int64_t end_ns = CheckedAdd(start_ns, duration_ns).value_or(kEnd);
  for (const int32_t rank : ranks) free_at_ns_[rank] = end_ns;
  busy_.clear(std::memory_order_release);
  return end_ns;
}

}  // namespace commsched
