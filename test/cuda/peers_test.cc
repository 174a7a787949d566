// Sends and receives on a device, beside collectives of the same group: each
// has a lane, and a communicator.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "session/backend_model.h"
#include "test/cuda/gpu_rig.h"
#include "test/fakes/gpu/fake_gpu.h"
#include "test/support/graph_builder.h"
#include "test/support/pipeline.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::GpuRig;
using test::GraphBuilder;
using test::Read;
using test::RunOn;
using test::Write;

constexpr uint64_t kElements = 64;

CollectiveSpec ToPeer(GroupId group, int offset, Access input) {
  CollectiveSpec spec;
  spec.kind = CollectiveKind::kSend;
  spec.group = group;
  spec.peer_offset = offset;
  spec.input = input;
  return spec;
}

CollectiveSpec FromPeer(GroupId group, int offset, Access output) {
  CollectiveSpec spec;
  spec.kind = CollectiveKind::kRecv;
  spec.group = group;
  spec.peer_offset = offset;
  spec.output = output;
  return spec;
}

// On lane 0 each rank writes what all sum up; on lane 1 what goes to the next
// one, and uses what comes from the one before.
struct SumAndRing {
  explicit SumAndRing(int num_ranks) {
    GraphBuilder builder;
    const GroupId pp = builder.Group("pp", num_ranks);
    const BufferId sum = builder.Buffer("sum", kElements);
    const BufferId out = builder.Buffer("out", kElements);
    const BufferId in = builder.Buffer("in", kElements);
    ComputeSpec second;
    second.lane = 1;
    slow = builder.Compute("slow", {Write(sum)});
    builder.AllReduce("reduce", pp, sum);
    make = builder.Compute("make", {Write(out)}, second);
    builder.Collective("send", ToPeer(pp, 1, Read(out)));
    builder.Collective("receive", FromPeer(pp, -1, Write(in)));
    use = builder.Compute("use", {Read(in)}, second);
    graph = builder.graph();
  }

  Graph graph;
  OpId slow, make, use;
};

// What one rank sums up comes only when all have received: were the exchange
// behind the sum, it would never come.
TEST(CudaPeersTest, ASendPassesASumOfItsGroupThatIsNotReady) {
  constexpr int kRanks = 2;
  const SumAndRing step(kRanks);
  PlanOptions options;
  options.priority = Priority::kOff;
  GpuRig rig(kRanks, step.graph, options);
  ASSERT_EQ(rig.plan().launches.size(), 2u);
  ASSERT_EQ(rig.plan().launches[0].kind, CollectiveKind::kAllReduce);
  std::atomic<int> num_received{0};
  std::atomic<bool> in_time{true};
  const auto await_all = [&] {
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (num_received < kRanks && in_time) {
      if (std::chrono::steady_clock::now() > deadline) in_time = false;
      std::this_thread::yield();
    }
  };
  test::ExpectAllOk(
      rig.RunSessions([&](Session& session, int rank) -> absl::Status {
        const auto run = [&](OpId op, uint32_t lane,
                             std::function<void()> work) -> absl::Status {
          Stream* const stream = rig.lane(rank, lane);
          RETURN_IF_ERROR(session.Before(op, stream));
          RunOn(stream, std::move(work));
          return session.After(op, stream);
        };
        RETURN_IF_ERROR(session.StepBegin());
        RETURN_IF_ERROR(run(step.slow, 0, await_all));
        RETURN_IF_ERROR(run(step.make, 1, [] {}));
        RETURN_IF_ERROR(run(step.use, 1, [&] { ++num_received; }));
        RETURN_IF_ERROR(session.StepEnd());
        return session.Drain();
      }));
  EXPECT_TRUE(in_time) << "the exchange came behind the sum";
}

// All sum up; rank 0 sends to rank 1 on the same group, in which the last rank
// neither sends nor receives.
std::vector<Graph> SumAndOneSend(int num_ranks) {
  std::vector<Graph> graphs;
  for (int rank = 0; rank < num_ranks; ++rank) {
    GraphBuilder builder;
    const GroupId pp = builder.Group("pp", num_ranks);
    const BufferId sum = builder.Buffer("sum", kElements, Ownership::kOwned);
    builder.Compute("write", {Write(sum)});
    builder.AllReduce("reduce", pp, sum);
    if (rank < 2) {
      const BufferId sent =
          builder.Buffer("sent", kElements, Ownership::kOwned);
      if (rank == 0) {
        builder.Compute("make", {Write(sent)});
        builder.Collective("send", ToPeer(pp, 1, Read(sent)));
      } else {
        builder.Collective("receive", FromPeer(pp, -1, Write(sent)));
        builder.Compute("use", {Read(sent)});
      }
    }
    graphs.push_back(builder.graph());
  }
  return graphs;
}

// NCCL makes a communicator once all of its ranks have come.
TEST(CudaPeersTest, AMemberThatSendsNothingJoinsItsPeersAllTheSame) {
  constexpr int kRanks = 3;
  const std::vector<Graph> graphs = SumAndOneSend(kRanks);
  PlanOptions options;
  options.backend = ModelOf(*test::NcclTable());
  const auto plans = BuildPlans(test::RolesOf(graphs), options);
  ASSERT_OK(plans);
  WorldSpec of_world;
  of_world.size = kRanks;
  of_world.table = test::NcclTable();
  for (int rank = 0; rank < kRanks; ++rank) {
    of_world.devices.push_back(test::FakeDevice(rank));
  }
  ASSERT_OK_AND_ASSIGN(auto world, World::Create(of_world));
  std::unique_ptr<Session> sessions[kRanks];
  test::ExpectAllOk(RunRanks(kRanks, [&](int rank) -> absl::Status {
    SessionSpec spec;
    spec.world = world;
    spec.world_rank = rank;
    spec.plan = (*plans)[static_cast<size_t>(rank)];
    spec.groups = {{.axis = "pp", .ranks = {0, 1, 2}, .rank = rank}};
    spec.launch_timeout_ns = int64_t{20} * 1000 * 1000 * 1000;
    ASSIGN_OR_RETURN(sessions[rank], Session::Create(std::move(spec)));
    RETURN_IF_ERROR(sessions[rank]->Run(
        [](void*, OpId, Stream*) { return absl::OkStatus(); }, nullptr, 5));
    return sessions[rank]->Drain();
  }));
  EXPECT_EQ(fake_gpu_num_comms(), uint64_t{2 * kRanks});
  test::ExpectAllOk(RunRanks(kRanks, [&](int rank) -> absl::Status {
    sessions[rank].reset();
    return absl::OkStatus();
  }));
  world.reset();
  EXPECT_EQ(fake_gpu_num_comms(), 0u);
}

}  // namespace
}  // namespace commsched
