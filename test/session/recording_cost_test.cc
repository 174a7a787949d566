// What the calls of a frozen step cost beside those of an explicit session of
// the same plan.
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status_macros.h"
#include "device/device_counters.h"
#include "gtest/gtest.h"
#include "test/session/recording_rig.h"
#include "test/support/alloc_counter.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::ModulesRank;
using test::ModulesSpec;

TEST(RecordingCostTest, AFrozenStepAllocatesNothing) {
  ModulesSpec spec;
  spec.ranks = 2;
  uint64_t allocations = 0, contended = 0, events = 0;
  const auto statuses =
      test::RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
        const std::vector<int> order = {0, 1, 2, 3};
        for (int t = 0; t < 10; ++t) RETURN_IF_ERROR(rank.Step(order, t));
        RETURN_IF_ERROR(rank.recording().Drain());
        const uint64_t allocations_before = HeapAllocations();
        const uint64_t contended_before =
            GlobalBlockingCounters().contended_locks;
        const uint64_t events_before = GlobalDeviceCounters().events_created;
        // Each step waits for the other rank's step before: by the 100th, the
        // other is in its own 99th or later.
        for (int t = 10; t < 110; ++t) {
          RETURN_IF_ERROR(rank.Step(order, t));
        }
        if (rank.rank() == 0) {
          allocations = HeapAllocations() - allocations_before;
          contended =
              GlobalBlockingCounters().contended_locks - contended_before;
          events = GlobalDeviceCounters().events_created - events_before;
        }
        return rank.recording().Drain();
      });
  for (const absl::Status& status : statuses) ASSERT_OK(status);
  EXPECT_EQ(allocations, 0u);
  EXPECT_EQ(contended, 0u);
  EXPECT_EQ(events, 0u);
}

}  // namespace
}  // namespace commsched
