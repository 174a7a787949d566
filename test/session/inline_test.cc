// Sessions whose launches go out on the thread that makes them due.
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "device/device_counters.h"
#include "device/host_device.h"
#include "gtest/gtest.h"
#include "test/support/await.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::SessionRig;

// WRITE writes a buffer, SUM reduces it, READ reads the result.
struct SumGraph {
  Graph graph;
  BufferId buffer;
  OpId write, sum, read;
};

SumGraph MakeSum() {
  SumGraph made;
  const GroupId group = made.graph.AddGroup("dp", 1).value();
  Buffer buffer;
  buffer.name = "gradient";
  buffer.ownership = Ownership::kBound;
  buffer.count = 4;
  made.buffer = made.graph.AddBuffer(buffer).value();
  Op op;
  op.name = "WRITE";
  op.accesses = {{made.buffer, AccessMode::kWrite, {}}};
  made.write = made.graph.AddOp(op).value();
  Op sum;
  sum.name = "SUM";
  sum.kind = OpKind::kCollective;
  sum.collective.group = group;
  sum.collective.input = {made.buffer, AccessMode::kRead, {}};
  sum.collective.output = {made.buffer, AccessMode::kWrite, {}};
  made.sum = made.graph.AddOp(sum).value();
  op.name = "READ";
  op.accesses = {{made.buffer, AccessMode::kRead, {}}};
  made.read = made.graph.AddOp(op).value();
  return made;
}

std::atomic<uint64_t> num_begun{0}, num_complete{0};

// Gives others the time to go wrong.
commsched_status_t LaunchSlowly(void*, const commsched_launch_t*, uint32_t,
                                commsched_stream_t, char*, uint64_t) {
  num_begun.fetch_add(1);
  for (int i = 0; i < 200; ++i) std::this_thread::yield();
  num_complete.fetch_add(1);
  return COMMSCHED_OK;
}

// One rank on the null backend, the launches of which may be slow.
class InlineTest : public testing::Test {
 protected:
  InlineTest()
      : made_(MakeSum()),
        world_(World::Create(NullWorld()).value()),
        slow_(*world_->backend()) {
    slow_.launch = &LaunchSlowly;
    num_begun = num_complete = 0;
  }

  static WorldSpec NullWorld() {
    WorldSpec world;
    world.size = 1;
    world.backend = "null";
    return world;
  }
  WorldSpec SlowWorld() const {
    WorldSpec world = NullWorld();
    world.table = &slow_;
    return world;
  }

  const SumGraph made_;
  const std::shared_ptr<World> world_;
  commsched_backend_t slow_;
};

absl::Status NoWork(void*, OpId, Stream*) { return absl::OkStatus(); }

TEST_F(InlineTest, NothingNeedsAnEvent) {
  SessionRig rig(NullWorld(), made_.graph, {});
  const uint64_t before = GlobalDeviceCounters().events_created;
  std::unique_ptr<Session> session = Session::Create(rig.Spec(0)).value();
  EXPECT_EQ(GlobalDeviceCounters().events_created, before);

  ASSERT_OK(session->Run(NoWork, nullptr, 2));

  EXPECT_OK(session->BufferRelease(made_.buffer, CallerStream()));
  EXPECT_OK(session->Drain());
  EXPECT_EQ(session->BufferVersion(made_.buffer).value(), 2u);
  EXPECT_EQ(session->counters().launches, 2u);
}

// Whoever needs a launch that another thread is issuing waits for it.
TEST_F(InlineTest, WhatIsDueIsComplete) {
  SessionRig rig(SlowWorld(), made_.graph, {});
  std::unique_ptr<Session> session = Session::Create(rig.Spec(0)).value();
  for (uint64_t step = 0; step < 100; ++step) {
    ASSERT_OK(session->StepBegin());
    absl::Status written;
    std::thread writer([&] {
      written = session->Before(made_.write, CallerStream());
      if (!written.ok()) return;
      written = session->After(made_.write, CallerStream());
    });
    EXPECT_TRUE(test::Await([&] { return num_begun.load() != step; }));
    const absl::Status read = session->Before(made_.read, CallerStream());
    EXPECT_EQ(num_complete.load(), step + 1);
    EXPECT_EQ(session->BufferVersion(made_.buffer).value(), step + 1);
    writer.join();
    ASSERT_OK(written);
    ASSERT_OK(read);
    ASSERT_OK(session->After(made_.read, CallerStream()));
    ASSERT_OK(session->StepEnd());
  }
}

}  // namespace
}  // namespace commsched
