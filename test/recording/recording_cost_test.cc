// What the calls of a frozen step cost beside those of an explicit session of
// the same plan.
#include <memory>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "test/recording/recording_rig.h"
#include "test/support/status_matchers.h"
#include "test/support/surprises.h"

namespace commsched {
namespace {

using test::ModulesRank;
using test::ModulesSpec;

TEST(RecordingCostTest, AFrozenStepAllocatesNothing) {
  ModulesSpec spec;
  spec.ranks = 2;
  test::Surprises begin, end;
  const auto statuses =
      test::RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
        const std::vector<int> order = {0, 1, 2, 3};
        int t = 0;
        const auto run = [&](int steps) -> absl::Status {
          for (const int last = t + steps; t < last; ++t) {
            RETURN_IF_ERROR(rank.Step(order, t));
          }
          return absl::OkStatus();
        };
        RETURN_IF_ERROR(run(10));
        if (rank.rank() == 0) begin = test::Surprises();
        RETURN_IF_ERROR(run(100));
        if (rank.rank() == 0) end = test::Surprises();
        RETURN_IF_ERROR(run(10));
        return rank.recording().Drain();
      });
  for (const absl::Status& status : statuses) ASSERT_OK(status);
  test::ExpectNoneBetween(begin, end);
}

}  // namespace
}  // namespace commsched
