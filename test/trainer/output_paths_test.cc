#include "examples/trainer/output_paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace commsched::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class OutputPathsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/output_paths_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Message(const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    return std::string(status.message());
  }

  std::string folder_;
};

TEST_F(OutputPathsTest, AFolderIsMadeAndLeftEmpty) {
  const std::string path = folder_ + "/a/b";
  EXPECT_TRUE(CheckFolder("--save", path).ok());
  EXPECT_TRUE(CheckFolder("--save", path).ok());
  EXPECT_TRUE(std::filesystem::is_empty(path));
}

// In /proc nobody makes files, not even root.
TEST_F(OutputPathsTest, AFolderWithoutRoomForFilesIsNamed) {
  EXPECT_THAT(Message(CheckFolder("--save", "/proc")),
              AllOf(HasSubstr("--save"), HasSubstr("'/proc'")));
  EXPECT_THAT(Message(CheckFile("--export", "/proc/weights")),
              AllOf(HasSubstr("--export"), HasSubstr("'/proc'")));
  EXPECT_THAT(Message(CheckFile("--export", folder_ + "/absent/weights")),
              HasSubstr("/absent'"));
}

TEST_F(OutputPathsTest, AFileMayBeThereAndIsLeftAsItIs) {
  const std::string path = folder_ + "/weights";
  EXPECT_TRUE(CheckFile("--export", path).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
  std::ofstream(path) << "old";
  EXPECT_TRUE(CheckFile("--export", path).ok());
  EXPECT_EQ(std::filesystem::file_size(path), 3u);
}

TEST_F(OutputPathsTest, WhatIsNoFileIsNotReplaced) {
  EXPECT_THAT(Message(CheckFile("--export", folder_)), HasSubstr(folder_));
  EXPECT_THAT(Message(CheckFile("--export", "/dev/null")),
              HasSubstr("'/dev/null'"));
}

TEST(WholeFileTest, FileThatCannotBeWrittenIsNamed) {
  const absl::Status status = WriteWholeFile("/no/such/config.json", "{}");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/no/such/config.json"));
}

}  // namespace
}  // namespace commsched::trainer
