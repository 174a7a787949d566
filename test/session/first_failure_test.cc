// The first failure of a session reaches every rank and ends it.
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/status_macros.h"
#include "device/host_device.h"
#include "gtest/gtest.h"
#include "session/session.h"
#include "test/session/bucket_graph.h"
#include "test/support/await.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::BucketGraph;
using test::ExpectAllOk;
using test::MakeBuckets;
using test::Ranks;
using test::RunStep;
using test::SessionRig;

TEST(SessionFailureTest, AnAbortOnOneRankReachesAll) {
  const BucketGraph made = MakeBuckets(3, 1, 8);
  SessionRig rig(Ranks(3), made.graph, {});
  const std::vector<absl::Status> statuses =
      rig.RunSessions([&](Session& session, int rank) {
        if (rank == 1) {
          session.Abort("operator stopped the job");
          return session.status();
        }
        absl::Status status;
        EXPECT_TRUE(test::Await([&] {
          status = RunStep(session, rig, made, rank);
          return !status.ok();
        }));
        EXPECT_FALSE(session.StepBegin().ok()) << "the failure must stick";
        return status;
      });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted,
                                 "operator stopped the job"));
  }
}

TEST(SessionFailureTest, AFailedComputeOpFailsEveryRank) {
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

TEST(SessionFailureTest, ARankWithNothingInFlightLearnsOfAFailure) {
  const BucketGraph made = MakeBuckets(2, 1, 8);
  SessionRig rig(Ranks(2), made.graph, {});
  const std::vector<absl::Status> statuses =
      rig.RunSessions([&](Session& session, int rank) {
        if (rank == 0) session.Abort("stop");
        EXPECT_TRUE(test::Await([&] { return !session.status().ok(); }));
        return session.status();
      });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, "stop"));
  }
}

TEST(SessionFailureTest, ATimeoutOfNeverIsNoDeadline) {
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
    EXPECT_TRUE(test::Await([&] { return gate->open.load(); }));
    gate->passed = true;
  }
};

// The worker still has our waits and its work queued when the session goes.
TEST(SessionFailureTest, AFailedSessionLetsItsWorkersFinish) {
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

TEST(SessionFailureTest, BufferVersionOnAWorkersStreamWaitsForTheWork) {
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

TEST(SessionFailureTest, ALaunchThatARankNeverIssuesMissesItsDeadline) {
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
      EXPECT_TRUE(test::Await([&] { return failed.load(); }));
    }
    return status;
  });
  EXPECT_THAT(statuses[0],
              StatusIs(absl::StatusCode::kDeadlineExceeded, "'AR0'"));
}

}  // namespace
}  // namespace commsched
