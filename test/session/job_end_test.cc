// The end of a job of processes beside a rank that is stuck.
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "comm/plugin/registry.h"
#include "control/server.h"
#include "device/host_device.h"
#include "gtest/gtest.h"
#include "session/session.h"
#include "test/support/graph_builder.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

#ifdef COMMSCHED_TEST_UCX
using SteadyClock = std::chrono::steady_clock;

constexpr int kEndRanks = 3;
constexpr int kEndGroups = 5;
constexpr int kStuck = 2;

Graph FiveGroups() {
  test::GraphBuilder b;
  for (int i = 0; i < kEndGroups; ++i) {
    const GroupId group = b.Group(absl::StrCat("g", i), kEndRanks);
    const BufferId x = b.Buffer(absl::StrCat("x", i), 1 << 16);
    b.Compute(absl::StrCat("make", i), {test::ReadWrite(x)});
    b.AllReduce(absl::StrCat("sum", i), group, x);
  }
  return b.graph();
}

// Lets ranks go on together.
class Gate {
 public:
  void Open() {
    MutexLock lock(&mu_);
    open_ = true;
    changed_.SignalAll();
  }
  void Wait() {
    MutexLock lock(&mu_);
    while (!open_) changed_.Wait(&mu_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
};

// `true`: rank 0 runs the control server.
class JobEndTest : public testing::TestWithParam<bool> {
 protected:
  JobEndTest() {
    std::string name = testing::TempDir() + "/job-end-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    EXPECT_OK(PluginRegistry::Process().Load(COMMSCHED_TEST_UCX));
    if (GetParam()) return;
    ControlServerSpec spec;
    spec.size = kEndRanks;
    server_ = ControlServer::Start(spec).value();
  }
  ~JobEndTest() override { std::filesystem::remove_all(folder_); }

  std::shared_ptr<World> Join(int rank) {
    WorldSpec spec;
    spec.backend = "ucx";
    JobSpec job;
    job.environment.rank = rank;
    job.environment.size = kEndRanks;
    job.environment.local_rank = rank;
    job.environment.local_size = kEndRanks;
    job.environment.job = "test";
    job.folder = folder_;
    if (server_ != nullptr) {
      job.environment.server_host = "127.0.0.1";
      job.environment.server_port = server_->port();
      job.environment.rank_0_serves = false;
    }
    return World::Join(spec, job).value();
  }

  // All ranks but one make a step, which fails by its deadline.
  static absl::Status StepInVain(Session& session) {
    RETURN_IF_ERROR(session.StepBegin());
    for (const ComputeNode& node : session.plan().nodes) {
      RETURN_IF_ERROR(session.Before(node.op, CallerStream()));
      RETURN_IF_ERROR(session.After(node.op, CallerStream()));
    }
    RETURN_IF_ERROR(session.StepEnd());
    return session.Drain();
  }

  std::string folder_;
  std::unique_ptr<ControlServer> server_;
};

TEST_P(JobEndTest, TakesASecondForAllGroupsAndTheWorldBesideAStuckRank) {
  std::vector<std::shared_ptr<World>> worlds(kEndRanks);
  std::vector<std::thread> joins;
  for (int rank = 0; rank < kEndRanks; ++rank) {
    joins.emplace_back([&, rank] { worlds[rank] = Join(rank); });
  }
  for (std::thread& join : joins) join.join();
  test::SessionRig rig(std::move(worlds), FiveGroups(), PlanOptions{});
  worlds = rig.TakeWorlds();
  constexpr std::chrono::milliseconds kTimeout(300);
  Gate ended;
  std::vector<absl::Status> statuses(kEndRanks);
  std::vector<std::chrono::duration<double>> took(kEndRanks);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kEndRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      SessionSpec spec = rig.Spec(rank, worlds[rank]);
      spec.launch_timeout_ns = std::chrono::nanoseconds(kTimeout).count();
      auto session = Session::Create(std::move(spec)).value();
      if (rank == kStuck) {
        ended.Wait();
      } else {
        const SteadyClock::time_point begin = SteadyClock::now();
        statuses[rank] = StepInVain(*session);
        session.reset();
        worlds[rank].reset();
        took[rank] = SteadyClock::now() - begin - kTimeout;
      }
    });
  }
  for (int rank = 0; rank < kStuck; ++rank) ranks[rank].join();
  ended.Open();
  ranks[kStuck].join();
  worlds[kStuck].reset();
  for (int rank = 0; rank < kStuck; ++rank) {
    EXPECT_THAT(statuses[rank],
                StatusIs(absl::StatusCode::kDeadlineExceeded, "rank 2"));
    // A second, and what a busy machine adds.
    EXPECT_LT(took[rank].count(), 5.0) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(WhereTheServerIs, JobEndTest, testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "rank_0" : "elsewhere";
                         });
#endif

}  // namespace
}  // namespace commsched
