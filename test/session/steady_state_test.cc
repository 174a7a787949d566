// I6: what a steady-state step does not do.
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "comm/inproc/emulated_link.h"
#include "comm/plugin/registry.h"
#include "control/server.h"
#include "device/host_device.h"
#include "gtest/gtest.h"
#include "session/session.h"
#include "test/support/rank_group.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"
#include "test/support/surprises.h"
#include "trace/recorder.h"

namespace commsched {
namespace {

using test::Surprises;

constexpr int kSteadyRanks = 4;
constexpr int kSteadyBuckets = 6;
constexpr uint64_t kWarmUpSteps = 10;
#ifdef __SANITIZE_THREAD__
constexpr uint64_t kSteps = 100;  // ten times slower
#else
constexpr uint64_t kSteps = 1000;
#endif

// A step of ZeRO's shape: gradients written, reduce-scattered, a shard of the
// parameters stepped, gathered, and read by the next step.
Graph ZeroStep() {
  Graph graph;
  const GroupId group = graph.AddGroup("dp", kSteadyRanks).value();
  Region shard;
  shard.kind = RegionKind::kShard;
  shard.group = group;
  for (int i = 0; i < kSteadyBuckets; ++i) {
    Buffer buffer;
    buffer.count = 4096;
    buffer.name = absl::StrCat("parameter", i);
    buffer.ownership = Ownership::kBound;
    const BufferId parameter = graph.AddBuffer(buffer).value();
    buffer.name = absl::StrCat("gradient", i);
    buffer.ownership = Ownership::kOwned;
    const BufferId gradient = graph.AddBuffer(buffer).value();
    auto compute = [&](const char* prefix, std::vector<Access> accesses) {
      Op op;
      op.name = absl::StrCat(prefix, i);
      op.accesses = std::move(accesses);
      (void)graph.AddOp(op).value();
    };
    auto collective = [&](const char* prefix, CollectiveKind kind, Access input,
                          Access output) {
      Op op;
      op.name = absl::StrCat(prefix, i);
      op.kind = OpKind::kCollective;
      op.collective.kind = kind;
      op.collective.group = group;
      op.collective.input = input;
      op.collective.output = output;
      (void)graph.AddOp(op).value();
    };
    compute("backward", {{parameter, AccessMode::kRead, {}},
                         {gradient, AccessMode::kWrite, {}}});
    collective("scatter", CollectiveKind::kReduceScatter,
               {gradient, AccessMode::kRead, {}},
               {gradient, AccessMode::kWrite, shard});
    compute("step", {{gradient, AccessMode::kRead, shard},
                     {parameter, AccessMode::kReadWrite, shard}});
    collective("gather", CollectiveKind::kAllGather,
               {parameter, AccessMode::kRead, shard},
               {parameter, AccessMode::kWrite, {}});
  }
  return graph;
}

// Runs the rig's ranks through warm-up and then kSteps steps, of which rank 0
// counts what happens in the whole process. `recorders`: of each; none: nothing
// is traced.
using Recorders = std::vector<std::unique_ptr<Recorder>>;
void ExpectNoSurprises(test::SessionRig& rig, bool by_calls,
                       const Recorders& recorders = {}) {
  Surprises begin, end;
  const std::vector<absl::Status> statuses =
      rig.RunRanks([&](int rank) -> absl::Status {
        SessionSpec spec = rig.Spec(rank);
        if (!recorders.empty()) spec.recorder = recorders[rank].get();
        ASSIGN_OR_RETURN(const auto owned, Session::Create(spec));
        Session& session = *owned;
        auto nothing = [](void*, OpId, Stream*) { return absl::OkStatus(); };
        auto run = [&](uint64_t steps) -> absl::Status {
          if (!by_calls) return session.Run(nothing, nullptr, steps);
          for (uint64_t t = 0; t < steps; ++t) {
            RETURN_IF_ERROR(session.StepBegin());
            for (const ComputeNode& node : session.plan().nodes) {
              RETURN_IF_ERROR(session.Before(node.op, CallerStream()));
              RETURN_IF_ERROR(session.After(node.op, CallerStream()));
            }
            RETURN_IF_ERROR(session.StepEnd());
          }
          return absl::OkStatus();
        };
        RETURN_IF_ERROR(run(kWarmUpSteps));
        if (rank == 0) begin = Surprises();
        RETURN_IF_ERROR(run(kSteps));
        if (rank == 0) end = Surprises();
        RETURN_IF_ERROR(run(kWarmUpSteps));
        return session.Drain();
      });
  for (const absl::Status& status : statuses) EXPECT_OK(status);
  test::ExpectNoneBetween(begin, end);
}

class SteadyStateTest : public testing::TestWithParam<bool> {
 protected:
  bool by_calls() const { return GetParam(); }
};

TEST_P(SteadyStateTest, StepsAllocateLockAndCreateNothing) {
  WorldSpec world;
  world.size = kSteadyRanks;
  PlanOptions options;
  options.max_launches_in_flight = 2;
  test::SessionRig rig(world, ZeroStep(), options);
  ExpectNoSurprises(rig, by_calls());
}

TEST_P(SteadyStateTest, NeitherDoPackedAndGroupedLaunches) {
  WorldSpec world;
  world.size = kSteadyRanks;
  PlanOptions options;
  options.coalesce_bytes = 64 * 1024;
  options.deterministic = true;
  test::SessionRig rig(world, ZeroStep(), options);
  ExpectNoSurprises(rig, by_calls());
}

TEST_P(SteadyStateTest, NeitherDoesAnEmulatedLink) {
  WorldSpec world;
  world.size = kSteadyRanks;
  world.backend_config = LinkConfig({.bytes_per_s = 10e9, .latency_ns = 1000});
  test::SessionRig rig(world, ZeroStep(), PlanOptions{});
  ExpectNoSurprises(rig, by_calls());
}

// The last ranks of `whole`, in reverse order, in a world of their own.
std::vector<std::shared_ptr<World>> SplitOff(
    const std::vector<std::shared_ptr<World>>& whole) {
  const int last = whole[0]->spec().size - 1;
  std::vector<int> members;
  for (int i = 0; i < kSteadyRanks; ++i) members.push_back(last - i);
  std::vector<std::shared_ptr<World>> part(kSteadyRanks);
  EXPECT_OK(RunAllRanks(kSteadyRanks, [&](int i) -> absl::Status {
    const size_t rank = static_cast<size_t>(members[static_cast<size_t>(i)]);
    ASSIGN_OR_RETURN(part[static_cast<size_t>(i)],
                     whole[whole.size() == 1 ? 0 : rank]->Split(
                         static_cast<int>(rank), members, "steady",
                         int64_t{60} * 1000 * 1000 * 1000));
    return absl::OkStatus();
  }));
  if (whole.size() == 1) part.resize(1);
  return part;
}

TEST_P(SteadyStateTest, NeitherDoesAWorldThatWasSplitOff) {
  WorldSpec spec;
  spec.size = kSteadyRanks + 1;
  ASSERT_OK_AND_ASSIGN(const auto whole, World::Create(spec));
  test::SessionRig rig(SplitOff({whole}), ZeroStep(), PlanOptions{});
  ExpectNoSurprises(rig, by_calls());
}

#ifdef COMMSCHED_TEST_UCX
// Beats would allocate: not in the time that this takes.
std::shared_ptr<World> JoinUcx(const ControlServer& server, int rank, int size,
                               const std::string& host_id) {
  WorldSpec spec;
  spec.backend = "ucx";
  JobSpec job;
  job.environment.rank = rank;
  job.environment.size = size;
  job.environment.local_rank = rank;
  job.environment.local_size = size;
  job.environment.server_host = "127.0.0.1";
  job.environment.server_port = server.port();
  job.environment.rank_0_serves = false;
  job.environment.host_id = host_id;
  return World::Join(spec, job).value();
}

// The ranks have `hosts` hosts, and are all of a job but `num_others`.
void ExpectNoSurprisesOfUcx(int hosts, bool by_calls,
                            const Recorders& recorders, int num_others = 0) {
  ASSERT_OK(PluginRegistry::Process().Load(COMMSCHED_TEST_UCX));
  ControlServerSpec spec;
  spec.size = kSteadyRanks + num_others;
  spec.beat_ns = int64_t{3600} * 1000 * 1000 * 1000;
  spec.silence_ns = 2 * spec.beat_ns;
  ASSERT_OK_AND_ASSIGN(const auto server, ControlServer::Start(spec));
  std::vector<std::shared_ptr<World>> worlds;
  for (int rank = 0; rank < spec.size; ++rank) {
    const std::string host =
        hosts == 1 ? "" : absl::StrCat("host", rank * hosts / kSteadyRanks);
    worlds.push_back(JoinUcx(*server, rank, spec.size, host));
  }
  std::vector<std::shared_ptr<World>> whole;
  if (num_others != 0) {
    whole = std::exchange(worlds, {});
    worlds = SplitOff(whole);
  }
  test::SessionRig rig(std::move(worlds), ZeroStep(), PlanOptions{});
  ExpectNoSurprises(rig, by_calls, recorders);
  // They leave together.
  worlds = rig.TakeWorlds();
  worlds.insert(worlds.end(), whole.begin(), whole.end());
  whole.clear();
  std::vector<std::thread> ends;
  for (std::shared_ptr<World>& world : worlds) {
    ends.emplace_back([&world] { world.reset(); });
  }
  for (std::thread& end : ends) end.join();
}

TEST_P(SteadyStateTest, NeitherDoesABackendOfProcesses) {
  ExpectNoSurprisesOfUcx(1, by_calls(), {});
}

TEST_P(SteadyStateTest, NeitherDoProcessesInAWorldThatWasSplitOff) {
  ExpectNoSurprisesOfUcx(1, by_calls(), {}, /*num_others=*/1);
}

// Ranks that trace tell each other when they issue launches, and compare the
// clocks of their hosts.
TEST_P(SteadyStateTest, NeitherDoRanksOfSeveralHostsThatTrace) {
  Recorders recorders;
  for (int rank = 0; rank < kSteadyRanks; ++rank) {
    recorders.push_back(std::make_unique<Recorder>(1024));
  }
  ExpectNoSurprisesOfUcx(2, by_calls(), recorders);
  for (const auto& recorder : recorders) {
    EXPECT_FALSE(recorder->SnapshotOfStarts().empty());
  }
}
#endif

INSTANTIATE_TEST_SUITE_P(DrivenByCallsOrReplayed, SteadyStateTest,
                         testing::Bool(), [](const auto& info) {
                           return info.param ? "calls" : "replayed";
                         });

}  // namespace
}  // namespace commsched
