// A process that is stopped for longer than its timeouts, and goes on.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/status_macros.h"
#include "comm/meeting/memory_meeting.h"
#include "device/host_device.h"
#include "gtest/gtest.h"
#include "session/session.h"
#include "test/recording/recording_rig.h"
#include "test/session/bucket_graph.h"
#include "test/support/await.h"
#include "test/support/session_rig.h"

namespace commsched {
namespace {

using test::Await;
using test::BucketGraph;
using test::MakeBuckets;
using test::ModulesRank;
using test::ModulesSpec;
using test::Ranks;
using test::RunModules;
using test::RunStep;
using test::SessionRig;

constexpr int64_t kTimeoutNs = int64_t{2000} * 1000 * 1000;
constexpr int kStoppedMs = 3000;

// Rank 1 comes when the process has been stopped and continued; rank 0 waits.
struct Stop {
  std::atomic<bool> over{false};
  std::atomic<int> num_waiting{0};

  bool AwaitOver() {
    return Await([&] { return over.load(); });
  }
};

// In a launch.
std::vector<absl::Status> WaitInLaunch(Stop* stop) {
  const BucketGraph made = MakeBuckets(2, 1, 8);
  SessionRig rig(Ranks(2), made.graph, {});
  return rig.RunRanks([&](int rank) -> absl::Status {
    SessionSpec spec = rig.Spec(rank);
    spec.launch_timeout_ns = kTimeoutNs;
    ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Create(spec));
    if (rank == 1) {
      if (!stop->AwaitOver()) return absl::InternalError("never continued");
      RETURN_IF_ERROR(RunStep(*session, rig, made, rank));
      return session->Drain();
    }
    RETURN_IF_ERROR(session->StepBegin());
    RETURN_IF_ERROR(test::Call(*session, made.backward[0]));
    if (!Await(
            [&] { return session->counters().peak_launches_in_flight == 1; })) {
      return absl::InternalError("nothing is in flight");
    }
    ++stop->num_waiting;
    RETURN_IF_ERROR(test::Call(*session, made.use[0]));
    RETURN_IF_ERROR(session->StepEnd());
    return session->Drain();
  });
}

// In the meeting of session_create.
std::vector<absl::Status> WaitInMeeting(Stop* stop) {
  const BucketGraph made = MakeBuckets(2, 1, 8);
  SessionRig rig(Ranks(2), made.graph, {});
  auto* meeting = dynamic_cast<MemoryMeeting*>(rig.world()->meeting());
  return rig.RunRanks([&](int rank) -> absl::Status {
    if (rank == 1) {
      if (!Await([&] { return meeting->NumOpen() > 0; })) {
        return absl::InternalError("rank 0 does not come");
      }
      ++stop->num_waiting;
      if (!stop->AwaitOver()) return absl::InternalError("never continued");
    }
    SessionSpec spec = rig.Spec(rank);
    spec.launch_timeout_ns = kTimeoutNs;
    return Session::Create(spec).status();
  });
}

// In a collective that is recorded.
std::vector<absl::Status> WaitInRecording(Stop* stop) {
  ModulesSpec spec;
  spec.ranks = 2;
  spec.modules = 1;
  spec.launch_timeout_ns = kTimeoutNs;
  return RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
    RETURN_IF_ERROR(rank.recording().StepBegin());
    if (rank.rank() == 0) ++stop->num_waiting;
    if (rank.rank() == 1 && !stop->AwaitOver()) {
      return absl::InternalError("never continued");
    }
    RETURN_IF_ERROR(rank.Reduce(0));
    return rank.recording().StepEnd();
  });
}

// What the process that is stopped does: says over `to_parent` that its ranks
// wait, and lets the others come once it reads something.
int RunStopped(int from_parent, int to_parent) {
  Stop stop;
  std::atomic<bool> failed{false};
  std::vector<std::thread> jobs;
  for (auto* job : {&WaitInLaunch, &WaitInMeeting, &WaitInRecording}) {
    jobs.emplace_back([&, job] {
      for (const absl::Status& status : job(&stop)) {
        if (status.ok()) continue;
        std::fprintf(stderr, "%s\n", status.ToString().c_str());
        failed = true;
      }
    });
  }
  char byte = 0;
  const bool all_wait =
      Await([&] { return stop.num_waiting == 3 || failed.load(); });
  const bool told = write(to_parent, &byte, 1) == 1;
  const bool continued = read(from_parent, &byte, 1) == 1;
  stop.over = true;
  for (std::thread& job : jobs) job.join();
  return all_wait && told && continued && !failed ? 0 : 1;
}

// Stops `child` once its ranks wait, and continues it after kStoppedMs.
void StopAndContinue(pid_t child, int from_child, int to_child) {
  char byte = 0;
  ASSERT_EQ(read(from_child, &byte, 1), 1);
  ASSERT_EQ(kill(child, SIGSTOP), 0);
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(state));
  // Nothing comes from it now: real time has to pass.
  pollfd nothing = {.fd = from_child, .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&nothing, 1, kStoppedMs), 0);
  ASSERT_EQ(kill(child, SIGCONT), 0);
  ASSERT_EQ(write(to_child, &byte, 1), 1);
}

TEST(StoppedProcessTest, TimeInWhichItDidNotRunIsNotCharged) {
  int to_child[2], to_parent[2];
  ASSERT_EQ(pipe(to_child), 0);
  ASSERT_EQ(pipe(to_parent), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(RunStopped(to_child[0], to_parent[1]));
  StopAndContinue(child, to_parent[0], to_child[1]);
  if (testing::Test::HasFatalFailure()) kill(child, SIGKILL);
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state));
  EXPECT_EQ(WEXITSTATUS(state), 0);
  for (int end : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) {
    close(end);
  }
}

}  // namespace
}  // namespace commsched
