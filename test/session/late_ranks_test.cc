// Which rank is late, as sessions of processes find it: whose launch others
// wait for in vain, and who holds them up. On a host, and as if on two.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "comm/plugin/registry.h"
#include "commsched/plugin.h"
#include "control/server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "session/session.h"
#include "test/session/bucket_graph.h"
#include "test/support/await.h"
#include "test/support/rank_group.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"
#include "trace/blame.h"
#include "trace/recorder.h"

namespace commsched {
namespace {

#ifdef COMMSCHED_TEST_UCX
using test::BucketGraph;
using test::MakeBuckets;
using test::RunStep;
using test::SessionRig;
using testing::HasSubstr;
using testing::Not;

constexpr int kLateTestRanks = 4;
// However busy the machine is when ranks join.
constexpr int64_t kLateTestJoinNs = int64_t{60} * 1000 * 1000 * 1000;
// Large enough to go by way of ranks of other hosts.
constexpr uint64_t kLateTestCount = 20'000;

struct LateCase {
  const char* name;
  // COMMSCHED_HOST_ID of each rank.
  std::array<const char*, kLateTestRanks> hosts;
};
std::ostream& operator<<(std::ostream& out, const LateCase& one) {
  return out << one.name;
}

class LateRanksTest : public testing::TestWithParam<LateCase> {
 protected:
  LateRanksTest() : made_(MakeBuckets(kLateTestRanks, 1, kLateTestCount)) {
    EXPECT_OK(PluginRegistry::Process().Load(COMMSCHED_TEST_UCX));
  }

  // Worlds of ranks that meet at a server, as processes have them. `body` is
  // called on a thread per rank.
  std::vector<absl::Status> OnRanks(
      const std::function<absl::Status(SessionRig& rig, int rank)>& body) {
    ControlServerSpec server;
    server.size = kLateTestRanks;
    const auto started = ControlServer::Start(server).value();
    std::vector<std::shared_ptr<World>> worlds(kLateTestRanks);
    RunRanks(kLateTestRanks, [&](int rank) -> absl::Status {
      WorldSpec spec;
      spec.backend = "ucx";
      JobSpec job;
      job.environment.rank = rank;
      job.environment.size = kLateTestRanks;
      job.environment.local_rank = rank;
      job.environment.local_size = kLateTestRanks;
      job.environment.server_host = "127.0.0.1";
      job.environment.server_port = started->port();
      job.environment.rank_0_serves = false;
      job.environment.host_id = GetParam().hosts[rank];
      worlds[rank] = World::Join(spec, job).value();
      return absl::OkStatus();
    });
    SessionRig rig(std::move(worlds), made_.graph, PlanOptions{});
    std::vector<absl::Status> statuses =
        rig.RunRanks([&](int rank) { return body(rig, rank); });
    // They end together.
    std::vector<std::shared_ptr<World>> ending = rig.TakeWorlds();
    RunRanks(kLateTestRanks, [&](int rank) -> absl::Status {
      ending[rank].reset();
      return absl::OkStatus();
    });
    return statuses;
  }

  // Rank `late` does not come to the launch of a step before all others have
  // failed. `by_caller`: nor does anybody make progress for it.
  std::vector<absl::Status> StepWithout(int late, bool by_caller) {
    std::atomic<int> num_failed{0};
    return OnRanks([&](SessionRig& rig, int rank) {
      SessionSpec spec = rig.Spec(rank);
      // Ranks have a second each time to answer.
      spec.launch_timeout_ns = int64_t{2000} * 1000 * 1000;
      spec.join_timeout_ns = kLateTestJoinNs;
      spec.by_caller = by_caller && rank == late;
      auto session = Session::Create(spec);
      if (!session.ok()) return session.status();
      if (rank == late) {
        EXPECT_TRUE(
            test::Await([&] { return num_failed == kLateTestRanks - 1; }));
      }
      absl::Status status = RunStep(**session, rig, made_, rank);
      if (status.ok()) status = (*session)->Drain();
      if (rank != late) ++num_failed;
      return status;
    });
  }

  const BucketGraph made_;
};

auto LateHosts() {
  return testing::Values(LateCase{"on_one", {"", "", "", ""}},
                         LateCase{"two_of_2", {"a", "a", "b", "b"}},
                         LateCase{"3_and_1", {"a", "a", "a", "b"}});
}

INSTANTIATE_TEST_SUITE_P(Hosts, LateRanksTest, LateHosts(),
                         [](const auto& info) { return info.param.name; });

// Of a launch each rank owns a part; on the other host it has a counterpart.
TEST_P(LateRanksTest, WhoHasNotIssuedIsNamedWhereverItIs) {
  for (const int late : {0, 3}) {
    for (const absl::Status& status : StepWithout(late, false)) {
      EXPECT_THAT(status,
                  StatusIs(absl::StatusCode::kDeadlineExceeded,
                           absl::StrCat("rank ", late, " has not issued #0 ")));
      EXPECT_THAT(std::string(status.message()), Not(HasSubstr("not answer")));
    }
  }
}

TEST_P(LateRanksTest, WhoDoesNotAnswerIsSaidNotToHave) {
  for (const absl::Status& status : StepWithout(2, /*by_caller=*/true)) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                 "; rank 2 does not answer"));
    EXPECT_THAT(std::string(status.message()),
                Not(HasSubstr("has not issued")));
  }
}

TEST_P(LateRanksTest, ToMeetTakesAsLongAsItMayWhateverALaunchMayTake) {
  for (const absl::Status& status : OnRanks([](SessionRig&rig, int rank) {
         SessionSpec spec = rig.Spec(rank);
         spec.launch_timeout_ns = 1;
         spec.join_timeout_ns = kLateTestJoinNs;
         return Session::Create(spec).status();
       })) {
    EXPECT_OK(status);
  }
}

// Counts the launches that backends have taken, of all sessions that it sees.
struct IssueCounter {
  static std::atomic<uint64_t> count;
  static commsched_status_t Attach(const commsched_observed_plan_t* /*plan*/,
                                   void** out_observation, char* /*message*/,
                                   uint64_t /*message_size*/) {
    *out_observation = &count;
    return COMMSCHED_OK;
  }
  static commsched_status_t OnEvent(void* /*observation*/,
                                    const commsched_observer_event_t* /*event*/,
                                    char* /*message*/,
                                    uint64_t /*message_size*/) {
    ++count;
    return COMMSCHED_OK;
  }
  static void Detach(void* /*observation*/) {}
  static constexpr commsched_observer_t kTable = {
      .struct_size = sizeof(commsched_observer_t),
      .abi = COMMSCHED_OBSERVER_ABI,
      .events = COMMSCHED_OBSERVE_LAUNCH_BEGIN,
      .name = "issue-counter",
      .version = "1",
      .attach = &Attach,
      .on_event = &OnEvent,
      .detach = &Detach};
};
std::atomic<uint64_t> IssueCounter::count{0};

constexpr uint64_t kLateTestSteps = 6;
constexpr int64_t kLateTestDelayNs = int64_t{10} * 1000 * 1000;
using Recorders = std::vector<std::unique_ptr<Recorder>>;

class LateStepsTest : public LateRanksTest {
 protected:
  // Steps whose launch all others have issued for some time when `late` comes
  // to it. The last one begins when all know of those before the last two.
  Recorders TraceSteps(int late) {
    Recorders recorders;
    for (int rank = 0; rank < kLateTestRanks; ++rank) {
      recorders.push_back(std::make_unique<Recorder>(1024));
    }
    IssueCounter::count = 0;
    for (const absl::Status& status :
         OnRanks([&](SessionRig&rig, int rank) -> absl::Status {
           SessionSpec spec = rig.Spec(rank);
           spec.recorder = recorders[rank].get();
           if (rank != late) spec.observers = {&IssueCounter::kTable};
           ASSIGN_OR_RETURN(const auto session, Session::Create(spec));
           for (uint64_t step = 0; step < kLateTestSteps; ++step) {
             if (rank == late) BeLate(step, recorders);
             RETURN_IF_ERROR(RunStep(*session, rig, made_, rank));
           }
           return session->Drain();
         })) {
      EXPECT_OK(status);
    }
    return recorders;
  }

  static void BeLate(uint64_t step, const Recorders& recorders) {
    EXPECT_TRUE(test::Await([&] {
      return IssueCounter::count == (step + 1) * (kLateTestRanks - 1);
    }));
    const int64_t until_ns = SystemClock::Get().NowNs() + kLateTestDelayNs;
    EXPECT_TRUE(
        test::Await([&] { return SystemClock::Get().NowNs() >= until_ns; }));
    if (step + 1 < kLateTestSteps) return;
    EXPECT_TRUE(test::Await([&] {
      return std::all_of(recorders.begin(), recorders.end(),
                         [](const std::unique_ptr<Recorder>& recorder) {
                           return recorder->SnapshotOfStarts().size() >=
                                  kLateTestSteps - 2;
                         });
    }));
  }
};

INSTANTIATE_TEST_SUITE_P(Hosts, LateStepsTest, LateHosts(),
                         [](const auto& info) { return info.param.name; });

// The launch of each step, on the rank that records.
std::vector<Record> LaunchesOf(const Recorder& recorder) {
  std::vector<Record> launches(kLateTestSteps);
  for (const Record& record : recorder.Snapshot()) {
    if (record.kind == RecordKind::kLaunch) launches.at(record.step) = record;
  }
  return launches;
}

TEST_P(LateStepsTest, WhoHoldsTheOthersUpIsBlamedForIt) {
  for (const int late : {0, 3}) {
    const Recorders recorders = TraceSteps(late);
    const std::vector<Record> launches = LaunchesOf(*recorders[late]);
    for (int rank = 0; rank < kLateTestRanks; ++rank) {
      int64_t late_ns = 0;
      for (const Record& record : recorders[rank]->SnapshotOfStarts()) {
        const Start start = StartOf(record);
        const Record& last = launches.at(record.step);
        EXPECT_GE(start.started_ns, last.begin_ns - start.error_ns);
        EXPECT_LE(start.started_ns, last.end_ns + start.error_ns);
        // Clocks are as far apart as a busy machine makes them look.
        if (2 * start.error_ns >= kLateTestDelayNs) continue;
        EXPECT_EQ(start.last_rank, late);
        if (record.step + 1 == kLateTestSteps) continue;  // It does not end.
        late_ns += kLateTestDelayNs - start.error_ns;
      }
      const RunBlame blame = ComputeBlame(*recorders[rank]);
      if (rank == late) continue;
      EXPECT_TRUE(late_ns == 0 || blame.straggler.rank == late)
          << blame.straggler.rank;
      EXPECT_GE(blame.straggler.ns, late_ns);
    }
  }
}
#endif

}  // namespace
}  // namespace commsched
