#include "examples/trainer/progress_bar.h"

#include <fcntl.h>
#include <pty.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace commsched::trainer {
namespace {

TEST(ProgressBarTest, WritesNothingToAFile) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  ProgressBar bar(file, 10);
  bar.Update(5, "loss 2.0");
  bar.Clear();
  EXPECT_EQ(std::ftell(file), 0);
  std::fclose(file);
}

TEST(ProgressBarTest, IsDrawnForALauncherThatPassesItOn) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  ProgressBar quiet(file, 10, "");
  quiet.Update(5, "");
  EXPECT_EQ(std::ftell(file), 0);
  ProgressBar bar(file, 10, "80");
  bar.Update(5, "");
  EXPECT_GT(std::ftell(file), 30);
  std::fclose(file);
}

// What a bar draws on a terminal, as seen by the terminal.
class TerminalTest : public testing::Test {
 protected:
  void SetUp() override {
    int terminal = -1;
    if (openpty(&screen_, &terminal, nullptr, nullptr, nullptr) != 0) {
      GTEST_SKIP() << "no pseudo-terminals here";
    }
    fcntl(screen_, F_SETFL, O_NONBLOCK);
    terminal_ = fdopen(terminal, "w");
  }

  void TearDown() override {
    if (terminal_ != nullptr) std::fclose(terminal_);
    if (screen_ >= 0) close(screen_);
  }

  std::string Drawn() {
    char buffer[4096];
    const ssize_t size = read(screen_, buffer, sizeof(buffer));
    return size > 0 ? std::string(buffer, size) : "";
  }

  int screen_ = -1;
  std::FILE* terminal_ = nullptr;
};

TEST_F(TerminalTest, ShowsHowFarAndTheNote) {
  ProgressBar bar(terminal_, 10);
  bar.Update(5, "loss 2.0");
  EXPECT_EQ(Drawn(), "\r[###############...............] 5/10  loss 2.0\033[K");
}

TEST_F(TerminalTest, IsNotRedrawnWithoutProgress) {
  ProgressBar bar(terminal_, 1000000);
  bar.Update(5000, "");
  EXPECT_NE(Drawn(), "");
  bar.Update(5001, "");
  EXPECT_EQ(Drawn(), "");
}

TEST_F(TerminalTest, ClearWipesWhatWasDrawn) {
  ProgressBar bar(terminal_, 10);
  bar.Clear();
  EXPECT_EQ(Drawn(), "");
  bar.Update(10, "");
  Drawn();
  bar.Clear();
  EXPECT_EQ(Drawn(), "\r\033[K");
}

}  // namespace
}  // namespace commsched::trainer
