// What watches an engine's steps: observers and the flight record.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "commsched/engine.h"
#include "test/engine/toy_training.h"

namespace commsched::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string PathOf(const std::string& name) {
  return ::testing::TempDir() + "/commsched_" + name + "." +
         std::to_string(getpid());
}

// On the only rank of a world: the message of the first failure, or "".
std::string RunSteps(const ToyRun& run, uint32_t steps) {
  return OnRanks(run, [&](ToyRank& toy, int32_t) {
    std::string message = toy.Build();
    for (uint32_t step = 0; message.empty() && step < steps; ++step) {
      message = toy.Step(step);
    }
    std::vector<float> weights;  // By an evaluation.
    return message.empty() ? toy.Weights(&weights) : message;
  });
}

// What the library logs while this lives.
class LogLines {
 public:
  LogLines() { commsched_set_log_callback(Take, this, COMMSCHED_LOG_INFO); }
  ~LogLines() {
    commsched_set_log_callback(nullptr, nullptr, COMMSCHED_LOG_WARNING);
  }
  const std::string& text() const { return text_; }

 private:
  static void Take(void* user, int32_t, const char* message) {
    static_cast<LogLines*>(user)->text_ += std::string(message) + "\n";
  }
  std::string text_;
};

TEST(WatchedEngineTest, AnObserverSeesTheStepsAndNoEvaluation) {
  ASSERT_EQ(commsched_plugin_load(COMMSCHED_SKELETON_OBSERVER,
                                  COMMSCHED_PLUGIN_REQUIRED),
            COMMSCHED_OK)
      << commsched_last_error();
  ToyRun run;
  run.ranks = 1;
  run.options.zero_stage = 3;
  LogLines log;
  {
    // The engine has a copy.
    std::string name = "skeleton";
    run.engine.observers = name.c_str();
    EXPECT_EQ(OnRanks(run,
                      [&](ToyRank& toy, int32_t) {
                        std::string message = toy.Build();
                        name = "overwritten";
                        if (message.empty()) message = toy.Step(0);
                        if (message.empty()) message = toy.Step(1);
                        std::vector<float> weights;
                        return message.empty() ? toy.Weights(&weights)
                                               : message;
                      }),
              "");
  }
  const size_t first = log.text().find("rank 0: 2 steps, ");
  ASSERT_NE(first, std::string::npos) << log.text();
  EXPECT_EQ(log.text().find("rank 0: ", first + 1), std::string::npos)
      << log.text();
}

TEST(WatchedEngineTest, AnUnknownObserverFailsTheBuildByName) {
  ToyRun run;
  run.ranks = 1;
  run.engine.observers = "no_such_observer";
  EXPECT_THAT(RunSteps(run, 1), HasSubstr("'no_such_observer'"));
}

TEST(WatchedEngineTest, TheFlightRecordIsThatOfTheSteps) {
  const std::string path = PathOf("flight");
  ToyRun run;
  run.ranks = 1;
  run.options.zero_stage = 3;
  run.engine.flight_path = path.c_str();
  EXPECT_EQ(RunSteps(run, 2), "");
  char* text = nullptr;
  ASSERT_EQ(commsched_flight_record_read(path.c_str(), &text), COMMSCHED_OK)
      << commsched_last_error();
  EXPECT_THAT(text, AllOf(HasSubstr("rank 0"), HasSubstr("reduce_scatter")));
  commsched_string_free(text);
  unlink(path.c_str());
}

TEST(WatchedEngineTest, AFlightRecordThatCannotBeMadeFailsTheBuild) {
  ToyRun run;
  run.ranks = 1;
  run.engine.flight_path = "/no/such/folder/flight";
  EXPECT_THAT(RunSteps(run, 1), HasSubstr("/no/such/folder/flight"));
}

}  // namespace
}  // namespace commsched::engine
