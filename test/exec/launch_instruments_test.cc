#include "exec/launch_instruments.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "test/exec/issuer_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::Buckets;
using test::IssuerRig;
using test::IssuerRigSpec;

using Mode = IssuerRigSpec::Mode;

// Says at each reading that another 10 ns have passed.
class CountingClock final : public Clock {
 public:
  int64_t NowNs() const override { return 10 * ++readings_; }
  int64_t readings() const { return readings_; }

 private:
  mutable int64_t readings_ = 0;
};

// An observer plugin that notes what it is told.
class Log {
 public:
  Log() {
    table_.struct_size = sizeof(table_);
    table_.abi = COMMSCHED_OBSERVER_ABI;
    table_.name = "log";
    table_.events = ~uint32_t{0};
    table_.attach = [](const commsched_observed_plan_t*, void** out, char*,
                       uint64_t) {
      *out = current_;
      return commsched_status_t{COMMSCHED_OK};
    };
    table_.on_event = [](void* self, const commsched_observer_event_t* event,
                         char*, uint64_t) {
      static_cast<Log*>(self)->events_.push_back(*event);
      return commsched_status_t{COMMSCHED_OK};
    };
    table_.detach = [](void*) {};
    current_ = this;
  }
  const commsched_observer_t* table() const { return &table_; }
  // How often an event of `kind` came.
  int Count(uint32_t kind) const {
    int count = 0;
    for (const auto& event : events_) count += event.kind == kind ? 1 : 0;
    return count;
  }

 private:
  static inline Log* current_ = nullptr;
  commsched_observer_t table_ = {};
  std::vector<commsched_observer_event_t> events_;
};

class LaunchInstrumentsTest : public testing::Test {
 protected:
  LaunchInstruments Of(IssuerRig& rig, StepInstruments instruments = {}) {
    instruments.clock = &clock_;
    return LaunchInstruments(rig.program(), /*codec=*/nullptr, instruments);
  }

  CountingClock clock_;
  Recorder recorder_{Recorder::kMinCapacity};
};

TEST_F(LaunchInstrumentsTest, TheClockIsNotReadIfNobodyListens) {
  IssuerRig rig({.graph = Buckets(1)});
  LaunchInstruments instruments = Of(rig);
  instruments.Due(1);
  LaunchMark mark = instruments.Issuing(0, 0, 16, 0);
  instruments.Issued(0, 0, mark);
  instruments.Completed(0, 0, 5, &mark);
  EXPECT_EQ(instruments.Retired(0, 0, mark), 0);
  EXPECT_EQ(clock_.readings(), 0);
  EXPECT_FALSE(instruments.tells_ends());
  EXPECT_FALSE(instruments.notes_ready());
}

TEST_F(LaunchInstrumentsTest, ATraceHasTheLaunchAndWhatHeldItBack) {
  IssuerRig rig({.graph = Buckets(2)});
  rig.program().first_step = 100;
  LaunchInstruments instruments = Of(rig, {.recorder = &recorder_});
  ASSERT_TRUE(instruments.notes_ready());
  instruments.NoteReady(1, 7, 3);
  LaunchMark mark = instruments.Issuing(1, 7, 48, 0);
  EXPECT_EQ(mark.begin_ns, 10);
  instruments.Completed(1, 7, 15, &mark);
  EXPECT_EQ(instruments.Retired(1, 7, mark), 20);
  const std::vector<Record> records = recorder_.Snapshot();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].begin_ns, 10);
  EXPECT_EQ(records[0].end_ns, 20);
  EXPECT_EQ(records[0].step, 107u);
  EXPECT_EQ(records[0].value, 48u);
  EXPECT_EQ(records[0].index, 1u);
  const std::vector<Record> holds = recorder_.SnapshotOfHolds();
  ASSERT_EQ(holds.size(), 1u);
  EXPECT_EQ(HoldOf(holds[0]).ready_ns, 3);
  EXPECT_EQ(HoldOf(holds[0]).started_ns, 15);
}

// Those of others are issued when they are due.
TEST_F(LaunchInstrumentsTest, HoldsAreTracedOfPolledLaunchesOnly) {
  for (const Mode mode : {Mode::kInline, Mode::kEnqueued}) {
    IssuerRig rig({.graph = Buckets(1), .mode = mode});
    LaunchInstruments instruments = Of(rig, {.recorder = &recorder_});
    EXPECT_FALSE(instruments.notes_ready());
    instruments.Retired(0, 0, instruments.Issuing(0, 0, 16, 0));
  }
  EXPECT_EQ(recorder_.Snapshot().size(), 2u);
  EXPECT_TRUE(recorder_.SnapshotOfHolds().empty());
}

TEST_F(LaunchInstrumentsTest, ATimeThatTheCallerHasReadIsTaken) {
  IssuerRig rig({.graph = Buckets(1)});
  LaunchInstruments instruments = Of(rig, {.recorder = &recorder_});
  EXPECT_EQ(instruments.Issuing(0, 0, 16, 77).begin_ns, 77);
  EXPECT_EQ(clock_.readings(), 0);
}

// Whether the trace may go on from the end: not if observers have run since.
TEST_F(LaunchInstrumentsTest, TheTimeOfObserversIsNoLaunchs) {
  Log log;
  IssuerRig rig({.graph = Buckets(1), .mode = Mode::kInline});
  Observers observers({log.table()}, rig.program(), 0, 1);
  LaunchInstruments instruments =
      Of(rig, {.recorder = &recorder_, .observers = &observers});
  const LaunchMark mark = instruments.Issuing(0, 0, 16, 0);
  instruments.Issued(0, 0, mark);
  EXPECT_EQ(log.Count(COMMSCHED_OBSERVE_LAUNCH_BEGIN), 1);
  EXPECT_EQ(log.Count(COMMSCHED_OBSERVE_LAUNCH_END), 0);
  EXPECT_EQ(instruments.Retired(0, 0, mark), 0);
  EXPECT_EQ(log.Count(COMMSCHED_OBSERVE_LAUNCH_END), 1);
}

// By the monitor: observers are called by one thread.
TEST_F(LaunchInstrumentsTest, ObserversHearOfAnEnqueuedLaunchWhenItRetires) {
  Log log;
  IssuerRig rig({.graph = Buckets(1), .mode = Mode::kEnqueued});
  Observers observers({log.table()}, rig.program(), 0, 1);
  LaunchInstruments instruments = Of(rig, {.observers = &observers});
  const LaunchMark mark = instruments.Issuing(0, 0, 16, 0);
  instruments.Issued(0, 0, mark);
  EXPECT_EQ(log.Count(COMMSCHED_OBSERVE_LAUNCH_BEGIN), 0);
  instruments.Retired(0, 0, mark);
  EXPECT_EQ(log.Count(COMMSCHED_OBSERVE_LAUNCH_BEGIN), 1);
  EXPECT_EQ(log.Count(COMMSCHED_OBSERVE_LAUNCH_END), 1);
}

TEST_F(LaunchInstrumentsTest, ObserversHearOfAFailureOnce) {
  Log log;
  IssuerRig rig({.graph = Buckets(1)});
  Observers observers({log.table()}, rig.program(), 0, 1);
  LaunchInstruments instruments = Of(rig, {.observers = &observers});
  Failure failure;
  instruments.TellFailed(failure);
  EXPECT_EQ(log.Count(COMMSCHED_OBSERVE_FAILURE), 0);
  failure.Set(absl::AbortedError("stop"));
  instruments.TellFailed(failure);
  const int64_t readings = clock_.readings();
  instruments.TellFailed(failure);
  EXPECT_EQ(log.Count(COMMSCHED_OBSERVE_FAILURE), 1);
  EXPECT_EQ(clock_.readings(), readings);
}

TEST_F(LaunchInstrumentsTest, AStallIsChargedToItsCause) {
  IssuerRig rig({.graph = Buckets(1)});
  LaunchInstruments instruments = Of(rig);
  instruments.Resumed();  // From no stall.
  instruments.Stalled(StallCause::kWindow);
  instruments.Resumed();
  instruments.Resumed();
  EXPECT_EQ(instruments.StallNs(StallCause::kWindow), 10);
  EXPECT_EQ(instruments.StallNs(StallCause::kDue), 0);
}

}  // namespace
}  // namespace commsched
