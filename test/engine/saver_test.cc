// Saving, through the C ABI.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "test/engine/file_faults.h"
#include "test/engine/messages.h"
#include "test/engine/toy_checkpoint.h"
#include "test/engine/toy_training.h"

namespace commsched::engine {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Weights = std::vector<std::vector<float>>;

TEST(SaverTest, WhatIsWrongIsNamed) {
  const TemporaryFolder folder;
  SmallEngine engine({{"a", {2}}});
  SaverHandle saver;
  const char* path = folder.path().c_str();
  commsched_engine_saver_t* none = nullptr;
  const auto desc = commsched_engine_saver_desc_init();
  EXPECT_EQ(commsched_engine_saver_create(nullptr, &desc, &none),
            COMMSCHED_INVALID_ARGUMENT);
  EXPECT_THAT(engine.CreateSaver(nullptr, "r", &saver),
              HasSubstr("folder is NULL"));
  EXPECT_THAT(engine.CreateSaver(path, nullptr, &saver),
              HasSubstr("run is NULL"));
  for (const std::string& run : {std::string(), std::string("a-b"),
                                 std::string("../x"), std::string(65, 'a')}) {
    EXPECT_THAT(engine.CreateSaver(path, run.c_str(), &saver),
                HasSubstr("1 to 64 letters, digits or '_'"));
  }
  const std::string absent = folder.path() + "/absent";
  EXPECT_THAT(engine.CreateSaver(absent.c_str(), "r", &saver),
              AllOf(HasSubstr(absent), HasSubstr("No such file")));
  WriteFile(absent, "x");
  EXPECT_THAT(engine.CreateSaver(absent.c_str(), "r", &saver),
              HasSubstr("not a folder"));
  ASSERT_EQ(engine.CreateSaver(path, "r", &saver), "");
  const std::string long_text(2 << 20, 'x');
  const std::vector<std::vector<commsched_engine_metadata_t>> bad = {
      {{nullptr, "x"}},         {{"x", nullptr}}, {{"", "x"}},
      {{"x", "1"}, {"x", "2"}}, {{"x", "\xff"}},  {{"x", long_text.c_str()}}};
  for (const auto& metadata : bad) {
    EXPECT_EQ(
        commsched_engine_saver_save(saver.get(), metadata.data(),
                                    static_cast<uint32_t>(metadata.size())),
        COMMSCHED_INVALID_ARGUMENT);
  }
  EXPECT_THAT(folder.Names(), ElementsAre("absent"));
  EXPECT_EQ(commsched_engine_saver_save(nullptr, nullptr, 0),
            COMMSCHED_INVALID_ARGUMENT);
  EXPECT_EQ(commsched_engine_saver_wait(nullptr), COMMSCHED_INVALID_ARGUMENT);
}

TEST(SaverTest, AStepIsSavedOnceAndBetweenSteps) {
  const TemporaryFolder folder;
  SmallEngine engine({{"a", {2}}});
  SaverHandle saver;
  ASSERT_EQ(engine.CreateSaver(folder.path().c_str(), "r", &saver), "");
  ASSERT_EQ(commsched_engine_saver_save(saver.get(), nullptr, 0), 0);
  EXPECT_EQ(commsched_engine_saver_save(saver.get(), nullptr, 0),
            COMMSCHED_FAILED_PRECONDITION);
  EXPECT_THAT(LastError(), HasSubstr("step 0 has been saved"));
  ASSERT_EQ(commsched_engine_step_begin(engine.get(), nullptr), 0);
  EXPECT_EQ(commsched_engine_saver_save(saver.get(), nullptr, 0),
            COMMSCHED_FAILED_PRECONDITION);
  EXPECT_THAT(LastError(), HasSubstr("expected pass_begin"));
}

TEST(SaverTest, WhatAFailureLeavesIsNotSaved) {
  const TemporaryFolder folder;
  SmallEngine engine({{"a", {2}}});
  SaverHandle saver;
  ASSERT_EQ(engine.CreateSaver(folder.path().c_str(), "r", &saver), "");
  commsched_engine_abort(engine.get(), "a reason");
  EXPECT_EQ(commsched_engine_saver_save(saver.get(), nullptr, 0),
            COMMSCHED_ABORTED);
  EXPECT_THAT(LastError(), HasSubstr("a reason"));
  EXPECT_EQ(commsched_engine_saver_wait(saver.get()), 0);
  EXPECT_TRUE(folder.Names().empty());
}

TEST(SaverTest, ARankWithNothingButPaddingSavesToo) {
  const TemporaryFolder folder;
  ToyStretch stretch;
  stretch.run = ToyRunOf(8, 3, 1 << 20);
  stretch.end = 2;
  Weights whole;
  ASSERT_EQ(TrainToy(stretch, &whole), "");
  stretch.end = 1;
  stretch.save = folder.path();
  ASSERT_EQ(TrainToy(stretch), "");
  stretch.save.clear();
  stretch.load = folder.path();
  stretch.end = 2;
  Weights resumed;
  ASSERT_EQ(TrainToy(stretch, &resumed), "");
  EXPECT_TRUE(SameBits(resumed[7], whole[7]));
}

TEST(SaverTest, ANameOfARunIsUsedOnce) {
  const TemporaryFolder folder;
  SmallEngine engine({{"a", {2}}});
  SaverHandle saver;
  ASSERT_EQ(engine.CreateSaver(folder.path().c_str(), "r", &saver), "");
  ASSERT_EQ(commsched_engine_saver_save(saver.get(), nullptr, 0), 0);
  saver.reset();
  EXPECT_THAT(engine.CreateSaver(folder.path().c_str(), "r", &saver),
              HasSubstr("run 'r' has saved"));
  EXPECT_EQ(engine.CreateSaver(folder.path().c_str(), "r2", &saver), "");
}

// What stands in for a disk that takes its time.
std::latch* g_disk_may_go = nullptr;
std::atomic<int> g_waits{0};
int WaitAtFsync(const char* call) {
  if (std::string(call) != "fsync") return 0;
  ++g_waits;
  g_disk_may_go->wait();
  return 0;
}

TEST(SaverTest, StepsGoOnWhileACheckpointIsWritten) {
  const TemporaryFolder folder;
  std::latch disk_may_go(1);
  g_disk_may_go = &disk_may_go;
  SetFileHook(WaitAtFsync);
  const std::string message =
      OnRanks(ToyRunOf(1, 2), [&](ToyRank& toy, int32_t) {
        if (std::string m = toy.Build(); !m.empty()) return m;
        SaverHandle saver;
        if (std::string m = CreateToySaver(toy, folder.path(), "r", &saver);
            !m.empty()) {
          return m;
        }
        if (std::string m = toy.Step(0); !m.empty()) return m;
        EXPECT_EQ(commsched_engine_saver_save(saver.get(), nullptr, 0), 0);
        // Nothing is on the disk, and steps are taken.
        for (uint32_t step = 1; step < 4; ++step) {
          if (std::string m = toy.Step(step); !m.empty()) return m;
        }
        EXPECT_FALSE(std::filesystem::exists(folder.path() + "/index.json"));
        disk_may_go.count_down();
        EXPECT_EQ(commsched_engine_saver_wait(saver.get()), 0);
        return std::string();
      });
  SetFileHook(nullptr);
  ASSERT_EQ(message, "");
  EXPECT_GT(g_waits, 0);
  // What was saved is what was there at the time.
  const TemporaryFolder expected;
  ToyStretch stretch;
  stretch.run = ToyRunOf(1, 2);
  stretch.end = 1;
  stretch.save = expected.path();
  ASSERT_EQ(TrainToy(stretch), "");
  EXPECT_TRUE(SameBits(ContentOf(folder.path()), ContentOf(expected.path())));
}

// A disk so slow that a second save could overtake the first.
std::atomic<bool> g_second_save_returned{false};
int LetTheSecondSaveReturn(const char*) {
  for (int i = 0; i < 10'000 && !g_second_save_returned; ++i) {
    std::this_thread::yield();
  }
  return 0;
}

TEST(SaverTest, ASaveWaitsForTheOneBeforeIt) {
  const TemporaryFolder folder;
  const std::string message =
      OnRanks(ToyRunOf(1, 2), [&](ToyRank& toy, int32_t) {
        if (std::string m = toy.Build(); !m.empty()) return m;
        SaverHandle saver;
        if (std::string m = CreateToySaver(toy, folder.path(), "r", &saver);
            !m.empty()) {
          return m;
        }
        SetFileHook(LetTheSecondSaveReturn);
        EXPECT_EQ(commsched_engine_saver_save(saver.get(), nullptr, 0), 0);
        if (std::string m = toy.Step(0); !m.empty()) return m;
        EXPECT_EQ(commsched_engine_saver_save(saver.get(), nullptr, 0), 0);
        EXPECT_TRUE(std::filesystem::exists(folder.path() + "/index.json"));
        g_second_save_returned = true;
        EXPECT_EQ(commsched_engine_saver_wait(saver.get()), 0);
        return std::string();
      });
  SetFileHook(nullptr);
  EXPECT_EQ(message, "");
}

int FullDisk(const char* call) {
  return std::string(call) == "write" ? ENOSPC : 0;
}

TEST(SaverTest, AFullDiskIsSaidAndLeavesTheCheckpointBefore) {
  const TemporaryFolder folder;
  ASSERT_EQ(SaveToy(folder.path(), ToyRunOf(1, 2)), "");
  const std::vector<float> before = ContentOf(folder.path());
  ToyStretch stretch;
  stretch.run = ToyRunOf(1, 2);
  stretch.load = folder.path();
  stretch.save = folder.path();
  stretch.name = "second";
  stretch.end = 5;
  SetFileHook(FullDisk);
  const std::string message = TrainToy(stretch);
  SetFileHook(nullptr);
  EXPECT_THAT(message, AllOf(HasSubstr("step-00000005-run.second-rank-00000"),
                             HasSubstr("No space left on device")));
  EXPECT_EQ(folder.Names().size(), 2u);
  EXPECT_TRUE(SameBits(ContentOf(folder.path()), before));
}

}  // namespace
}  // namespace commsched::engine
