#include "session/session.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/status_macros.h"
#include "device/host_device.h"
#include "gtest/gtest.h"
#include "test/session/bucket_graph.h"
#include "test/support/await.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::BucketGraph;
using test::Call;
using test::ExpectAllOk;
using test::MakeBuckets;
using test::Ranks;
using test::RunStep;
using test::SessionRig;

TEST(SessionTest, UseSeesTheSumOfWhatAllRanksWrote) {
  const BucketGraph made = MakeBuckets(3, 2, 1000);
  SessionRig rig(Ranks(3), made.graph, {});
  std::vector<float> seen(3);
  ExpectAllOk(rig.RunSessions([&](Session& session, int rank) {
    for (int step = 0; step < 5; ++step) {
      RETURN_IF_ERROR(RunStep(session, rig, made, rank));
    }
    RETURN_IF_ERROR(session.Drain());
    seen[rank] = rig.Memory(rank, made.gradient[1])[0];
    return absl::OkStatus();
  }));
  EXPECT_EQ(seen, (std::vector<float>{6, 6, 6}));
}

TEST(SessionTest, RunCallsEveryComputeOpInPlannedOrder) {
  const BucketGraph made = MakeBuckets(1, 2, 4);
  SessionRig rig(Ranks(1), made.graph, {});
  std::vector<OpId> called;
  ExpectAllOk(rig.RunSessions([&](Session& session, int) {
    return session.Run(
        [](void* user, OpId op, Stream*) {
          static_cast<std::vector<OpId>*>(user)->push_back(op);
          return absl::OkStatus();
        },
        &called, 2);
  }));
  std::vector<OpId> planned;
  for (int step = 0; step < 2; ++step) {
    for (const ComputeNode& node : rig.plan()->nodes)
      planned.push_back(node.op);
  }
  EXPECT_EQ(called, planned);
}

TEST(SessionTest, StepsDrivenByCallsFollowStepsThatWereReplayed) {
  const BucketGraph made = MakeBuckets(2, 2, 8);
  SessionRig rig(Ranks(2), made.graph, {});
  ExpectAllOk(rig.RunSessions([&](Session& session, int rank) {
    auto nothing = [](void*, OpId, Stream*) { return absl::OkStatus(); };
    RETURN_IF_ERROR(session.Run(nothing, nullptr, 3));
    RETURN_IF_ERROR(RunStep(session, rig, made, rank));
    RETURN_IF_ERROR(session.Run(nothing, nullptr, 1));
    EXPECT_EQ(session.counters().steps, 5u);
    return absl::OkStatus();
  }));
}

TEST(SessionTest, HooksMayFireOnSeveralThreads) {
  constexpr int kBuckets = 24;
  const BucketGraph made = MakeBuckets(2, kBuckets, 64);
  PlanOptions options;
  options.coalesce_bytes = 1000;
  SessionRig rig(Ranks(2), made.graph, options);
  ExpectAllOk(rig.RunSessions([&](Session& session, int rank) {
    for (int step = 0; step < 20; ++step) {
      RETURN_IF_ERROR(session.StepBegin());
      std::vector<absl::Status> statuses(3);
      std::vector<std::thread> hooks;
      for (int h = 0; h < 3; ++h) {
        hooks.emplace_back([&, h] {
          for (int i = h; i < kBuckets && statuses[h].ok(); i += 3) {
            statuses[h] = session.Before(made.backward[i], CallerStream());
            if (!statuses[h].ok()) return;
            float* gradient = rig.Memory(rank, made.gradient[i]);
            for (int k = 0; k < 64; ++k) gradient[k] = rank + 1 + step;
            statuses[h] = session.After(made.backward[i], CallerStream());
          }
        });
      }
      for (std::thread& hook : hooks) hook.join();
      for (const absl::Status& status : statuses) RETURN_IF_ERROR(status);
      for (int i = 0; i < kBuckets; ++i) {
        RETURN_IF_ERROR(session.Before(made.use[i], CallerStream()));
        EXPECT_EQ(rig.Memory(rank, made.gradient[i])[63], 3 + 2 * step);
        RETURN_IF_ERROR(session.After(made.use[i], CallerStream()));
      }
      RETURN_IF_ERROR(session.StepEnd());
    }
    return absl::OkStatus();
  }));
}

TEST(SessionTest, AComputeLaneMayBeAWorkersStream) {
  const BucketGraph made = MakeBuckets(2, 3, 16);
  SessionRig rig(Ranks(2), made.graph, {});
  struct Work {
    float* gradient;
    float value;
  };
  ExpectAllOk(rig.RunRanks([&](int rank) {
    std::unique_ptr<HostStream> lane = HostStream::Create("lane", 64).value();
    SessionSpec spec = rig.Spec(rank);
    spec.lanes = {lane.get()};
    ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Create(spec));
    std::vector<Work> work;
    work.reserve(30);
    for (int step = 0; step < 10; ++step) {
      RETURN_IF_ERROR(session->StepBegin());
      for (size_t i = 0; i < made.backward.size(); ++i) {
        RETURN_IF_ERROR(session->Before(made.backward[i], lane.get()));
        work.push_back({rig.Memory(rank, made.gradient[i]),
                        static_cast<float>(rank + step)});
        lane->Enqueue(
            [](void* user) {
              const Work* item = static_cast<Work*>(user);
              for (int k = 0; k < 16; ++k) item->gradient[k] = item->value;
            },
            &work.back());
        RETURN_IF_ERROR(session->After(made.backward[i], lane.get()));
      }
      for (OpId op : made.use) {
        RETURN_IF_ERROR(Call(*session, op, lane.get()));
      }
      RETURN_IF_ERROR(session->StepEnd());
    }
    return session->Drain();
  }));
  EXPECT_EQ(rig.Memory(0, made.gradient[2])[15], 19);
  EXPECT_EQ(rig.Memory(1, made.gradient[0])[0], 19);
}

TEST(SessionTest, TheWindowCapsLaunchesInFlight) {
  const BucketGraph made = MakeBuckets(2, 16, 256);
  PlanOptions options;
  options.max_launches_in_flight = 3;
  options.max_bytes_in_flight = 2 * 1024;
  SessionRig rig(Ranks(2), made.graph, options);
  ExpectAllOk(rig.RunSessions([&](Session& session, int rank) {
    for (int step = 0; step < 10; ++step) {
      RETURN_IF_ERROR(RunStep(session, rig, made, rank));
    }
    RETURN_IF_ERROR(session.Drain());
    EXPECT_LE(session.counters().peak_launches_in_flight, 3u);
    EXPECT_LE(session.counters().peak_bytes_in_flight, 2u * 1024);
    EXPECT_EQ(session.counters().launches, 160u);
    return absl::OkStatus();
  }));
}

TEST(SessionTest, DifferentPlansAreRefusedNamingTheFirstDifferentOp) {
  const BucketGraph small = MakeBuckets(2, 2, 8);
  const BucketGraph large = MakeBuckets(2, 2, 16);
  SessionRig rig(Ranks(2), small.graph, {});
  SessionRig other(Ranks(2), large.graph, {});
  const std::vector<absl::Status> statuses = rig.RunRanks([&](int rank) {
    SessionSpec spec = rank == 0 ? rig.Spec(0) : other.Spec(1);
    spec.world = rig.world();
    return Session::Create(spec).status();
  });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kFailedPrecondition, "rank 1"));
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, "16"));
  }
}

TEST(SessionTest, ARankThatCannotBindTellsTheOthers) {
  const BucketGraph made = MakeBuckets(2, 2, 8);
  SessionRig rig(Ranks(2), made.graph, {});
  const std::vector<absl::Status> statuses = rig.RunRanks([&](int rank) {
    SessionSpec spec = rig.Spec(rank);
    if (rank == 1) spec.bindings.pop_back();
    return Session::Create(spec).status();
  });
  EXPECT_THAT(statuses[0], StatusIs(absl::StatusCode::kFailedPrecondition,
                                    "rank 1 cannot bind"));
  EXPECT_THAT(statuses[1], StatusIs(absl::StatusCode::kInvalidArgument,
                                    "'grad1' is not bound"));
}

TEST(SessionTest, BadBindingsAreNamed) {
  const BucketGraph made = MakeBuckets(1, 2, 8);
  SessionRig rig(Ranks(1), made.graph, {});
  auto refused = [&](auto change) {
    SessionSpec spec = rig.Spec(0);
    spec.instance = 0;
    change(spec);
    SessionRig fresh(Ranks(1), made.graph, {});
    spec.world = fresh.world();
    return Session::Create(spec).status();
  };
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(refused([](SessionSpec& s) { s.bindings[0].bytes = 31; }),
              StatusIs(kInvalid, "'grad0' needs 32 bytes, 31 given"));
  EXPECT_THAT(refused([](SessionSpec& s) { s.bindings[0].address = nullptr; }),
              StatusIs(kInvalid, "'grad0'"));
  EXPECT_THAT(refused([](SessionSpec& s) {
                s.bindings[0].address =
                    static_cast<char*>(s.bindings[0].address) + 1;
              }),
              StatusIs(kInvalid, "aligned"));
  EXPECT_THAT(
      refused([](SessionSpec& s) { s.bindings.push_back(s.bindings[0]); }),
      StatusIs(kInvalid, "'grad0' is bound twice"));
  EXPECT_THAT(refused([](SessionSpec& s) { s.groups.clear(); }),
              StatusIs(kInvalid, "0 groups were given, but the graph has 1"));
  EXPECT_THAT(refused([](SessionSpec& s) {
                s.groups[0].ranks = {0, 1};
              }),
              StatusIs(kInvalid, "'dp' has 1 ranks in the graph, 2 given"));
}

// I12, with a plan whose waits were taken out: the run-time check does not rest
// on the waits that it checks.
TEST(SessionTest, AStaleReadIsAnErrorAndNotOldData) {
  const BucketGraph made = MakeBuckets(2, 1, 8);
  SessionRig rig(Ranks(2), made.graph, {});
  auto broken = std::make_shared<Plan>(*rig.plan());
  for (ComputeNode& node : broken->nodes) node.waits.clear();
  rig.set_plan(broken);
  std::atomic<bool> checked{false};
  const std::vector<absl::Status> statuses =
      rig.RunSessions([&](Session& session, int rank) {
        if (rank == 1) {
          EXPECT_TRUE(test::Await([&] { return checked.load(); }));
          return RunStep(session, rig, made, rank);
        }
        RETURN_IF_ERROR(session.StepBegin());
        RETURN_IF_ERROR(Call(session, made.backward[0]));
        absl::Status stale = session.Before(made.use[0], CallerStream());
        checked = true;
        EXPECT_THAT(stale, StatusIs(absl::StatusCode::kFailedPrecondition,
                                    "version 0, needs 1"));
        session.Abort("done");
        return absl::OkStatus();
      });
}

// Two ranks, each alone on axis `row`, together on axis `column`: the shard of
// a row is the whole buffer, whatever the rank on the other axis.
TEST(SessionTest, AShardIsOfItsOwnGroupAndNotOfTheCollectives) {
  Graph graph;
  const GroupId row = graph.AddGroup("row", 1).value();
  const GroupId column = graph.AddGroup("column", 2).value();
  Buffer buffer;
  buffer.name = "values";
  buffer.ownership = Ownership::kBound;
  buffer.count = 4;
  const BufferId values = graph.AddBuffer(buffer).value();
  Op fill;
  fill.name = "fill";
  fill.accesses.push_back({values, AccessMode::kWrite, {}});
  const OpId fill_op = graph.AddOp(fill).value();
  Region shard;
  shard.kind = RegionKind::kShard;
  shard.group = row;
  Op reduce;
  reduce.name = "reduce";
  reduce.kind = OpKind::kCollective;
  reduce.collective.group = column;
  reduce.collective.input = {values, AccessMode::kRead, shard};
  reduce.collective.output = {values, AccessMode::kWrite, shard};
  (void)graph.AddOp(reduce).value();

  std::shared_ptr<World> world = World::Create(Ranks(2)).value();
  std::shared_ptr<const Plan> plan = BuildPlan(graph, {}, {}).value();
  std::vector<float> memory[2] = {{1, 2, 3, 4}, {10, 20, 30, 40}};
  std::vector<absl::Status> statuses(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      SessionSpec spec;
      spec.world = world;
      spec.world_rank = rank;
      spec.plan = plan;
      spec.groups = {{"row", {rank}, 0}, {"column", {0, 1}, rank}};
      spec.bindings = {{values, memory[rank].data(), 4 * sizeof(float)}};
      absl::StatusOr<std::unique_ptr<Session>> session = Session::Create(spec);
      if (!session.ok()) {
        statuses[rank] = session.status();
        return;
      }
      (void)(*session)->StepBegin();
      (void)Call(**session, fill_op);
      (void)(*session)->StepEnd();
      statuses[rank] = (*session)->Drain();
    });
  }
  for (std::thread& thread : threads) thread.join();
  ExpectAllOk(statuses);
  EXPECT_EQ(memory[1], (std::vector<float>{11, 22, 33, 44}));
  EXPECT_EQ(memory[0], memory[1]);
}

TEST(SessionTest, DestroyedInsideAStepItFailsTheOtherRanks) {
  const BucketGraph made = MakeBuckets(2, 1, 8);
  SessionRig rig(Ranks(2), made.graph, {});
  const std::vector<absl::Status> statuses = rig.RunRanks([&](int rank) {
    ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                     Session::Create(rig.Spec(rank)));
    if (rank == 1) {
      RETURN_IF_ERROR(session->StepBegin());
      session.reset();
      return absl::OkStatus();
    }
    return RunStep(*session, rig, made, rank);
  });
  EXPECT_THAT(statuses[0],
              StatusIs(absl::StatusCode::kAborted,
                       "rank 1: the session was destroyed inside"));
}

}  // namespace
}  // namespace commsched
