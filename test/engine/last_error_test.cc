// The engine leaves its messages where those of the library below it are.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "commsched/engine.h"
#include "test/engine/toy_training.h"

namespace commsched::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::StrEq;

TEST(EngineLastErrorTest, FailuresOfEngineAndLibraryHaveOnePlace) {
  EXPECT_EQ(commsched_engine_drain(nullptr), COMMSCHED_INVALID_ARGUMENT);
  EXPECT_THAT(commsched_last_error(), StrEq("engine: engine is NULL"));
  EXPECT_EQ(commsched_engine_last_error(), commsched_last_error());
  EXPECT_EQ(commsched_graph_create(nullptr), COMMSCHED_INVALID_ARGUMENT);
  EXPECT_THAT(commsched_engine_last_error(), HasSubstr("'out_graph' is NULL"));
}

// One bucket has no room in half of its memory, which is tried first.
TEST(EngineLastErrorTest, APlanThatIsTriedAgainLeavesNoError) {
  ToyRun run;
  run.ranks = 1;
  run.options.zero_stage = 2;
  run.options.bucket_bytes = 0;
  EXPECT_EQ(OnRanks(run,
                    [&](ToyRank& toy, int32_t) {
                      commsched_set_last_error("as it was");
                      EXPECT_EQ(toy.Build(), "");
                      EXPECT_THAT(commsched_last_error(), StrEq("as it was"));
                      EXPECT_EQ(toy.Step(0), "");
                      EXPECT_THAT(commsched_last_error(), StrEq("as it was"));
                      return std::string();
                    }),
            "");
}

}  // namespace
}  // namespace commsched::engine
