// Files of checkpoints that something else writes to, names or removes.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "test/engine/file_faults.h"
#include "test/engine/toy_checkpoint.h"
#include "test/engine/toy_training.h"

namespace commsched::engine {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The name of the folder in which AppendToOne() looks.
const char* g_folder = nullptr;
std::atomic<int> g_appended{0};

// Appends to the first file in the folder whose name ends in `ending`, once.
void AppendToOne(const std::string& ending) {
  for (const auto& entry : std::filesystem::directory_iterator(g_folder)) {
    const std::string path = entry.path().string();
    if (path.size() < ending.size() ||
        path.compare(path.size() - ending.size(), ending.size(), ending) != 0 ||
        g_appended.exchange(1) != 0) {
      continue;
    }
    const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    syscall(SYS_write, file, "line\n", 5);
    close(file);
    return;
  }
}

int AppendToUnfinished(const char* call) {
  if (std::string(call) == "fsync") AppendToOne(".tmp");
  return 0;
}

// Of the folder, after the file has its name, too.
int AppendToFinished(const char* call) {
  if (std::string(call) == "fsync") AppendToOne(".safetensors");
  return 0;
}

// Saves to an empty folder under `hook`, which must fail: the message.
std::string SaveUnder(FileHook hook) {
  const TemporaryFolder folder;
  g_folder = folder.path().c_str();
  g_appended = 0;
  SetFileHook(hook);
  const std::string message = SaveToy(folder.path(), ToyRunOf(1, 2));
  SetFileHook(nullptr);
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/index.json"));
  return message;
}

TEST(DisturbedSaveTest, AFileThatGrowsWhileItIsWrittenIsNotPublished) {
  EXPECT_THAT(SaveUnder(AppendToUnfinished),
              AllOf(HasSubstr("step-00000003-run-rank-00000"),
                    HasSubstr("were written: something else writes to it")));
}

TEST(DisturbedSaveTest, AFileThatHasGrownSinceKeepsTheIndexFromBeingMade) {
  EXPECT_THAT(SaveUnder(AppendToFinished),
              AllOf(HasSubstr("step-00000003-run-rank-00000"),
                    HasSubstr("the tensors end at byte")));
}

int PrintToStandardOutput(const char* call) {
  if (std::string(call) == "fsync") syscall(SYS_write, 1, "line\n", 5);
  return 0;
}

TEST(StandardOutputTest, WhatIsPrintedWhileItIsClosedLandsInNoFile) {
  const TemporaryFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    close(STDOUT_FILENO);
    SetFileHook(PrintToStandardOutput);
    const std::string message = SaveToy(folder.path(), ToyRunOf(2, 2));
    std::fputs(message.c_str(), stderr);
    _exit(message.empty() ? 0 : 1);
  }
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_EQ(state, 0);
  const TemporaryFolder expected;
  ASSERT_EQ(SaveToy(expected.path(), ToyRunOf(2, 2)), "");
  EXPECT_TRUE(SameBits(ContentOf(folder.path()), ContentOf(expected.path())));
}

class ExportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(SaveToy(folder_.path(), ToyRunOf(2, 2)), "");
    ASSERT_EQ(OpenToyCheckpoint(folder_.path(), &checkpoint_), "");
  }
  void TearDown() override { SetFileHook(nullptr); }

  commsched_status_t Export() {
    return commsched_engine_checkpoint_export(checkpoint_.get(), path_.c_str());
  }

  const TemporaryFolder folder_;
  const TemporaryFolder out_;
  const std::string path_ = out_.path() + "/m.safetensors";
  CheckpointHandle checkpoint_;
};

TEST_F(ExportTest, WhatIsThereUnderAnotherNameStays) {
  const std::string precious = folder_.path() + "/precious";
  WriteFile(precious, "precious");
  std::filesystem::create_symlink(precious, path_ + ".tmp");
  ASSERT_EQ(Export(), 0);
  EXPECT_EQ(ReadFile(precious), "precious");
  std::filesystem::remove(path_ + ".tmp");
  WriteFile(path_ + ".tmp", "mine");
  ASSERT_EQ(Export(), 0);
  EXPECT_EQ(ReadFile(path_ + ".tmp"), "mine");
  EXPECT_THAT(out_.Names(), ElementsAre("m.safetensors", "m.safetensors.tmp"));
}

TEST_F(ExportTest, AFailureLeavesTheFileOfThatNameAndNoOther) {
  WriteFile(path_, "mine");
  SetFileHook([](const char* call) {
    return std::string(call) == "write" ? ENOSPC : 0;
  });
  EXPECT_EQ(Export(), COMMSCHED_RESOURCE_EXHAUSTED);
  SetFileHook(nullptr);
  EXPECT_EQ(ReadFile(path_), "mine");
  EXPECT_THAT(out_.Names(), ElementsAre("m.safetensors"));
}

TEST_F(ExportTest, WhatIsOpenStaysReadableWhenItHasBeenReplaced) {
  const std::vector<float> before = ContentOf(folder_.path());
  ToyStretch stretch;
  stretch.run = ToyRunOf(2, 2);
  stretch.load = folder_.path();
  stretch.save = folder_.path();
  stretch.name = "second";
  stretch.end = 4;
  ASSERT_EQ(TrainToy(stretch), "");
  EXPECT_EQ(Export(), 0) << commsched_engine_last_error();
}

// Each step removes the files of the one before.
TEST(OpenTest, ACheckpointCanBeOpenedBesideARunThatSaves) {
  const TemporaryFolder folder;
  ASSERT_EQ(SaveToy(folder.path(), ToyRunOf(2, 2)), "");
  std::atomic<bool> done{false};
  std::string message;
  std::thread run([&] {
    ToyStretch stretch;
    stretch.run = ToyRunOf(2, 2);
    stretch.load = folder.path();
    stretch.save = folder.path();
    stretch.name = "second";
    stretch.end = 150;
    stretch.save_every = 1;
    message = TrainToy(stretch);
    done = true;
  });
  int opened = 0;
  int failed = 0;
  while (!done) {
    CheckpointHandle checkpoint;
    const std::string failure = OpenToyCheckpoint(folder.path(), &checkpoint);
    ++(failure.empty() ? opened : failed);
    if (!failure.empty()) ADD_FAILURE() << failure;
    if (failed > 3) break;
  }
  run.join();
  EXPECT_EQ(message, "");
  EXPECT_GT(opened, 0);
}

// While it lives, this process gets no more than `num` further descriptors.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t num) {
    const int next = dup(STDIN_FILENO);
    close(next);
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(next) + num;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_ = {};
};

TEST(OpenTest, ACheckpointOfMoreFilesThanThereAreDescriptorsIsReadByName) {
  const TemporaryFolder folder;
  ASSERT_EQ(SaveToy(folder.path(), ToyRunOf(8, 2)), "");
  const std::vector<float> before = ContentOf(folder.path());
  const FewDescriptors few(4);
  EXPECT_TRUE(SameBits(ContentOf(folder.path()), before));
}

TEST(OpenTest, CheckpointsTogetherKeepALimitedNumberOfFilesOpen) {
  const TemporaryFolder folder;
  ASSERT_EQ(SaveToy(folder.path(), ToyRunOf(8, 2)), "");
  const FewDescriptors few(300);
  std::vector<CheckpointHandle> checkpoints(40);
  for (CheckpointHandle& checkpoint : checkpoints) {
    ASSERT_EQ(OpenToyCheckpoint(folder.path(), &checkpoint), "");
  }
  const std::string path = folder.path() + "/m.safetensors";
  EXPECT_EQ(commsched_engine_checkpoint_export(checkpoints.back().get(),
                                               path.c_str()),
            COMMSCHED_OK);
}

}  // namespace
}  // namespace commsched::engine
