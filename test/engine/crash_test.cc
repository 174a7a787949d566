// A process that is killed while it saves, at every call that changes the disk.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "test/engine/file_faults.h"
#include "test/engine/toy_checkpoint.h"
#include "test/engine/toy_training.h"

namespace commsched::engine {
namespace {

constexpr int kRanks = 2;

std::atomic<int> g_calls_left{0};

// Kills this process at the last of the calls that it may make.
int KillAtLast(const char*) {
  if (g_calls_left.fetch_sub(1) == 1) raise(SIGKILL);
  return 0;
}

ToyStretch Stretch(const std::string& folder, const std::string& name) {
  ToyStretch stretch;
  stretch.run.ranks = kRanks;
  stretch.save = folder;
  stretch.name = name;
  return stretch;
}

// Saves step 1 in one process, which is killed at its `calls`th call; returns
// whether it was.
bool SaveAndDie(const std::string& folder, const std::string& name, int calls) {
  const pid_t child = fork();
  if (child == 0) {
    g_calls_left = calls;
    SetFileHook(KillAtLast);
    ToyStretch stretch = Stretch(folder, name);
    stretch.load = folder;
    stretch.end = 1;
    _exit(TrainToy(stretch).empty() ? 0 : 1);
  }
  int state = 0;
  EXPECT_EQ(waitpid(child, &state, 0), child);
  if (WIFSIGNALED(state)) {
    EXPECT_EQ(WTERMSIG(state), SIGKILL);
    return true;
  }
  EXPECT_EQ(WEXITSTATUS(state), 0);
  return false;
}

// The step of the checkpoint in `folder`, all of which is verified.
uint64_t VerifiedStep(const std::string& folder) {
  std::unique_ptr<Checkpoint> checkpoint;
  const Status status = Checkpoint::Open(folder, nullptr, &checkpoint);
  EXPECT_TRUE(status.ok()) << status.message();
  if (!status.ok()) return ~uint64_t{0};
  for (size_t tensor = 0; tensor < checkpoint->index().tensors.size();
       ++tensor) {
    for (const std::string& kind : checkpoint->Kinds()) {
      const Status verified = checkpoint->Verify({tensor, kind, 0, UINT32_MAX});
      EXPECT_TRUE(verified.ok()) << verified.message();
    }
  }
  return checkpoint->index().id.step;
}

// At first the checkpoint before is found whole, from some call on the new one.
TEST(CrashTest, AKillAtAnyCallLeavesOneOfTheTwoCheckpointsWhole) {
  bool killed = true;
  int kills_before = 0;
  int kills_after = 0;
  for (int calls = 1; killed; ++calls) {
    ASSERT_LT(calls, 1000);
    const TemporaryFolder folder;
    ASSERT_EQ(TrainToy(Stretch(folder.path(), "first")), "");
    killed = SaveAndDie(folder.path(), "second", calls);
    const uint64_t step = VerifiedStep(folder.path());
    ASSERT_LE(step, 1u) << "killed at call " << calls;
    EXPECT_TRUE(killed || step == 1);
    ++(step == 0 ? kills_before : kills_after);
    // Whatever is left, the next run saves, and only its files stay.
    ToyStretch next = Stretch(folder.path(), "third");
    next.load = folder.path();
    next.end = 2;
    ASSERT_EQ(TrainToy(next), "") << "killed at call " << calls;
    EXPECT_EQ(VerifiedStep(folder.path()), 2u);
    EXPECT_EQ(folder.Names().size(), kRanks + 1u)
        << ::testing::PrintToString(folder.Names());
  }
  EXPECT_GT(kills_before, 10);
  EXPECT_GT(kills_after, 0);
}

}  // namespace
}  // namespace commsched::engine
