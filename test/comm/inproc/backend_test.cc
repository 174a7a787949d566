// What only the in-process backend promises; what every backend promises is in
// test/conformance.
#include "comm/inproc/backend.h"

#include <barrier>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "comm/inproc/emulated_link.h"
#include "gtest/gtest.h"
#include "test/support/alloc_counter.h"
#include "test/support/comm_driver.h"
#include "test/support/launches.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

std::shared_ptr<World> WorldOf(int size, LinkSpec link = {}) {
  WorldSpec spec;
  spec.size = size;
  spec.backend_config = LinkConfig(link);
  return *World::Create(spec);
}

// An in-place all-reduce of `count` floats.
struct Sum {
  explicit Sum(uint64_t count) : data(count, 1.0f) {
    member = {data.data(), data.data(), count, nullptr, 0, 0, 0, 0};
    launch = LaunchOf(COMMSCHED_ALL_REDUCE, COMMSCHED_F32, COMMSCHED_MAX, 0, 1,
                      1, &member);
  }
  Sum(const Sum&) = delete;

  std::vector<float> data;
  commsched_member_t member;
  commsched_launch_t launch;
};

// Allocations, lock contentions and waits of all threads while every rank does
// `rounds` launches of `count` floats.
struct Costs {
  uint64_t allocations = 0, contended = 0, waits = 0;
};

Costs CostsOf(int size, uint64_t count, int rounds) {
  auto world = WorldOf(size);
  Costs before, after;
  const auto read = [](Costs* costs) {
    costs->allocations = HeapAllocations();
    costs->contended = GlobalBlockingCounters().contended_locks;
    costs->waits = GlobalBlockingCounters().condition_waits;
  };
  std::barrier<> meet(size);
  EXPECT_OK(RunAllRanks(size, [&](int rank) -> absl::Status {
    CommDriver comm;
    if (auto ok = comm.Create(world.get(), {}, rank); !ok.ok()) return ok;
    Sum sum(count);
    if (auto ok = comm.LaunchAndWait(sum.launch); !ok.ok()) return ok;
    meet.arrive_and_wait();
    if (rank == 0) read(&before);
    meet.arrive_and_wait();
    for (int i = 0; i < rounds; ++i) {
      if (auto ok = comm.LaunchAndWait(sum.launch); !ok.ok()) return ok;
    }
    meet.arrive_and_wait();
    if (rank == 0) read(&after);
    meet.arrive_and_wait();
    return absl::OkStatus();
  }));
  return {after.allocations - before.allocations,
          after.contended - before.contended, after.waits - before.waits};
}

TEST(InprocBackendTest, SmallLaunchesAllocateAndBlockNowhere) {
  const Costs costs = CostsOf(4, 1000, 300);
  EXPECT_EQ(costs.allocations, 0u);
  EXPECT_EQ(costs.contended, 0u);
  EXPECT_EQ(costs.waits, 0u);
}

TEST(InprocBackendTest, LargeLaunchesAllocateAndBlockNowhere) {
  const Costs costs = CostsOf(4, 300'000, 20);
  EXPECT_EQ(costs.allocations, 0u);
  EXPECT_EQ(costs.contended, 0u);
  EXPECT_EQ(costs.waits, 0u);
}

TEST(InprocBackendTest, TheLastToArriveDoesASmallTransferAtOnce) {
  auto world = WorldOf(2);
  CommDriver first, last;
  ASSERT_OK(first.Create(world.get(), {}, 0));
  ASSERT_OK(last.Create(world.get(), {}, 1));
  Sum a(100), b(100);
  b.data.assign(100, 7.0f);
  ASSERT_OK(first.Launch(a.launch));
  ASSERT_OK_AND_ASSIGN(const auto waiting, first.Poll());
  EXPECT_EQ(waiting.done, 0u);
  EXPECT_EQ(waiting.wake_at_ns, 0);
  ASSERT_OK(last.Launch(b.launch));
  EXPECT_EQ(a.data[99], 7.0f);
  ASSERT_OK_AND_ASSIGN(const auto idle, first.Wait());
  ASSERT_OK_AND_ASSIGN(const auto busy, last.Wait());
  EXPECT_EQ(idle.cpu_ns, 0);
  EXPECT_GT(busy.cpu_ns, 0);
  EXPECT_EQ(idle.started_ns, busy.started_ns);
}

TEST(InprocBackendTest, AnyMemberCanDoALargeTransfer) {
  auto world = WorldOf(2);
  CommDriver first, last;
  ASSERT_OK(first.Create(world.get(), {}, 0));
  ASSERT_OK(last.Create(world.get(), {}, 1));
  Sum a(200'000), b(200'000);
  b.data.assign(b.data.size(), 7.0f);
  ASSERT_OK(first.Launch(a.launch));
  ASSERT_OK(last.Launch(b.launch));
  ASSERT_OK_AND_ASSIGN(const auto worked, first.Poll());
  EXPECT_EQ(worked.done, 1u);
  EXPECT_GT(worked.cpu_ns, 0);
  EXPECT_EQ(a.data.back(), 7.0f);
  ASSERT_OK_AND_ASSIGN(const auto idle, last.Poll());
  EXPECT_EQ(idle.done, 1u);
  EXPECT_EQ(idle.cpu_ns, 0);
}

// One member sums up what all have: with its scale, if they differ.
TEST(InprocBackendTest, MembersGiveOneScale) {
  auto world = WorldOf(2);
  CommDriver first, last;
  ASSERT_OK(first.Create(world.get(), {}, 0));
  ASSERT_OK(last.Create(world.get(), {}, 1));
  Sum a(10), b(10);
  a.launch.reduce_op = b.launch.reduce_op = COMMSCHED_PREMUL_SUM;
  a.launch.scale = b.launch.scale = 0.5;
  ASSERT_OK(first.Launch(a.launch));
  ASSERT_OK(last.LaunchAndWait(b.launch));
  ASSERT_OK(first.Wait());
  EXPECT_EQ(a.data, std::vector<float>(10, 1.0f));
  b.launch.scale = 0.50000000000000011;
  ASSERT_OK(first.Launch(a.launch));
  EXPECT_THAT(last.LaunchAndWait(b.launch),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "rank 0 has scale 0.5, rank 1 has 0.50000000000000011"));
}

TEST(InprocBackendTest, AScaleOfAnotherReductionIsNotLookedAt) {
  auto world = WorldOf(2);
  CommDriver first, last;
  ASSERT_OK(first.Create(world.get(), {}, 0));
  ASSERT_OK(last.Create(world.get(), {}, 1));
  Sum a(10), b(10);
  a.launch.reduce_op = b.launch.reduce_op = COMMSCHED_SUM;
  b.launch.scale = 0.5;
  // A plugin that stands on this backend may end it before.
  a.launch.struct_size = offsetof(commsched_launch_t, scale);
  ASSERT_OK(first.Launch(a.launch));
  ASSERT_OK(last.LaunchAndWait(b.launch));
  EXPECT_EQ(a.data[9], 2.0f);
}

TEST(InprocBackendTest, WhatIsNotReducedIsRefusedByName) {
  const auto refused = [](auto change, const char* why) {
    auto world = WorldOf(1);
    CommDriver comm;
    ASSERT_OK(comm.Create(world.get(), {}, 0));
    Sum sum(10);
    change(&sum.launch);
    EXPECT_THAT(comm.Launch(sum.launch),
                StatusIs(absl::StatusCode::kInvalidArgument, why));
  };
  refused([](commsched_launch_t* l) { l->reduce_op = COMMSCHED_BAND; },
          "dtype f32 is not reduced by band, which takes i8, i32, i64, u8");
  refused(
      [](commsched_launch_t* l) {
        l->dtype = COMMSCHED_I32;
        l->reduce_op = COMMSCHED_PREMUL_SUM;
      },
      "dtype i32 is not reduced by premul_sum, which takes f32, f64, f16, "
      "bf16");
  refused([](commsched_launch_t* l) { l->dtype = COMMSCHED_BOOL; },
          "dtype bool is no launch's: it travels as one of f32, f64");
  refused(
      [](commsched_launch_t* l) {
        l->reduce_op = COMMSCHED_PREMUL_SUM;
        l->struct_size = offsetof(commsched_launch_t, scale);
      },
      "bytes, which ends before its scale; it must have ");
}

TEST(InprocBackendTest, LaunchesBecomeDoneInOrder) {
  auto world = WorldOf(1);
  CommDriver comm;
  ASSERT_OK(comm.Create(world.get(), {}, 0));
  Sum a(10), b(10);
  ASSERT_OK(comm.Launch(a.launch, 0));
  ASSERT_OK(comm.Launch(b.launch, 1));
  ASSERT_OK_AND_ASSIGN(const auto early, comm.Poll(1));
  EXPECT_EQ(early.done, 0u);
  ASSERT_OK_AND_ASSIGN(const auto oldest, comm.Poll(0));
  EXPECT_EQ(oldest.done, 1u);
  ASSERT_OK_AND_ASSIGN(const auto next, comm.Poll(1));
  EXPECT_EQ(next.done, 1u);
}

TEST(InprocBackendTest, PollingARequestThatIsNotInFlightIsAnError) {
  auto world = WorldOf(1);
  CommDriver comm;
  ASSERT_OK(comm.Create(world.get(), {}, 0));
  EXPECT_THAT(comm.Poll(0),
              StatusIs(absl::StatusCode::kInvalidArgument, "request 0"));
  EXPECT_THAT(comm.Poll(99),
              StatusIs(absl::StatusCode::kInvalidArgument, "request 99"));
}

TEST(InprocBackendTest, ALinkDelaysCompletionUntilTheScheduledEnd) {
  constexpr int64_t kLatencyNs = 2'000'000;
  auto world = WorldOf(2, {.bytes_per_s = 1e9, .latency_ns = kLatencyNs});
  CommDriver first, last;
  ASSERT_OK(first.Create(world.get(), {}, 0));
  ASSERT_OK(last.Create(world.get(), {}, 1));
  Sum a(250), b(250);  // 1000 bytes: 1 us on this link.
  ASSERT_OK(first.Launch(a.launch));
  ASSERT_OK(last.Launch(b.launch));
  ASSERT_OK_AND_ASSIGN(const auto early, first.Poll());
  const int64_t polled_ns = SystemClock::Get().NowNs();
  const int64_t end_ns = early.started_ns + kLatencyNs + 1000;
  // Unless this thread was held up for 2 ms.
  if (polled_ns < end_ns) {
    EXPECT_EQ(early.done, 0u);
    EXPECT_EQ(early.wake_at_ns, end_ns);
  }
  ASSERT_OK(last.Wait());
  EXPECT_GE(SystemClock::Get().NowNs(), end_ns);
}

TEST(InprocBackendTest, ALinkDelaysASendByItsBytesAlone) {
  constexpr int64_t kLatencyNs = 2'000'000;
  auto world = WorldOf(2, {.bytes_per_s = 1e9, .latency_ns = kLatencyNs});
  CommDriver from, to;
  ASSERT_OK(from.Create(world.get(), {}, 0));
  ASSERT_OK(to.Create(world.get(), {}, 1));
  std::vector<float> data(250, 1.0f), received(250);  // 1000 bytes: 1 us
  commsched_member_t send{}, receive{};
  send.input = data.data();
  receive.output = received.data();
  send.peer = 1;
  send.direction = COMMSCHED_SEND;
  receive.direction = COMMSCHED_RECV;
  send.count = receive.count = 250;
  commsched_launch_t sending{}, receiving{};
  sending.kind = receiving.kind = COMMSCHED_SEND;
  sending.num_members = receiving.num_members = 1;
  sending.members = &send;
  receiving.members = &receive;
  ASSERT_OK(from.Launch(sending));
  ASSERT_OK(to.Launch(receiving));
  ASSERT_OK_AND_ASSIGN(const auto early, to.Poll());
  const int64_t polled_ns = SystemClock::Get().NowNs();
  const int64_t end_ns = early.started_ns + kLatencyNs + 1000;
  // Unless this thread was held up for 2 ms.
  if (polled_ns < end_ns) {
    EXPECT_EQ(early.done, 0u);
    EXPECT_EQ(early.wake_at_ns, end_ns);
  }
  ASSERT_OK(from.Wait());
  EXPECT_GE(SystemClock::Get().NowNs(), end_ns);
  EXPECT_EQ(received, data);
}

TEST(InprocBackendTest, LinksAreSharedByTheCommunicatorsOfARank) {
  constexpr int64_t kBusyNs = 1'000'000;  // for the 1000 bytes of a sum
  auto world = WorldOf(2, {.bytes_per_s = 1e6, .latency_ns = 0});
  EXPECT_OK(RunAllRanks(2, [&](int rank) -> absl::Status {
    CommDriver comms[2];
    Sum sums[] = {Sum(250), Sum(250)};
    for (int c = 0; c < 2; ++c) {
      CommSpec spec;
      spec.id = c == 0 ? "a" : "b";
      auto ok = comms[c].Create(world.get(), spec, rank);
      if (!ok.ok()) return ok;
    }
    const int64_t begin_ns = SystemClock::Get().NowNs();
    for (int c = 0; c < 2; ++c) {
      if (auto ok = comms[c].Launch(sums[c].launch); !ok.ok()) return ok;
    }
    for (CommDriver& comm : comms) {
      if (auto done = comm.Wait(); !done.ok()) return done.status();
    }
    EXPECT_GE(SystemClock::Get().NowNs() - begin_ns, 2 * kBusyNs);
    return absl::OkStatus();
  }));
}

TEST(InprocBackendTest, WaitingForALinkBurnsNoCpu) {
  constexpr int64_t kLatencyNs = 50'000'000;
  auto world = WorldOf(2, {.bytes_per_s = 1e12, .latency_ns = kLatencyNs});
  EXPECT_OK(RunAllRanks(2, [&](int rank) -> absl::Status {
    CommDriver comm;
    if (auto ok = comm.Create(world.get(), {}, rank); !ok.ok()) return ok;
    commsched_launch_t barrier{};
    barrier.kind = COMMSCHED_BARRIER;
    const int64_t begin_ns = ThreadCpuNs();
    if (auto ok = comm.LaunchAndWait(barrier); !ok.ok()) return ok;
    EXPECT_LT(ThreadCpuNs() - begin_ns, kLatencyNs / 2);
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace commsched
