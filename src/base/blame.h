// What exposed communication is owed to: docs/blame.md. Used of predictions
// (plan) and of runs (trace) alike.
#ifndef COMMSCHED_SRC_BASE_BLAME_H_
#define COMMSCHED_SRC_BASE_BLAME_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace commsched {

// [begin_ns, end_ns)
struct Interval {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

// Time without gaps within an interval, and none between two: merged.
class BusyTime {
 public:
  BusyTime() = default;
  // In any order, overlapping or not; those that end before they begin count
  // as empty.
  explicit BusyTime(std::vector<Interval> intervals);

  const std::vector<Interval>& intervals() const { return merged_; }
  int64_t total_ns() const { return before_.empty() ? 0 : before_.back(); }

  // How much of `span` is busy. O(log n).
  int64_t Covered(Interval span) const;

  // The most that is covered of a span of `length_ns` that begins in
  // [earliest_ns, latest_ns]. Looks at the kMaxLookBack intervals before its
  // end; what lies before them is left out.
  int64_t MostCovered(int64_t length_ns, int64_t earliest_ns,
                      int64_t latest_ns) const;
  static constexpr size_t kMaxLookBack = 256;

 private:
  int64_t BusyBefore(int64_t at_ns) const;

  std::vector<Interval> merged_;
  std::vector<int64_t> before_;  // busy time up to the end of each; 0 first
};

// Nanoseconds of exposed communication, each counted once.
struct Blame {
  int64_t cap_ns = 0;
  int64_t dependency_ns = 0;
  int64_t order_ns = 0;
  int64_t link_ns = 0;
  int64_t straggler_ns = 0;

  int64_t total_ns() const {
    return cap_ns + dependency_ns + order_ns + link_ns + straggler_ns;
  }
  Blame& operator+=(const Blame& other);
  friend bool operator==(const Blame&, const Blame&) = default;
};

// A transfer of `length_ns` on the wire, and where it would have begun had less
// held it back. Each time leaves out what the ones before
// it leave out as well, so they fall.
struct HeldTransfer {
  int64_t length_ns = 0;
  int64_t without_straggler_ns = 0;
  int64_t without_cap_ns = 0;
  int64_t without_order_ns = 0;
  int64_t without_queue_ns = 0;       // nor a link that is busy with others
  int64_t without_dependency_ns = 0;  // the earliest that makes sense
};

// Shares `exposed_ns` of a transfer out. A cause gets what would not have been
// exposed without it, everything else staying where it was; causes are taken
// away in the order of HeldTransfer, and what remains is the link's. No part is
// negative, and their sum is `exposed_ns`.
Blame ShareOut(int64_t exposed_ns, const HeldTransfer& transfer,
               const BusyTime& compute);

}  // namespace commsched

#endif  // COMMSCHED_SRC_BASE_BLAME_H_
