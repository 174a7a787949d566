#include "base/blame.h"

#include <algorithm>
#include <utility>

namespace commsched {

BusyTime::BusyTime(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) {
              return a.begin_ns < b.begin_ns;
            });
  for (const Interval& each : intervals) {
    if (each.begin_ns >= each.end_ns) continue;
    if (!merged_.empty() && each.begin_ns <= merged_.back().end_ns) {
      merged_.back().end_ns = std::max(merged_.back().end_ns, each.end_ns);
    } else {
      merged_.push_back(each);
    }
  }
  before_.push_back(0);
  for (const Interval& each : merged_) {
    before_.push_back(before_.back() + each.end_ns - each.begin_ns);
  }
}

int64_t BusyTime::BusyBefore(int64_t at_ns) const {
  // The first interval that ends after `at_ns`.
  const auto it = std::partition_point(
      merged_.begin(), merged_.end(),
      [&](const Interval& each) { return each.end_ns <= at_ns; });
  const size_t i = static_cast<size_t>(it - merged_.begin());
  if (it == merged_.end()) return total_ns();
  return before_[i] + std::max<int64_t>(0, at_ns - it->begin_ns);
}

int64_t BusyTime::Covered(Interval span) const {
  if (span.begin_ns >= span.end_ns) return 0;
  return BusyBefore(span.end_ns) - BusyBefore(span.begin_ns);
}

// Moving a span later, what it covers stops growing only where its begin enters
// an interval or its end leaves one.
int64_t BusyTime::MostCovered(int64_t length_ns, int64_t earliest_ns,
                              int64_t latest_ns) const {
  int64_t most = 0;
  const auto consider = [&](int64_t begin_ns) {
    if (begin_ns < earliest_ns || begin_ns > latest_ns) return;
    most = std::max(most, Covered({begin_ns, begin_ns + length_ns}));
  };
  consider(latest_ns);
  consider(earliest_ns);
  auto it = std::partition_point(merged_.begin(), merged_.end(),
                                 [&](const Interval& each) {
                                   return each.begin_ns < latest_ns + length_ns;
                                 });
  for (size_t i = 0; i < kMaxLookBack && it != merged_.begin(); ++i) {
    --it;
    if (most == length_ns || it->end_ns <= earliest_ns) break;
    consider(it->begin_ns);
    consider(it->end_ns - length_ns);
  }
  return most;
}

Blame& Blame::operator+=(const Blame& other) {
  cap_ns += other.cap_ns;
  dependency_ns += other.dependency_ns;
  order_ns += other.order_ns;
  link_ns += other.link_ns;
  straggler_ns += other.straggler_ns;
  return *this;
}

Blame ShareOut(int64_t exposed_ns, const HeldTransfer& transfer,
               const BusyTime& compute) {
  Blame blame;
  int64_t left_ns = exposed_ns;
  // What a transfer that covers `covered_ns` of compute would save.
  const auto saved_by = [&](int64_t covered_ns) {
    const int64_t saved_ns =
        std::max<int64_t>(0, left_ns - (transfer.length_ns - covered_ns));
    left_ns -= saved_ns;
    return saved_ns;
  };
  const auto saved_from = [&](int64_t begin_ns) {
    if (left_ns == 0) return left_ns;
    return saved_by(compute.Covered({begin_ns, begin_ns + transfer.length_ns}));
  };
  blame.straggler_ns = saved_from(transfer.without_straggler_ns);
  blame.cap_ns = saved_from(transfer.without_cap_ns);
  blame.order_ns = saved_from(transfer.without_order_ns);
  const int64_t queue_ns = saved_from(transfer.without_queue_ns);
  if (left_ns != 0) {
    blame.dependency_ns = saved_by(
        compute.MostCovered(transfer.length_ns, transfer.without_dependency_ns,
                            transfer.without_queue_ns));
  }
  blame.link_ns = queue_ns + left_ns;
  return blame;
}

}  // namespace commsched
