// Sessions that get on while their caller is in a call, on its thread.
#include <memory>
#include <thread>
#include <vector>

#include "base/status_macros.h"
#include "device/host_device.h"
#include "gtest/gtest.h"
#include "session/session.h"
#include "test/session/bucket_graph.h"
#include "test/support/fault_backend.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::BucketGraph;
using test::Fault;
using test::FaultBackend;
using test::MakeBuckets;
using test::RunStep;
using test::SessionRig;

constexpr int kNumDriven = 3;
constexpr int kDrivenBuckets = 4;
constexpr uint64_t kDrivenCount = 1000;

class CallerProgressTest : public testing::Test {
 protected:
  CallerProgressTest()
      : made_(MakeBuckets(kNumDriven, kDrivenBuckets, kDrivenCount)) {}

  static SessionSpec ByCaller(SessionSpec spec) {
    spec.by_caller = true;
    return spec;
  }
  absl::Status Run(SessionRig* rig, int rank, int num_steps,
                   int64_t timeout_ns = 20'000'000'000) {
    SessionSpec spec = ByCaller(rig->Spec(rank));
    spec.launch_timeout_ns = timeout_ns;
    absl::StatusOr<std::unique_ptr<Session>> session =
        Session::Create(std::move(spec));
    absl::Status status = session.status();
    for (int step = 0; status.ok() && step < num_steps; ++step) {
      status = RunStep(**session, *rig, made_, rank);
    }
    return status.ok() ? (*session)->Drain() : status;
  }

  const BucketGraph made_;
};

TEST_F(CallerProgressTest, StepsGiveWhatAThreadGives) {
  SessionRig rig(test::Ranks(kNumDriven), made_.graph, {});
  for (const absl::Status& status :
       rig.RunRanks([&](int rank) { return Run(&rig, rank, 20); })) {
    EXPECT_OK(status);
  }
}

// Sessions of both kinds share the rank: whoever has the turn pumps all.
TEST_F(CallerProgressTest, WorksBesideSessionsOfTheThread) {
  SessionRig rig(test::Ranks(kNumDriven), made_.graph, {});
  SessionRig other(test::Ranks(kNumDriven), made_.graph, {});
  for (const absl::Status& status : rig.RunRanks([&](int rank) {
         SessionSpec spec = other.Spec(rank);
         spec.world = rig.world();
         spec.instance = 1;
         absl::StatusOr<std::unique_ptr<Session>> beside =
             Session::Create(spec);
         if (!beside.ok()) return beside.status();
         absl::Status second;
         std::thread thread([&] {
           for (int step = 0; second.ok() && step < 50; ++step) {
             second = RunStep(**beside, other, made_, rank);
           }
           if (second.ok()) second = (*beside)->Drain();
         });
         const absl::Status first = Run(&rig, rank, 50);
         thread.join();
         return first.ok() ? second : first;
       })) {
    EXPECT_OK(status);
  }
}

TEST_F(CallerProgressTest, AStreamWouldWaitForItsCaller) {
  SessionRig rig(test::Ranks(1), MakeBuckets(1, 1, 8).graph, {});
  auto worker = HostStream::Create("worker", 8).value();
  SessionSpec spec = ByCaller(rig.Spec(0));
  spec.lanes = {worker.get()};
  EXPECT_THAT(Session::Create(spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "lane 0 is a stream, but progress is the caller's"));
}

TEST_F(CallerProgressTest, ALaunchThatHangsMissesItsDeadline) {
  FaultBackend backend({{.kind = Fault::Kind::kHang, .world_rank = 1}});
  SessionRig rig(backend.Spec(test::Ranks(kNumDriven)), made_.graph, {});
  const std::vector<absl::Status> statuses = rig.RunRanks(
      [&](int rank) { return Run(&rig, rank, 3, /*timeout_ns=*/300'000'000); });
  // By who is the first to look at its deadline: that of the launch itself, or
  // of one that waits for the rank whose launch hangs.
  EXPECT_THAT(statuses[1],
              testing::AnyOf(StatusIs(absl::StatusCode::kDeadlineExceeded,
                                      "launch #0 all_reduce"),
                             StatusIs(absl::StatusCode::kDeadlineExceeded,
                                      "rank 1 has not issued")));
  for (const absl::Status& status : statuses) EXPECT_FALSE(status.ok());
}

TEST_F(CallerProgressTest, AnAbortEndsTheWaitsOfAllRanks) {
  SessionRig rig(test::Ranks(kNumDriven), made_.graph, {});
  for (const absl::Status& status : rig.RunRanks([&](int rank) -> absl::Status {
         ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                          Session::Create(ByCaller(rig.Spec(rank))));
         // The last rank never makes anything due.
         if (rank == kNumDriven - 1) {
           session->Abort("enough");
           return session->status();
         }
         return RunStep(*session, rig, made_, rank);
       })) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, "enough"));
  }
}

}  // namespace
}  // namespace commsched
