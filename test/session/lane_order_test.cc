// Launches of a lane are over in its order, whatever order a backend reports:
// who waits for one need not wait for those before it.
#include <cstdint>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "session/session.h"
#include "test/support/fault_backend.h"
#include "test/support/graph_builder.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"
#include "test/support/virtual_job.h"

namespace commsched {
namespace {

using test::Fault;
using test::FaultBackend;
using test::GraphBuilder;
using test::Read;
using test::SessionRig;
using test::VirtualJob;
using test::Write;

constexpr int kRanksOfLanes = 2;

TEST(LaneOrderTest, ALaunchIsNotOverBeforeThoseAheadOfItOnItsLane) {
  GraphBuilder builder;
  const GroupId slow = builder.Group("slow", kRanksOfLanes);
  const GroupId fast = builder.Group("fast", kRanksOfLanes);
  const BufferId x = builder.Buffer("x", 16);
  const BufferId y = builder.Buffer("y", 16);
  builder.Compute("make", {Write(x), Write(y)});
  builder.AllReduce("sum_x", slow, x);
  builder.AllReduce("sum_y", fast, y);
  const OpId use = builder.Compute("use", {Read(x), Read(y)});

  FaultBackend faults(
      {{.kind = Fault::Kind::kDelay, .axis = "slow", .delay_ns = 1'000'000}});
  WorldSpec inner;
  inner.size = kRanksOfLanes;
  SessionRig rig(faults.Spec(inner), builder.graph(), {});
  auto job = VirtualJob::Create({rig.Spec(0), rig.Spec(1)}, 7).value();
  faults.UseClock(&job->clock());
  uint64_t uses = 0;
  ASSERT_OK(job->Run(3, [&](int rank, OpId op, uint64_t step) {
    if (op != use) return;
    ++uses;
    EXPECT_EQ(job->session(rank).BufferVersion(x).value(), step + 1);
    EXPECT_EQ(job->session(rank).BufferVersion(y).value(), step + 1);
  }));
  EXPECT_EQ(uses, 3u * kRanksOfLanes);
  EXPECT_EQ(faults.num_injected(0), 3u * kRanksOfLanes);
}

}  // namespace
}  // namespace commsched
