#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "session/session.h"
#include "test/support/fault_backend.h"
#include "test/support/graph_builder.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"
#include "test/support/virtual_job.h"

namespace commsched {
namespace {

constexpr int64_t kMsNs = 1'000'000;

// Three launches of one lane, all issued at once, that end one after the other.
TEST(DeadlineTest, CountsFromTheLastPredecessorAndNotFromTheIssue) {
  test::GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  std::vector<test::Fault> delays;
  for (int i = 0; i < 3; ++i) {
    const BufferId x = b.Buffer(absl::StrCat("x", i), 16);
    b.Compute(absl::StrCat("make", i), {test::ReadWrite(x)});
    b.AllReduce(absl::StrCat("sum", i), dp, x);
    delays.push_back({.launch = i, .delay_ns = (i + 1) * 600 * kMsNs});
  }
  test::FaultBackend faults(delays);
  WorldSpec world;
  world.size = 2;
  test::SessionRig rig(faults.Spec(world), b.graph(), {});
  std::vector<SessionSpec> specs = {rig.Spec(0), rig.Spec(1)};
  for (SessionSpec& spec : specs) spec.launch_timeout_ns = 1000 * kMsNs;
  auto job = test::VirtualJob::Create(specs, 7).value();
  faults.UseClock(&job->clock());
  EXPECT_OK(job->Run(1, nullptr));
  EXPECT_GE(job->clock().NowNs(), 1800 * kMsNs);
}

}  // namespace
}  // namespace commsched
