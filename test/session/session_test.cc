#include "session/session.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "device/host_device.h"
#include "gtest/gtest.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::SessionRig;

// `num_buckets` times: BWD_i writes gradient i, AR_i sums it over the ranks,
// USE_i reads it. Declared as all BWD, all AR, all USE.
struct BucketGraph {
  Graph graph;
  std::vector<BufferId> gradient;
  std::vector<OpId> backward, reduce, use;
};

BucketGraph MakeBuckets(int num_ranks, int num_buckets, uint64_t count) {
  BucketGraph made;
  const GroupId group = made.graph.AddGroup("dp", num_ranks).value();
  for (int i = 0; i < num_buckets; ++i) {
    Buffer buffer;
    buffer.name = absl::StrCat("grad", i);
    buffer.ownership = Ownership::kBound;
    buffer.count = count;
    made.gradient.push_back(made.graph.AddBuffer(buffer).value());
  }
  auto compute = [&](const char* prefix, int i, AccessMode mode) {
    Op op;
    op.name = absl::StrCat(prefix, i);
    op.accesses.push_back({made.gradient[i], mode, {}});
    return made.graph.AddOp(op).value();
  };
  for (int i = 0; i < num_buckets; ++i) {
    made.backward.push_back(compute("BWD", i, AccessMode::kWrite));
  }
  for (int i = 0; i < num_buckets; ++i) {
    Op op;
    op.name = absl::StrCat("AR", i);
    op.kind = OpKind::kCollective;
    op.collective.group = group;
    op.collective.input = {made.gradient[i], AccessMode::kRead, {}};
    op.collective.output = {made.gradient[i], AccessMode::kWrite, {}};
    made.reduce.push_back(made.graph.AddOp(op).value());
  }
  for (int i = 0; i < num_buckets; ++i) {
    made.use.push_back(compute("USE", i, AccessMode::kRead));
  }
  return made;
}

WorldSpec Ranks(int size) {
  WorldSpec spec;
  spec.size = size;
  return spec;
}

absl::Status Call(Session& session, OpId op, Stream* stream = CallerStream()) {
  RETURN_IF_ERROR(session.Before(op, stream));
  return session.After(op, stream);
}

// A step of BucketGraph in which rank r writes r + 1 into gradient 0.
absl::Status RunStep(Session& session, SessionRig& rig, const BucketGraph& made,
                     int rank) {
  RETURN_IF_ERROR(session.StepBegin());
  for (size_t i = 0; i < made.backward.size(); ++i) {
    RETURN_IF_ERROR(session.Before(made.backward[i], CallerStream()));
    rig.Memory(rank, made.gradient[i])[0] = static_cast<float>(rank + 1);
    RETURN_IF_ERROR(session.After(made.backward[i], CallerStream()));
  }
  for (OpId op : made.use) RETURN_IF_ERROR(Call(session, op));
  return session.StepEnd();
}

void ExpectAllOk(const std::vector<absl::Status>& statuses) {
  for (const absl::Status& status : statuses) EXPECT_OK(status);
}

// One rank with the first two of its calls made by the test.
class OneRankSessionTest : public testing::Test {
 protected:
  OneRankSessionTest()
      : made_(MakeBuckets(1, 2, 4)), rig_(Ranks(1), made_.graph, {}) {
    session_ = Session::Create(rig_.Spec(0)).value();
  }
  BucketGraph made_;
  SessionRig rig_;
  std::unique_ptr<Session> session_;
};

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

TEST_F(OneRankSessionTest, BeforeOutsideAStepIsRefused) {
  EXPECT_THAT(session_->Before(made_.backward[0], CallerStream()),
              StatusIs(absl::StatusCode::kFailedPrecondition, "'BWD0'"));
}

TEST_F(OneRankSessionTest, BeforeTwiceInAStepIsRefused) {
  ASSERT_OK(session_->StepBegin());
  ASSERT_OK(session_->Before(made_.backward[0], CallerStream()));
  EXPECT_THAT(session_->Before(made_.backward[0], CallerStream()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "'BWD0' a second time in step 0"));
}

TEST_F(OneRankSessionTest, AfterWithoutBeforeIsRefused) {
  ASSERT_OK(session_->StepBegin());
  EXPECT_THAT(session_->After(made_.backward[0], CallerStream()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "'BWD0' has had no before in step 0"));
}

TEST_F(OneRankSessionTest, AfterTwiceIsRefused) {
  ASSERT_OK(session_->StepBegin());
  ASSERT_OK(Call(*session_, made_.backward[0]));
  EXPECT_THAT(session_->After(made_.backward[0], CallerStream()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "'BWD0' has had its after already"));
}

TEST_F(OneRankSessionTest, BeforeNamesTheOpThatALaunchItNeedsWaitsFor) {
  ASSERT_OK(session_->StepBegin());
  ASSERT_OK(Call(*session_, made_.backward[0]));
  EXPECT_THAT(session_->Before(made_.use[1], CallerStream()),
              StatusIs(absl::StatusCode::kFailedPrecondition, "'BWD1'"));
}

TEST_F(OneRankSessionTest, ACallTooEarlyDoesNotStick) {
  ASSERT_OK(session_->StepBegin());
  EXPECT_FALSE(session_->Before(made_.use[0], CallerStream()).ok());
  ASSERT_OK(Call(*session_, made_.backward[0]));
  ASSERT_OK(Call(*session_, made_.backward[1]));
  EXPECT_OK(Call(*session_, made_.use[0]));
  EXPECT_OK(Call(*session_, made_.use[1]));
  EXPECT_OK(session_->StepEnd());
}

TEST_F(OneRankSessionTest, StepEndNamesTheOpThatIsMissing) {
  ASSERT_OK(session_->StepBegin());
  ASSERT_OK(Call(*session_, made_.backward[0]));
  EXPECT_THAT(
      session_->StepEnd(),
      StatusIs(absl::StatusCode::kFailedPrecondition, "'BWD1' has not"));
}

TEST_F(OneRankSessionTest, StepBeginTwiceIsRefused) {
  ASSERT_OK(session_->StepBegin());
  EXPECT_THAT(
      session_->StepBegin(),
      StatusIs(absl::StatusCode::kFailedPrecondition, "step 0 has not ended"));
}

TEST_F(OneRankSessionTest, ACollectiveHasNoBefore) {
  ASSERT_OK(session_->StepBegin());
  EXPECT_THAT(session_->Before(made_.reduce[0], CallerStream()),
              StatusIs(absl::StatusCode::kInvalidArgument, "'AR0'"));
}

TEST_F(OneRankSessionTest, AnUnknownOpIsRefused) {
  ASSERT_OK(session_->StepBegin());
  EXPECT_THAT(session_->Before(OpId(99), CallerStream()),
              StatusIs(absl::StatusCode::kInvalidArgument, "op 99"));
}

TEST_F(OneRankSessionTest, AStreamThatIsNotTheLanesIsRefused) {
  std::unique_ptr<HostStream> other = HostStream::Create("other", 4).value();
  ASSERT_OK(session_->StepBegin());
  EXPECT_THAT(session_->Before(made_.backward[0], other.get()),
              StatusIs(absl::StatusCode::kInvalidArgument, "lane 0"));
}

TEST_F(OneRankSessionTest, CallsMayComeInAnyOrderThatTheDependenciesAllow) {
  for (int step = 0; step < 3; ++step) {
    ASSERT_OK(session_->StepBegin());
    ASSERT_OK(Call(*session_, made_.backward[1]));
    ASSERT_OK(Call(*session_, made_.backward[0]));
    ASSERT_OK(Call(*session_, made_.use[1]));
    ASSERT_OK(Call(*session_, made_.use[0]));
    ASSERT_OK(session_->StepEnd());
  }
}

TEST_F(OneRankSessionTest, BufferVersionCountsCompleteSteps) {
  EXPECT_EQ(session_->BufferVersion(made_.gradient[0]).value(), 0u);
  ASSERT_OK(RunStep(*session_, rig_, made_, 0));
  ASSERT_OK(session_->Drain());
  EXPECT_EQ(session_->BufferVersion(made_.gradient[0]).value(), 1u);
}

TEST_F(OneRankSessionTest, AddressIsForOpsThatDeclareTheBuffer) {
  EXPECT_EQ(session_->Address(made_.backward[0], made_.gradient[0]).value(),
            rig_.Memory(0, made_.gradient[0]));
  EXPECT_THAT(session_->Address(made_.backward[0], made_.gradient[1]),
              StatusIs(absl::StatusCode::kNotFound, "'grad1'"));
}

TEST_F(OneRankSessionTest, DrainInsideAStepIsRefused) {
  ASSERT_OK(session_->StepBegin());
  EXPECT_THAT(session_->Drain(),
              StatusIs(absl::StatusCode::kFailedPrecondition, "step 0"));
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

TEST(SessionTest, AnAbortOnOneRankReachesAll) {
  const BucketGraph made = MakeBuckets(3, 1, 8);
  SessionRig rig(Ranks(3), made.graph, {});
  const std::vector<absl::Status> statuses =
      rig.RunSessions([&](Session& session, int rank) {
        if (rank == 1) {
          session.Abort("operator stopped the job");
          return session.status();
        }
        absl::Status status;
        while (status.ok()) status = RunStep(session, rig, made, rank);
        EXPECT_FALSE(session.StepBegin().ok()) << "the failure must stick";
        return status;
      });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted,
                                 "operator stopped the job"));
  }
}

TEST(SessionTest, AFailedComputeOpFailsEveryRank) {
  const BucketGraph made = MakeBuckets(2, 2, 8);
  SessionRig rig(Ranks(2), made.graph, {});
  const std::vector<absl::Status> statuses =
      rig.RunSessions([&](Session& session, int rank) {
        absl::Status status = session.Run(
            [](void* user, OpId op, Stream*) {
              return *static_cast<int*>(user) == 0 && op.value() == 1
                         ? absl::DataLossError("NaN in gradient")
                         : absl::OkStatus();
            },
            &rank, 1000000);
        EXPECT_EQ(session.Drain(), status) << "the failure must stick";
        return status;
      });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kDataLoss, "NaN in gradient"));
  }
  EXPECT_THAT(statuses[1], StatusIs(absl::StatusCode::kDataLoss, "rank 0: "))
      << "the other ranks must read where it comes from";
}

TEST(SessionTest, ARankWithNothingInFlightLearnsOfAFailure) {
  const BucketGraph made = MakeBuckets(2, 1, 8);
  SessionRig rig(Ranks(2), made.graph, {});
  const std::vector<absl::Status> statuses =
      rig.RunSessions([&](Session& session, int rank) {
        if (rank == 0) session.Abort("stop");
        while (session.status().ok()) std::this_thread::yield();
        return session.status();
      });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, "stop"));
  }
}

TEST(SessionTest, ATimeoutOfNeverIsNoDeadline) {
  const BucketGraph made = MakeBuckets(2, 1, 8);
  SessionRig rig(Ranks(2), made.graph, {});
  ExpectAllOk(rig.RunRanks([&](int rank) {
    SessionSpec spec = rig.Spec(rank);
    spec.launch_timeout_ns = INT64_MAX;
    ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Create(spec));
    for (int step = 0; step < 3; ++step) {
      RETURN_IF_ERROR(RunStep(*session, rig, made, rank));
    }
    return session->Drain();
  }));
}

// What a worker's stream waits for, and whether it got there.
struct Gate {
  std::atomic<bool> open{false};
  std::atomic<bool> passed{false};

  static void Pass(void* user) {
    Gate* gate = static_cast<Gate*>(user);
    while (!gate->open) std::this_thread::yield();
    gate->passed = true;
  }
};

// The worker still has our waits and its work queued when the session goes.
TEST(SessionTest, AFailedSessionLetsItsWorkersFinish) {
  const BucketGraph made = MakeBuckets(1, 1, 8);
  SessionRig rig(Ranks(1), made.graph, {});
  std::unique_ptr<HostStream> lane = HostStream::Create("lane", 64).value();
  SessionSpec spec = rig.Spec(0);
  spec.lanes = {lane.get()};
  std::unique_ptr<Session> session = Session::Create(spec).value();
  Gate gate;
  ASSERT_OK(session->StepBegin());
  ASSERT_OK(session->Before(made.backward[0], lane.get()));
  lane->Enqueue(&Gate::Pass, &gate);
  ASSERT_OK(session->After(made.backward[0], lane.get()));
  ASSERT_OK(session->Before(made.use[0], lane.get()));
  session->Abort("stop");
  std::thread opener([&] { gate.open = true; });
  session.reset();
  EXPECT_TRUE(gate.passed);
  opener.join();
}

TEST(SessionTest, BufferVersionOnAWorkersStreamWaitsForTheWork) {
  Graph graph;
  Buffer buffer;
  buffer.name = "values";
  buffer.ownership = Ownership::kBound;
  buffer.count = 1;
  const BufferId values = graph.AddBuffer(buffer).value();
  Op op;
  op.name = "write";
  op.accesses.push_back({values, AccessMode::kWrite, {}});
  const OpId write = graph.AddOp(op).value();
  SessionRig rig(Ranks(1), graph, {});
  std::unique_ptr<HostStream> lane = HostStream::Create("lane", 64).value();
  SessionSpec spec = rig.Spec(0);
  spec.lanes = {lane.get()};
  std::unique_ptr<Session> session = Session::Create(spec).value();
  Gate gate;
  ASSERT_OK(session->StepBegin());
  ASSERT_OK(session->Before(write, lane.get()));
  lane->Enqueue(&Gate::Pass, &gate);
  ASSERT_OK(session->After(write, lane.get()));
  ASSERT_OK(session->StepEnd());
  EXPECT_EQ(session->BufferVersion(values).value(), 0u);
  gate.open = true;
  ASSERT_OK(session->Drain());
  EXPECT_EQ(session->BufferVersion(values).value(), 1u);
}

TEST(SessionTest, ALaunchThatARankNeverIssuesMissesItsDeadline) {
  const BucketGraph made = MakeBuckets(2, 1, 8);
  SessionRig rig(Ranks(2), made.graph, {});
  std::atomic<bool> failed{false};
  const std::vector<absl::Status> statuses = rig.RunRanks([&](int rank) {
    SessionSpec spec = rig.Spec(rank);
    if (rank == 0) spec.launch_timeout_ns = 50 * 1000 * 1000;
    ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Create(spec));
    absl::Status status;
    if (rank == 0) {
      status = RunStep(*session, rig, made, rank);
      failed = true;
    } else {
      while (!failed) std::this_thread::yield();
    }
    return status;
  });
  EXPECT_THAT(statuses[0],
              StatusIs(absl::StatusCode::kDeadlineExceeded, "'AR0'"));
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
              StatusIs(kInvalid, "0 groups given, the graph has 1"));
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
          while (!checked) std::this_thread::yield();
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
