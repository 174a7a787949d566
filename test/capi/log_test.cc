#include "base/log.h"

#include <cstdint>
#include <string>
#include <vector>

#include "commsched/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace commsched {
namespace {

using ::testing::ElementsAre;

class LogCallbackTest : public ::testing::Test {
 protected:
  ~LogCallbackTest() override {
    commsched_set_log_callback(nullptr, nullptr, COMMSCHED_LOG_WARNING);
  }

  static void Append(void* user, int32_t level, const char* message) {
    static_cast<std::vector<std::string>*>(user)->push_back(
        std::to_string(level) + " " + message);
  }

  std::vector<std::string> lines_;
};

TEST_F(LogCallbackTest, LinesOfTheLevelAndAboveArrive) {
  commsched_set_log_callback(&Append, &lines_, COMMSCHED_LOG_INFO);
  Log(LogLevel::kDebug, "not severe enough");
  Log(LogLevel::kInfo, "plan of ", 3, " launches");
  Log(LogLevel::kError, "rank 2 is gone");
  EXPECT_THAT(lines_, ElementsAre("1 plan of 3 launches", "3 rank 2 is gone"));
}

TEST_F(LogCallbackTest, LastCallbackSetIsTheOneCalled) {
  std::vector<std::string> others;
  commsched_set_log_callback(&Append, &others, COMMSCHED_LOG_DEBUG);
  commsched_set_log_callback(&Append, &lines_, COMMSCHED_LOG_DEBUG);
  commsched_set_log_callback(&Append, &others, COMMSCHED_LOG_DEBUG);
  commsched_set_log_callback(&Append, &lines_, COMMSCHED_LOG_DEBUG);
  Log(LogLevel::kWarning, "here");
  EXPECT_THAT(lines_, ElementsAre("2 here"));
  EXPECT_THAT(others, ElementsAre());
}

TEST_F(LogCallbackTest, LevelsOutsideTheEnumAreClamped) {
  commsched_set_log_callback(&Append, &lines_, 1000);
  Log(LogLevel::kError, "silenced");
  commsched_set_log_callback(&Append, &lines_, -1000);
  Log(LogLevel::kDebug, "everything");
  EXPECT_THAT(lines_, ElementsAre("0 everything"));
}

}  // namespace
}  // namespace commsched
