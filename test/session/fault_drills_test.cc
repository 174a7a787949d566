// What a job does when something below it goes wrong: every rank gets the first
// failure in time, nothing hangs, everything is released, and the same ranks
// can start again (I7).
#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "device/host_device.h"
#include "gtest/gtest.h"
#include "session/session.h"
#include "test/support/await.h"
#include "test/support/fault_backend.h"
#include "test/support/rank_group.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::Fault;
using test::FaultBackend;
using test::SessionRig;

constexpr int kRanks = 3;
constexpr int kFaultyRank = 1;
constexpr int kBuckets = 4;
constexpr uint64_t kCount = 1000;
constexpr int kSteps = 4;
constexpr int64_t kDeadlineNs = 1'000'000'000;
constexpr int64_t kNoHurryNs = 60'000'000'000;

// Four gradients, summed in turn over two groups of the same ranks.
struct Job {
  Graph graph;
  std::vector<BufferId> gradient;
  std::vector<OpId> backward, reduce, use;
};

Job MakeJob() {
  Job job;
  const GroupId groups[] = {job.graph.AddGroup("dp", kRanks).value(),
                            job.graph.AddGroup("sp", kRanks).value()};
  for (int i = 0; i < kBuckets; ++i) {
    Buffer buffer;
    buffer.name = absl::StrCat("grad", i);
    buffer.ownership = Ownership::kBound;
    buffer.count = kCount;
    job.gradient.push_back(job.graph.AddBuffer(buffer).value());
  }
  auto compute = [&](const char* prefix, int i, AccessMode mode) {
    Op op;
    op.name = absl::StrCat(prefix, i);
    op.accesses.push_back({job.gradient[i], mode, {}});
    return job.graph.AddOp(op).value();
  };
  for (int i = 0; i < kBuckets; ++i) {
    job.backward.push_back(compute("BWD", i, AccessMode::kWrite));
  }
  for (int i = 0; i < kBuckets; ++i) {
    Op op;
    op.name = absl::StrCat("AR", i);
    op.kind = OpKind::kCollective;
    op.collective.group = groups[i % 2];
    op.collective.input = {job.gradient[i], AccessMode::kRead, {}};
    op.collective.output = {job.gradient[i], AccessMode::kWrite, {}};
    job.reduce.push_back(job.graph.AddOp(op).value());
  }
  for (int i = 0; i < kBuckets; ++i) {
    job.use.push_back(compute("USE", i, AccessMode::kRead));
  }
  return job;
}

// Threads of this process.
int NumThreads() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    int threads = 0;
    if (absl::StartsWith(line, "Threads:") &&
        absl::SimpleAtoi(line.substr(8), &threads)) {
      return threads;
    }
  }
  return -1;
}

// Whether they become `expected`: a thread that has been joined may still be on
// its way out of the kernel's count.
bool ThreadsComeTo(int expected, int64_t within_ns = 10'000'000'000) {
  const int64_t deadline_ns = SystemClock::Get().NowNs() + within_ns;
  while (NumThreads() != expected) {
    if (SystemClock::Get().NowNs() > deadline_ns) return false;
    std::this_thread::yield();
  }
  return true;
}

class FaultDrillTest : public testing::Test {
 protected:
  FaultDrillTest() : job_(MakeJob()) {}

  // Every rank creates a session, runs the steps and drains, under `fault`.
  void Run(Fault fault, int64_t timeout_ns) {
    // The fault hits the second launch on axis "dp" of step 1, of AR2.
    if (fault.world_rank < 0) fault.world_rank = kFaultyRank;
    if (fault.launch < 0) fault.launch = 3;
    fault.axis = "dp";
    Prepare({fault});
    statuses_ = RunSessions(/*instance=*/0, timeout_ns);
  }

  void Prepare(std::vector<Fault> faults) {
    rig_.reset();  // Its world needs the backend that made it.
    backend_ = std::make_unique<FaultBackend>(std::move(faults));
    WorldSpec inner;
    inner.size = kRanks;
    PlanOptions options;
    options.num_comm_lanes = 2;
    rig_ = std::make_unique<SessionRig>(backend_->Spec(inner), job_.graph,
                                        options);
    // The thread sanitizer starts a thread of its own with the first of ours.
    const int alone = NumThreads();
    std::thread([] {}).join();
    threads_before_ = ThreadsComeTo(alone, 100'000'000) ? alone : NumThreads();
  }

  std::vector<absl::Status> RunSessions(uint64_t instance, int64_t timeout_ns) {
    return RunRanks(
        kRanks,
        [&](int rank) -> absl::Status {
          SessionSpec spec = rig_->Spec(rank);
          spec.instance = instance;
          spec.launch_timeout_ns = timeout_ns;
          ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                           Session::Create(spec));
          absl::Status status;
          for (int step = 0; step < kSteps && status.ok(); ++step) {
            if (step == 1) FaultyStepBegins(rank);
            status = RunStep(*session, rank, step);
          }
          if (status.ok()) status = session->Drain();
          ended_ns_[rank] = SystemClock::Get().NowNs();
          if (!status.ok()) {
            EXPECT_EQ(session->StepBegin(), status) << "it must stick";
          }
          return status;
        },
        /*timeout_s=*/90);
  }

  // Rank r adds (r + 1) * (step + 1) to each element.
  absl::Status RunStep(Session& session, int rank, int step) {
    RETURN_IF_ERROR(session.StepBegin());
    for (int i = 0; i < kBuckets; ++i) {
      RETURN_IF_ERROR(session.Before(job_.backward[i], CallerStream()));
      float* const gradient = rig_->Memory(rank, job_.gradient[i]);
      const auto value = static_cast<float>((rank + 1) * (step + 1));
      std::fill(gradient, gradient + kCount, value);
      RETURN_IF_ERROR(session.After(job_.backward[i], CallerStream()));
    }
    for (int i = 0; i < kBuckets; ++i) {
      RETURN_IF_ERROR(session.Before(job_.use[i], CallerStream()));
      const float* const sum = rig_->Memory(rank, job_.gradient[i]);
      const auto expected = static_cast<float>(6 * (step + 1));
      num_wrong_ += static_cast<uint64_t>(std::count_if(
          sum, sum + kCount, [&](float value) { return value != expected; }));
      RETURN_IF_ERROR(session.After(job_.use[i], CallerStream()));
    }
    return session.StepEnd();
  }

  void FaultyStepBegins(int rank) {
    if (rank == kFaultyRank) begun_ns_ = SystemClock::Get().NowNs();
  }

  void ExpectInjected() { EXPECT_GE(backend_->num_injected(0), 1u); }

  void ExpectAllOk() {
    for (const absl::Status& status : statuses_) EXPECT_OK(status);
    EXPECT_EQ(num_wrong_, 0u);
  }

  // On every rank, in time after the faulty step began.
  void ExpectAllFail(absl::StatusCode code, int64_t limit_ns) {
    for (int rank = 0; rank < kRanks; ++rank) {
      SCOPED_TRACE(absl::StrCat("rank ", rank));
      EXPECT_THAT(statuses_[rank], StatusIs(code, "'AR2'"));
      EXPECT_THAT(statuses_[rank], StatusIs(code, "axis dp"));
      // Whose own launch fails need not be told where.
      if (rank != kFaultyRank) {
        EXPECT_THAT(statuses_[rank], StatusIs(code, "rank 1"));
      }
      EXPECT_LE(ended_ns_[rank] - begun_ns_, limit_ns);
    }
  }

  // Nothing is left of the drill, and the same world works.
  void ExpectReusable() {
    EXPECT_EQ(backend_->num_members(), 0);
    EXPECT_TRUE(ThreadsComeTo(threads_before_)) << NumThreads();
    backend_->Heal();
    num_wrong_ = 0;
    for (const absl::Status& status : RunSessions(1, kNoHurryNs)) {
      EXPECT_OK(status);
    }
    EXPECT_EQ(num_wrong_, 0u);
    EXPECT_EQ(backend_->num_members(), 0);
    EXPECT_TRUE(ThreadsComeTo(threads_before_)) << NumThreads();
  }

  const Job job_;
  std::unique_ptr<FaultBackend> backend_;
  std::unique_ptr<SessionRig> rig_;
  std::vector<absl::Status> statuses_;
  std::atomic<uint64_t> num_wrong_{0};
  int64_t begun_ns_ = 0;  // by the faulty rank
  int64_t ended_ns_[kRanks] = {};
  int threads_before_ = 0;
};

TEST_F(FaultDrillTest, ADelayOnlyDelays) {
  Run({.kind = Fault::Kind::kDelay, .launch = 3, .delay_ns = 50'000'000},
      kNoHurryNs);
  ExpectInjected();
  ExpectAllOk();
  ExpectReusable();
}

TEST_F(FaultDrillTest, RandomDelaysOfAllLaunchesOnlyDelay) {
  Fault fault;
  fault.world_rank = 2;
  fault.per_million = 500'000;
  fault.seed = 7;
  fault.delay_ns = 5'000'000;
  for (const Fault::Kind kind : {Fault::Kind::kDelay, Fault::Kind::kLateIssue,
                                 Fault::Kind::kAfterNext}) {
    fault.kind = kind;
    Prepare({fault});
    statuses_ = RunSessions(0, kNoHurryNs);
    ExpectInjected();
    ExpectAllOk();
    ExpectReusable();
  }
}

TEST_F(FaultDrillTest, ALateIssueOnlyDelays) {
  Run({.kind = Fault::Kind::kLateIssue, .delay_ns = 50'000'000}, kNoHurryNs);
  ExpectInjected();
  ExpectAllOk();
  ExpectReusable();
}

TEST_F(FaultDrillTest, LaunchesMayCompleteInAnotherOrder) {
  Run({.kind = Fault::Kind::kAfterNext, .delay_ns = 200'000'000}, kNoHurryNs);
  ExpectInjected();
  ExpectAllOk();
  ExpectReusable();
}

TEST_F(FaultDrillTest, AStormOfWakesIsWeathered) {
  Run({.kind = Fault::Kind::kWakeStorm}, kNoHurryNs);
  ExpectInjected();
  ExpectAllOk();
  ExpectReusable();
}

// Whether the others are done before a rank parks is up to the threads. It may
// get late, or miss its deadline; it must not hang.
TEST_F(FaultDrillTest, LostWakesEndAtTheDeadlineAtTheLatest) {
  Run({.kind = Fault::Kind::kLoseWakes}, kDeadlineNs);
  ExpectInjected();
  EXPECT_LE(*std::max_element(ended_ns_, ended_ns_ + kRanks) - begun_ns_,
            kSteps * kDeadlineNs + 1'000'000'000);
  EXPECT_EQ(num_wrong_, 0u);
  ExpectReusable();
}

TEST_F(FaultDrillTest, ALaunchThatIsRefusedFailsEveryRankAtOnce) {
  Run({.kind = Fault::Kind::kFailLaunch}, kNoHurryNs);
  ExpectInjected();
  ExpectAllFail(absl::StatusCode::kDataLoss, 1'000'000'000);
  EXPECT_THAT(statuses_[0], StatusIs(absl::StatusCode::kDataLoss, "injected"));
  ExpectReusable();
}

TEST_F(FaultDrillTest, ALaunchThatFailsUnderWayFailsEveryRankAtOnce) {
  Run({.kind = Fault::Kind::kFailPoll,
       .failure = absl::UnavailableError("the cable is out")},
      kNoHurryNs);
  ExpectInjected();
  ExpectAllFail(absl::StatusCode::kUnavailable, 1'000'000'000);
  ExpectReusable();
}

TEST_F(FaultDrillTest, ALaunchThatNeverCompletesMissesItsDeadline) {
  Run({.kind = Fault::Kind::kHang}, kDeadlineNs);
  ExpectInjected();
  // For the others AR2 is done: what they miss is the next on its axis. Either
  // side may be the first to find out.
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_THAT(statuses_[rank],
                StatusIs(absl::StatusCode::kDeadlineExceeded, "axis dp"));
    EXPECT_THAT(statuses_[rank],
                StatusIs(absl::StatusCode::kDeadlineExceeded, "rank 1"));
    EXPECT_LE(ended_ns_[rank] - begun_ns_, kDeadlineNs + 1'000'000'000);
  }
  EXPECT_THAT(statuses_[kFaultyRank],
              StatusIs(absl::StatusCode::kDeadlineExceeded, "'AR2'"));
  ExpectReusable();
}

TEST_F(FaultDrillTest, ALaunchThatARankNeverIssuesMissesItsDeadline) {
  Run({.kind = Fault::Kind::kNeverIssue}, kDeadlineNs);
  ExpectInjected();
  ExpectAllFail(absl::StatusCode::kDeadlineExceeded,
                kDeadlineNs + 1'000'000'000);
  ExpectReusable();
}

TEST_F(FaultDrillTest, AnotherKindOnOneRankIsNamed) {
  Run({.kind = Fault::Kind::kMismatchKind}, kNoHurryNs);
  ExpectInjected();
  ExpectAllFail(absl::StatusCode::kInvalidArgument, 1'000'000'000);
  EXPECT_THAT(statuses_[0], StatusIs(absl::StatusCode::kInvalidArgument,
                                     "rank 1 has barrier"));
  ExpectReusable();
}

TEST_F(FaultDrillTest, AnotherSizeOnOneRankIsNamed) {
  Run({.kind = Fault::Kind::kMismatchCount}, kNoHurryNs);
  ExpectInjected();
  ExpectAllFail(absl::StatusCode::kInvalidArgument, 1'000'000'000);
  EXPECT_THAT(statuses_[0], StatusIs(absl::StatusCode::kInvalidArgument,
                                     "equal parts of 999"));
  ExpectReusable();
}

// A backend that lies cannot be caught by the session; this shows that the
// checks of results, here and in the property tests, would.
TEST_F(FaultDrillTest, AShortCompletionShowsInTheResult) {
  Run({.kind = Fault::Kind::kShort}, kNoHurryNs);
  ExpectInjected();
  for (const absl::Status& status : statuses_) EXPECT_OK(status);
  EXPECT_EQ(num_wrong_, 1u);
  ExpectReusable();
}

TEST_F(FaultDrillTest, ACommunicatorThatCannotBeMadeFailsEveryCreate) {
  Run({.kind = Fault::Kind::kFailCommCreate,
       .failure = absl::ResourceExhaustedError("no memory for queue pairs")},
      kNoHurryNs);
  ExpectInjected();
  EXPECT_THAT(statuses_[kFaultyRank],
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "axis dp: no memory for queue pairs"));
  for (const int other : {0, 2}) {
    EXPECT_THAT(statuses_[other],
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         "rank 1 cannot bind: session: communicator of axis "
                         "dp: no memory for queue pairs"));
  }
  ExpectReusable();
}

// What the ranks of a job without faults are at when one of them gives up.
class AbortDrillTest : public FaultDrillTest {
 protected:
  // `others` runs on the other ranks until its status is not OK; the faulty
  // rank aborts once all of them are in it.
  void RunAbort(const std::function<absl::Status(Session&, int rank)>& others) {
    Prepare({});
    std::atomic<int> num_in{0};
    statuses_ = RunRanks(kRanks, [&](int rank) -> absl::Status {
      SessionSpec spec = rig_->Spec(rank);
      spec.launch_timeout_ns = kNoHurryNs;
      ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Create(spec));
      RETURN_IF_ERROR(RunStep(*session, rank, 0));
      if (rank == kFaultyRank) {
        EXPECT_TRUE(test::Await([&] { return num_in == kRanks - 1; }));
        begun_ns_ = SystemClock::Get().NowNs();
        session->Abort("the operator stopped it");
        return session->status();
      }
      ++num_in;
      absl::Status status = others(*session, rank);
      ended_ns_[rank] = SystemClock::Get().NowNs();
      return status;
    });
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_THAT(statuses_[rank], StatusIs(absl::StatusCode::kAborted,
                                            "the operator stopped it"));
      if (rank != kFaultyRank) {
        EXPECT_THAT(statuses_[rank],
                    StatusIs(absl::StatusCode::kAborted, "rank 1"));
        EXPECT_LE(ended_ns_[rank] - begun_ns_, 1'000'000'000);
      }
    }
    ExpectReusable();
  }
};

TEST_F(AbortDrillTest, ReachesRanksThatAreIdle) {
  RunAbort([](Session& session, int /*rank*/) {
    EXPECT_TRUE(test::Await([&] { return !session.status().ok(); }));
    return session.status();
  });
}

TEST_F(AbortDrillTest, ReachesRanksThatWaitInBefore) {
  RunAbort([&](Session& session, int rank) {
    return RunStep(session, rank, 1);  // Its sums need the faulty rank.
  });
}

TEST_F(AbortDrillTest, ReachesRanksThatDrain) {
  // Nothing reads the last sum inside the step: it is drained.
  RunAbort([&](Session& session, int /*rank*/) -> absl::Status {
    const auto call = [&](OpId op) -> absl::Status {
      RETURN_IF_ERROR(session.Before(op, CallerStream()));
      return session.After(op, CallerStream());
    };
    RETURN_IF_ERROR(session.StepBegin());
    for (OpId op : job_.backward) RETURN_IF_ERROR(call(op));
    for (OpId op : job_.use) RETURN_IF_ERROR(call(op));
    RETURN_IF_ERROR(session.StepEnd());
    return session.Drain();
  });
}

}  // namespace
}  // namespace commsched
