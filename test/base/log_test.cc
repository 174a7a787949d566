#include "base/log.h"

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace commsched {
namespace {

using ::testing::ElementsAre;

// Collects lines while it lives, and puts stderr and the level back.
class LogTest : public ::testing::Test {
 protected:
  LogTest() : level_before_(MinLogLevel()) { SetLogSink({&Collect, this}); }
  ~LogTest() override {
    SetLogSink({nullptr, nullptr});
    SetMinLogLevel(level_before_);
  }

  static void Collect(void* self, LogLevel level, absl::string_view line) {
    static_cast<LogTest*>(self)->lines_.push_back(
        std::string(LogLevelName(level)) + ": " + std::string(line));
  }

  const LogLevel level_before_;
  std::vector<std::string> lines_;
};

TEST_F(LogTest, LinesBelowTheLevelAreDropped) {
  SetMinLogLevel(LogLevel::kWarning);
  Log(LogLevel::kInfo, "quiet");
  Log(LogLevel::kWarning, "rank ", 3, " is late");
  Log(LogLevel::kError, "rank ", 3, " is gone");
  EXPECT_THAT(lines_,
              ElementsAre("warning: rank 3 is late", "error: rank 3 is gone"));
}

TEST_F(LogTest, OffDropsEverything) {
  SetMinLogLevel(LogLevel::kOff);
  Log(LogLevel::kError, "nobody hears");
  EXPECT_TRUE(lines_.empty());
}

TEST_F(LogTest, NullSinkBringsStderrBack) {
  SetMinLogLevel(LogLevel::kInfo);
  SetLogSink({nullptr, nullptr});
  testing::internal::CaptureStderr();
  Log(LogLevel::kInfo, "to the terminal");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "commsched info: to the terminal\n");
  EXPECT_TRUE(lines_.empty());
}

// The sink's vector has no lock: the thread sanitizer fails this test if two
// calls ever run at once.
TEST_F(LogTest, SinkIsCalledOneLineAtATime) {
  SetMinLogLevel(LogLevel::kInfo);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) Log(LogLevel::kInfo, i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lines_.size(), 400u);
}

}  // namespace
}  // namespace commsched
