// What a tool of NVTX's is told of a session's steps.
#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "device/host_device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/nvtx/nvtx_tool.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::SessionRig;
using test::TakeToolNames;
using test::TakeToolRanges;
using test::ToolRange;
using testing::ElementsAre;
using testing::StartsWith;

// "backward" writes what "reduce" sums up.
Graph NvtxStep() {
  Graph graph;
  Buffer buffer;
  buffer.name = "gradient";
  buffer.count = 16;
  buffer.ownership = Ownership::kBound;
  const BufferId gradient = graph.AddBuffer(buffer).value();
  Op backward;
  backward.name = "backward";
  backward.accesses = {{gradient, AccessMode::kWrite, {}}};
  (void)graph.AddOp(backward).value();
  Op reduce;
  reduce.name = "reduce";
  reduce.kind = OpKind::kCollective;
  reduce.collective.group = graph.AddGroup("dp", 1).value();
  reduce.collective.input = {gradient, AccessMode::kRead, {}};
  reduce.collective.output = {gradient, AccessMode::kWrite, {}};
  (void)graph.AddOp(reduce).value();
  return graph;
}

absl::Status EnqueueNvtxStep(Session& session) {
  RETURN_IF_ERROR(session.StepBegin());
  for (const ComputeNode& node : session.plan().nodes) {
    RETURN_IF_ERROR(session.Before(node.op, CallerStream()));
    RETURN_IF_ERROR(session.After(node.op, CallerStream()));
  }
  return session.StepEnd();
}

class NvtxTest : public testing::Test {
 protected:
  // What the tool is told while `body` runs on a session of one rank.
  template <typename Body>
  std::vector<ToolRange> RangesOf(const Body& body) {
    (void)TakeToolRanges();
    WorldSpec world;
    world.size = 1;
    SessionRig rig(world, NvtxStep(), {});
    for (const absl::Status& status :
         rig.RunSessions([&](Session&session, int) -> absl::Status {
           RETURN_IF_ERROR(body(session));
           return session.Drain();
         })) {
      EXPECT_OK(status);
    }
    return TakeToolRanges();
  }

  static std::vector<ToolRange> Named(const std::vector<ToolRange>& ranges,
                                      const std::string& prefix) {
    std::vector<ToolRange> named;
    std::copy_if(ranges.begin(), ranges.end(), std::back_inserter(named),
                 [&](const ToolRange& range) {
                   return range.name.rfind(prefix, 0) == 0;
                 });
    return named;
  }
};

TEST_F(NvtxTest, AStepAnOpAndALaunchAreRangesWithTheirNames) {
  const std::vector<ToolRange> ranges = RangesOf(EnqueueNvtxStep);
  ASSERT_EQ(ranges.size(), 3u);
  for (const ToolRange& range : ranges) {
    EXPECT_EQ(range.domain, "commsched");
    EXPECT_GT(range.end, range.begin) << range.name << " is open";
  }
  EXPECT_EQ(ranges[0].name, "step");
  EXPECT_EQ(ranges[1].name, "backward");
  EXPECT_EQ(ranges[2].name, "#0 all_reduce 'reduce' on axis dp");
}

TEST_F(NvtxTest, OpsLieWithinTheirStepAndLaunchesBehindTheirProducers) {
  for (const bool by_run : {false, true}) {
    const std::vector<ToolRange> ranges =
        RangesOf([&](Session& session) -> absl::Status {
          if (by_run) {
            return session.Run(
                [](void*, OpId, Stream*) { return absl::OkStatus(); }, nullptr,
                2);
          }
          RETURN_IF_ERROR(EnqueueNvtxStep(session));
          return EnqueueNvtxStep(session);
        });
    const auto steps = Named(ranges, "step");
    const auto ops = Named(ranges, "backward");
    const auto launches = Named(ranges, "#0");
    ASSERT_EQ(steps.size(), 2u) << by_run;
    ASSERT_EQ(ops.size(), 2u) << by_run;
    ASSERT_EQ(launches.size(), 2u) << by_run;
    for (int t = 0; t < 2; ++t) {
      EXPECT_LT(steps[t].begin, ops[t].begin) << by_run;
      EXPECT_LT(ops[t].end, steps[t].end) << by_run;
      EXPECT_LT(ops[t].end, launches[t].begin) << by_run;
      EXPECT_LT(launches[t].begin, launches[t].end) << by_run;
    }
    EXPECT_LT(steps[0].end, steps[1].begin) << by_run;
  }
}

TEST_F(NvtxTest, NamesAreRegisteredBeforeTheFirstStep) {
  (void)TakeToolNames();
  (void)RangesOf([](Session& session) -> absl::Status {
    EXPECT_GT(TakeToolNames(), 0u);
    for (int t = 0; t < 3; ++t) RETURN_IF_ERROR(EnqueueNvtxStep(session));
    EXPECT_EQ(TakeToolNames(), 0u);
    return absl::OkStatus();
  });
}

}  // namespace
}  // namespace commsched
