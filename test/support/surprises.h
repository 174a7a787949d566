// What a steady-state step does not do (I6), counted.
//
// The counters are the process's: while one rank counts, no other may be
// creating or ending anything. Ranks that meet in every step are warm after a
// few, and go on for a few after those that are counted.
#ifndef COMMSCHED_TEST_SUPPORT_SURPRISES_H_
#define COMMSCHED_TEST_SUPPORT_SURPRISES_H_

#include <cstdint>

#include "base/mutex.h"
#include "device/device_counters.h"
#include "gtest/gtest.h"
#include "test/support/alloc_counter.h"

namespace commsched::test {

// Made, what was counted since the process started.
struct Surprises {
  uint64_t allocations = HeapAllocations();
  uint64_t contended_locks = GlobalBlockingCounters().contended_locks;
  uint64_t events = GlobalDeviceCounters().events_created;
  uint64_t streams = GlobalDeviceCounters().streams_created;
};

inline void ExpectNoneBetween(const Surprises& begin, const Surprises& end) {
  EXPECT_EQ(end.allocations, begin.allocations);
  EXPECT_EQ(end.contended_locks, begin.contended_locks);
  EXPECT_EQ(end.events, begin.events);
  EXPECT_EQ(end.streams, begin.streams);
}

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_SUPPORT_SURPRISES_H_
