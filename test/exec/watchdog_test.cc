#include "exec/watchdog.h"

#include <memory>

#include "base/mutex.h"
#include "exec/program.h"
#include "gtest/gtest.h"
#include "plan/plan.h"

namespace commsched {
namespace {

constexpr int64_t kTimeoutNs = 100;

class WatchdogTest : public testing::Test {
 protected:
  WatchdogTest() : program_(TwoLanes()), watchdog_(Spec()) {}

  static Program TwoLanes() {
    auto plan = std::make_shared<Plan>();
    plan->num_comm_lanes = 2;
    Program program;
    program.plan = std::move(plan);
    return program;
  }
  Watchdog::Spec Spec() const {
    Watchdog::Spec spec;
    spec.program = &program_;
    spec.backend = &backend_;
    spec.timeout_ns = kTimeoutNs;
    return spec;
  }

  const Program program_;
  const commsched_backend_t backend_ = {};
  Watchdog watchdog_;
};

TEST_F(WatchdogTest, ALanesTimeRunsFromTheNextLook) {
  watchdog_.Restart(0);
  EXPECT_EQ(watchdog_.DeadlineNs(0), kNoDeadlineNs);
  watchdog_.Look(1000);
  EXPECT_EQ(watchdog_.DeadlineNs(0), 1000 + kTimeoutNs);
}

TEST_F(WatchdogTest, ALookAloneStartsNothingAgain) {
  watchdog_.Restart(0);
  watchdog_.Restart(1);
  watchdog_.Look(1000);
  watchdog_.Restart(1);
  watchdog_.Look(1050);
  EXPECT_EQ(watchdog_.DeadlineNs(0), 1000 + kTimeoutNs);
  EXPECT_EQ(watchdog_.DeadlineNs(1), 1050 + kTimeoutNs);
}

}  // namespace
}  // namespace commsched
