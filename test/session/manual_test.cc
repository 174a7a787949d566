// Sessions without threads: pumped by hand, in virtual time.
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "plan/planner.h"
#include "session/session.h"
#include "test/session/bucket_graph.h"
#include "test/support/graph_builder.h"
#include "test/support/random_step.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"
#include "test/support/virtual_job.h"

namespace commsched {
namespace {

using test::GraphBuilder;
using test::InitialMemory;
using test::MakeRandomStep;
using test::RandomStep;
using test::RankMemory;
using test::Ranks;
using test::ReadWrite;
using test::RunCompute;
using test::RunSequentially;
using test::SessionRig;
using test::VirtualJob;
using test::VirtualStream;

Graph OneBucket(int num_ranks) {
  GraphBuilder builder;
  const GroupId group = builder.Group("dp", num_ranks);
  const BufferId gradient = builder.Buffer("gradient", 16);
  builder.Compute("backward", {ReadWrite(gradient)});
  builder.AllReduce("reduce", group, gradient);
  return builder.graph();
}

std::vector<SessionSpec> SpecsOf(SessionRig& rig, int num_ranks) {
  std::vector<SessionSpec> specs;
  for (int r = 0; r < num_ranks; ++r) specs.push_back(rig.Spec(r));
  return specs;
}

// Runs a random step in an order of the seed; expects what a sequential run
// leaves in memory.
void RunRandomStep(uint64_t seed) {
  constexpr uint64_t kSteps = 3;
  test::RandomStepLimits limits;
  limits.max_compute_lanes = 1 + static_cast<int>(seed % 3);
  const RandomStep step = MakeRandomStep(seed, limits);
  PlanOptions options;
  options.max_launches_in_flight = static_cast<uint32_t>(seed % 4);
  options.coalesce_bytes = seed % 2 * 500;
  options.num_comm_lanes = 1 + static_cast<uint32_t>(seed % 2);
  auto world = World::Create(Ranks(step.num_ranks)).value();
  auto plan = BuildPlan(step.graph, options, CostProfile{}).value();
  std::vector<RankMemory> memory;
  std::vector<SessionSpec> specs(step.num_ranks);
  for (int r = 0; r < step.num_ranks; ++r) {
    memory.push_back(InitialMemory(step, r));
  }
  for (int r = 0; r < step.num_ranks; ++r) {
    SessionSpec& spec = specs[r];
    spec.world = world;
    spec.world_rank = r;
    spec.plan = plan;
    for (const Group& group : step.graph.groups()) {
      GroupSpec member{group.name, {}, r};
      for (int i = 0; i < group.size; ++i) member.ranks.push_back(i);
      spec.groups.push_back(member);
    }
    for (uint32_t i = 0; i < step.graph.buffers().size(); ++i) {
      if (step.graph.buffers()[i].ownership != Ownership::kBound) continue;
      spec.bindings.push_back({BufferId(i), memory[r][i].data(),
                               memory[r][i].size() * sizeof(int64_t)});
    }
  }
  auto job = VirtualJob::Create(specs, seed).value();
  std::vector<std::vector<int64_t*>> address(step.num_ranks);
  for (int r = 0; r < step.num_ranks; ++r) {
    address[r].resize(step.graph.buffers().size());
    for (uint32_t i = 0; i < step.graph.ops().size(); ++i) {
      for (const Access& access : step.graph.ops()[i].accesses) {
        address[r][access.buffer.value()] = static_cast<int64_t*>(
            job->session(r).Address(OpId(i), access.buffer).value());
      }
    }
  }
  ASSERT_OK(job->Run(kSteps,
                     [&](int rank, OpId op, uint64_t t) {
                       RunCompute(step, op, t, rank, address[rank]);
                     }))
      << "seed " << seed;
  const std::vector<RankMemory> expected = RunSequentially(step, kSteps);
  for (int r = 0; r < step.num_ranks; ++r) {
    for (uint32_t i = 0; i < step.graph.buffers().size(); ++i) {
      if (step.graph.buffers()[i].ownership != Ownership::kBound) continue;
      ASSERT_EQ(memory[r][i], expected[r][i])
          << "seed " << seed << ", rank " << r << ", buffer "
          << step.graph.buffers()[i].name;
    }
  }
}

TEST(ManualSessionTest, RandomStepsInRandomOrderEndAsInDeclaredOrder) {
  for (uint64_t seed = 0; seed < 300; ++seed) RunRandomStep(seed);
}

TEST(ManualSessionTest, NothingIsIssuedBeforeItIsPumped) {
  SessionRig rig(Ranks(1), OneBucket(1), {});
  auto job = VirtualJob::Create(SpecsOf(rig, 1), 0).value();
  Session& session = job->session(0);
  VirtualStream& stream = job->stream(0, 0);
  ASSERT_OK(session.StepBegin());
  ASSERT_OK(session.Before(OpId(0), &stream));
  ASSERT_OK(session.After(OpId(0), &stream));
  ASSERT_OK(session.StepEnd());
  EXPECT_FALSE(session.Pump());  // the stream has not run
  while (stream.ready()) stream.RunHead();
  EXPECT_EQ(session.counters().launches, 0u);
  EXPECT_TRUE(session.Pump());
  while (session.Pump()) continue;
  EXPECT_EQ(session.counters().launches, 1u);
  EXPECT_OK(session.Drain());
}

TEST(ManualSessionTest, DrainFailsWhileALaunchIsNotComplete) {
  SessionRig rig(Ranks(1), OneBucket(1), {});
  auto job = VirtualJob::Create(SpecsOf(rig, 1), 0).value();
  Session& session = job->session(0);
  ASSERT_OK(session.StepBegin());
  ASSERT_OK(session.Before(OpId(0), &job->stream(0, 0)));
  ASSERT_OK(session.After(OpId(0), &job->stream(0, 0)));
  ASSERT_OK(session.StepEnd());
  EXPECT_THAT(session.Drain(),
              StatusIs(absl::StatusCode::kFailedPrecondition, "'reduce'"));
  EXPECT_OK(session.status());
}

TEST(ManualSessionTest, DeadlinesPassInVirtualTime) {
  SessionRig rig(Ranks(2), OneBucket(2), {});
  auto job = VirtualJob::Create(SpecsOf(rig, 2), 7).value();
  job->StopHost(1);
  EXPECT_THAT(job->Run(1, nullptr),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "'reduce'"));
  EXPECT_GE(job->clock().NowNs(), int64_t{20} * 1000 * 1000 * 1000);
}

TEST(ManualSessionTest, TheCallerCannotBeALane) {
  SessionRig rig(Ranks(1), OneBucket(1), {});
  SessionSpec spec = rig.Spec(0);
  spec.manual = true;
  EXPECT_THAT(Session::CreateAll({spec}),
              StatusIs(absl::StatusCode::kInvalidArgument, "lane 0"));
}

TEST(ManualSessionTest, OnlyAManualSessionHasAClockOfItsOwn) {
  SessionRig rig(Ranks(1), OneBucket(1), {});
  FakeClock clock;
  SessionSpec spec = rig.Spec(0);
  spec.clock = &clock;
  EXPECT_THAT(Session::CreateAll({spec}),
              StatusIs(absl::StatusCode::kInvalidArgument, "clock"));
}

}  // namespace
}  // namespace commsched
