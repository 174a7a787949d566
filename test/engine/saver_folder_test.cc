// What a saver may replace and remove, and who may save to a folder.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/folder_lock.h"
#include "test/engine/toy_checkpoint.h"
#include "test/engine/toy_training.h"

namespace commsched::engine {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

bool Exists(const std::string& path) { return std::filesystem::exists(path); }

// Saves step 3 of run "run" to `folder`, and copies all of it to `copy`.
void SaveAndCopy(const TemporaryFolder& folder, const TemporaryFolder& copy) {
  ASSERT_EQ(SaveToy(folder.path(), ToyRunOf(2, 2)), "");
  std::filesystem::copy(folder.path(), copy.path());
}

// Goes on from `load`, or begins if that is empty, to step `end`.
ToyStretch NextStretch(const std::string& load, const std::string& save,
                       const std::string& name, uint32_t end) {
  ToyStretch stretch;
  stretch.run = ToyRunOf(2, 2);
  stretch.load = load;
  stretch.save = save;
  stretch.name = name;
  stretch.end = end;
  return stretch;
}

TEST(SaverFolderTest, TheCheckpointOfAnotherRunIsNotReplaced) {
  const TemporaryFolder folder;
  ASSERT_EQ(SaveToy(folder.path(), ToyRunOf(2, 2)), "");
  const std::vector<float> before = ContentOf(folder.path());
  const std::vector<std::string> names = folder.Names();
  EXPECT_THAT(TrainToy(NextStretch("", folder.path(), "other", 5)),
              AllOf(HasSubstr(folder.path()), HasSubstr("step 3 of run 'run'"),
                    HasSubstr("run 'other' has not gone on from"),
                    HasSubstr("overwrite")));
  EXPECT_EQ(folder.Names(), names);
  EXPECT_TRUE(SameBits(ContentOf(folder.path()), before));
}

TEST(SaverFolderTest, ALaterCheckpointOfTheRunThatWasLoadedIsNotReplaced) {
  const TemporaryFolder folder;
  const TemporaryFolder copy;
  SaveAndCopy(folder, copy);
  ASSERT_EQ(TrainToy(NextStretch(folder.path(), folder.path(), "a", 5)), "");
  EXPECT_THAT(TrainToy(NextStretch(copy.path(), folder.path(), "b", 4)),
              HasSubstr("step 5 of run 'run.a'"));
  EXPECT_EQ(TrainToy(NextStretch(copy.path(), copy.path(), "b", 4)), "");
}

TEST(SaverFolderTest, OverwriteReplacesTheCheckpointOfAnotherRun) {
  const TemporaryFolder folder;
  ASSERT_EQ(SaveToy(folder.path(), ToyRunOf(3, 2)), "");
  WriteFile(folder.path() + "/mine.txt", "x");
  ToyStretch stretch = NextStretch("", folder.path(), "other", 1);
  stretch.overwrite = true;
  ASSERT_EQ(TrainToy(stretch), "");
  EXPECT_EQ(folder.Names().size(), 4u);
  EXPECT_THAT(folder.Names(), Contains("mine.txt"));
}

TEST(SaverFolderTest, ACheckpointThatCannotBeReadIsNotReplaced) {
  const TemporaryFolder folder;
  WriteFile(folder.path() + "/index.json", "{");
  ToyStretch stretch = NextStretch("", folder.path(), "r", 1);
  EXPECT_THAT(TrainToy(stretch),
              AllOf(HasSubstr("that cannot be read"), HasSubstr("index.json")));
  EXPECT_EQ(ReadFile(folder.path() + "/index.json"), "{");
  stretch.overwrite = true;
  EXPECT_EQ(TrainToy(stretch), "");
}

// A run that was killed after it had loaded "run", and a stranger.
TEST(SaverFolderTest, WhatKilledRunsOfTheSameOriginLeftGoesAndNothingElse) {
  const TemporaryFolder folder;
  ASSERT_EQ(SaveToy(folder.path(), ToyRunOf(2, 2)), "");
  const std::string file = "-rank-00000-of-00002.safetensors";
  const std::string killed = "step-00000004-run.killed" + file;
  const std::string unfinished = killed + ".0123456789abcdef.tmp";
  const std::string stranger = "step-00000004-stranger" + file;
  for (const std::string& name : {killed, unfinished, stranger}) {
    WriteFile(folder.path() + "/" + name, "x");
  }
  ToyStretch stretch = NextStretch(folder.path(), folder.path(), "next", 4);
  ASSERT_EQ(TrainToy(stretch), "");
  EXPECT_EQ(folder.Names().size(), 4u);
  EXPECT_THAT(folder.Names(), Contains(stranger));
  stretch.name = "last";
  stretch.end = 5;
  stretch.overwrite = true;
  ASSERT_EQ(TrainToy(stretch), "");
  EXPECT_THAT(folder.Names(), Not(Contains(stranger)));
}

TEST(SaverFolderTest, ASecondRunIsRefusedWhileTheFirstLasts) {
  const TemporaryFolder folder;
  SmallEngine first({{"a", {2}}});
  SmallEngine second({{"a", {2}}});
  SaverHandle saver;
  SaverHandle other;
  ASSERT_EQ(first.CreateSaver(folder.path().c_str(), "first", &saver), "");
  EXPECT_THAT(second.CreateSaver(folder.path().c_str(), "second", &other),
              AllOf(HasSubstr("run first (process " + std::to_string(getpid())),
                    HasSubstr("saves to folder '" + folder.path())));
  // It has no file of the first's yet, and would give its own these names.
  EXPECT_THAT(second.CreateSaver(folder.path().c_str(), "first", &other),
              HasSubstr("a saver of this run saves"));
  saver.reset();
  EXPECT_EQ(second.CreateSaver(folder.path().c_str(), "second", &other), "");
  other.reset();
  EXPECT_FALSE(Exists(folder.path() + "/" + kLockName));
}

TEST(SaverFolderTest, WhatAKilledProcessHeldIsFree) {
  const TemporaryFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    SmallEngine engine({{"a", {2}}});
    SaverHandle saver;
    if (engine.CreateSaver(folder.path().c_str(), "killed", &saver).empty()) {
      raise(SIGKILL);
    }
    _exit(1);
  }
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  ASSERT_TRUE(WIFSIGNALED(state));
  EXPECT_TRUE(Exists(folder.path() + "/" + kLockName));
  SmallEngine engine({{"a", {2}}});
  SaverHandle saver;
  EXPECT_EQ(engine.CreateSaver(folder.path().c_str(), "next", &saver), "");
}

TEST(SaverFolderTest, ALockThatIsASymbolicLinkIsNotFollowed) {
  const TemporaryFolder folder;
  const TemporaryFolder elsewhere;
  const std::string precious = elsewhere.path() + "/precious";
  WriteFile(precious, "precious");
  std::filesystem::create_symlink(precious, folder.path() + "/" + kLockName);
  SmallEngine engine({{"a", {2}}});
  SaverHandle saver;
  EXPECT_THAT(engine.CreateSaver(folder.path().c_str(), "r", &saver),
              HasSubstr(kLockName));
  EXPECT_EQ(ReadFile(precious), "precious");
}

}  // namespace
}  // namespace commsched::engine
