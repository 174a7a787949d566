#include "engine/model/passes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace commsched::engine {
namespace {

// "a b B A": forwards in small letters, backwards in capitals; what runs again
// in brackets, later micro-batches behind a bar.
std::string TextOf(const std::vector<Pass>& passes) {
  std::string text;
  uint32_t micro_batch = 0;
  for (const Pass& pass : passes) {
    if (pass.micro_batch != micro_batch) text += "|";
    micro_batch = pass.micro_batch;
    const std::string letter(
        1, static_cast<char>((pass.backward ? 'A' : 'a') + pass.module));
    text += pass.again ? "(" + letter + ")" : letter;
  }
  return text;
}

TEST(PassesTest, BackwardsRunInReverse) {
  EXPECT_EQ(TextOf(PassOrder({0, 1, 2}, {0, 0, 0}, 1)), "abcCBA");
  EXPECT_EQ(TextOf(PassOrder({0, 1}, {0, 0}, 2)), "abBA|abBA");
  EXPECT_EQ(TextOf(PassOrder({1, 0, 1}, {0, 0}, 1)), "babBAB");
}

TEST(PassesTest, ASegmentRunsAgainBeforeItsBackwards) {
  EXPECT_EQ(TextOf(PassOrder({0, 1, 2}, {0, 1, 1}, 1)), "abc(b)(c)CBA");
  EXPECT_EQ(TextOf(PassOrder({0, 1, 2}, {1, 2, 2}, 1)), "abc(b)(c)CB(a)A");
}

// Segments are of neighbours in the order in which modules run.
TEST(PassesTest, ASegmentThatIsTornApartRunsAgainInParts) {
  EXPECT_EQ(TextOf(PassOrder({0, 2, 1}, {1, 1, 0}, 1)), "acb(b)BC(a)A");
}

TEST(PassesTest, EachPassKnowsItsForward) {
  const std::vector<Pass> passes = PassOrder({0, 1, 0}, {0, 1}, 2);
  for (size_t i = 0; i < passes.size(); ++i) {
    const Pass& forward = passes[passes[i].forward];
    EXPECT_LE(passes[i].forward, i);
    EXPECT_FALSE(forward.backward || forward.again);
    EXPECT_EQ(forward.module, passes[i].module);
    EXPECT_EQ(forward.use, passes[i].use);
    EXPECT_EQ(forward.micro_batch, passes[i].micro_batch);
  }
}

TEST(PassesTest, NamesAndCallsSayWhichUseItIs) {
  EXPECT_EQ(PassName("block", 0), "block");
  EXPECT_EQ(PassName("block", 1), "block#2");
  EXPECT_EQ(CallText("begin", {.module = 3, .micro_batch = 1}, "block"),
            "forward_begin of module 3 'block', micro-batch 1");
  EXPECT_EQ(CallText("end", {.module = 3, .use = 1, .backward = true}, "block"),
            "backward_end of module 3 'block', micro-batch 0, pass 2");
  EXPECT_EQ(CallText("begin", {.module = 9, .again = true}, ""),
            "forward_begin of module 9, micro-batch 0, recomputed");
}

}  // namespace
}  // namespace commsched::engine
