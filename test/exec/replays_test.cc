#include "exec/replays.h"

#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "test/exec/issuer_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

// One step that is the launch of a graph, and nothing of it complete.
class ReplaysTest : public testing::Test {
 protected:
  ReplaysTest() {
    ReplaysSpec spec;
    spec.program = &rig_.program();
    spec.device = &rig_.device();
    spec.lane_ends = {lane_end_.get()};
    replays_ = Replays::Create(std::move(spec)).value();
    replays_->OrderReplay(stream_.get(), 0);
    replays_->End(1);
  }

  test::IssuerRig rig_{{.graph = test::Buckets(1),
                        .mode = test::IssuerRigSpec::Mode::kEnqueued}};
  const std::unique_ptr<Event> lane_end_ = rig_.device().CreateEvent(1).value();
  const std::unique_ptr<Stream> stream_ =
      rig_.device().CreateSideStream().value();
  std::unique_ptr<Replays> replays_;
};

TEST_F(ReplaysTest, PoisonEndsEveryWaitOfTheHost) {
  replays_->Poison();
  replays_->Await(1);
  EXPECT_TRUE(lane_end_->IsComplete(7));
}

// Their events tell which memory is free.
TEST_F(ReplaysTest, PoisonLeavesTheEventsOfComputeOpsAlone) {
  replays_->Poison();
  replays_->Await(1);
  replays_->Settle();
  EXPECT_FALSE(rig_.program().nodes[0].event->IsComplete(1));
}

}  // namespace
}  // namespace commsched
