#include "engine/model/passes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace commsched::engine {
namespace {

// "a b B A": forwards in small letters, backwards in capitals; what runs again
// in brackets, later micro-batches behind a bar.
std::string LettersOf(const std::vector<Pass>& passes) {
  std::string text;
  uint32_t micro_batch = 0;
  for (const Pass& pass : passes) {
    if (pass.micro_batch != micro_batch) text += "|";
    micro_batch = pass.micro_batch;
    const std::string letter(
        1,
        static_cast<char>((IsBackward(pass.kind) ? 'A' : 'a') + pass.module));
    text += pass.kind == PassKind::kRecompute ? "(" + letter + ")" : letter;
  }
  return text;
}

TEST(PassesTest, BackwardsRunInReverse) {
  EXPECT_EQ(LettersOf(PassOrder({0, 1, 2}, {0, 0, 0}, 1)), "abcCBA");
  EXPECT_EQ(LettersOf(PassOrder({0, 1}, {0, 0}, 2)), "abBA|abBA");
  EXPECT_EQ(LettersOf(PassOrder({1, 0, 1}, {0, 0}, 1)), "babBAB");
}

TEST(PassesTest, ASegmentRunsAgainBeforeItsBackwards) {
  EXPECT_EQ(LettersOf(PassOrder({0, 1, 2}, {0, 1, 1}, 1)), "abc(b)(c)CBA");
  EXPECT_EQ(LettersOf(PassOrder({0, 1, 2}, {1, 2, 2}, 1)), "abc(b)(c)CB(a)A");
}

// Segments are of neighbours in the order in which modules run.
TEST(PassesTest, ASegmentThatIsTornApartRunsAgainInParts) {
  EXPECT_EQ(LettersOf(PassOrder({0, 2, 1}, {1, 1, 0}, 1)), "acb(b)BC(a)A");
}

TEST(PassesTest, EachPassKnowsItsForward) {
  const std::vector<Pass> passes = PassOrder({0, 1, 0}, {0, 1}, 2);
  for (size_t i = 0; i < passes.size(); ++i) {
    const Pass& forward = passes[passes[i].forward];
    EXPECT_LE(passes[i].forward, i);
    EXPECT_EQ(forward.kind, PassKind::kForward);
    EXPECT_EQ(forward.module, passes[i].module);
    EXPECT_EQ(forward.use, passes[i].use);
    EXPECT_EQ(forward.micro_batch, passes[i].micro_batch);
  }
}

TEST(PassesTest, NamesAndCallsSayWhichUseItIs) {
  EXPECT_EQ(PassName("block", 0), "block");
  EXPECT_EQ(PassName("block", 1), "block#2");
  EXPECT_EQ(CallText("begin", {.module = 3, .micro_batch = 1}, "block"),
            "pass_begin of FORWARD of module 3 'block', micro-batch 1");
  EXPECT_EQ(
      CallText("end", {.kind = PassKind::kBackward, .module = 3, .use = 1},
               "block"),
      "pass_end of BACKWARD of module 3 'block', micro-batch 0, pass 2");
  EXPECT_EQ(CallText("begin", {.kind = PassKind::kRecompute, .module = 9}, ""),
            "pass_begin of RECOMPUTE of module 9, micro-batch 0");
}

// ---- Lists ------------------------------------------------------------------

// A list of modules "a" and "b" as text: kinds F, R, B, I, W and N, each with
// the module's letter and the micro-batch.
std::vector<PassCall> CallsOf(const std::string& text) {
  const std::string kinds = "FRBIWN";
  std::vector<PassCall> calls;
  for (size_t i = 0; i + 2 < text.size(); i += 4) {
    calls.push_back({static_cast<PassKind>(kinds.find(text[i])),
                     static_cast<uint32_t>(text[i + 1] - 'a'),
                     static_cast<uint32_t>(text[i + 2] - '0')});
  }
  return calls;
}

const std::vector<std::string>& TwoNames() {
  static const auto& names = *new std::vector<std::string>{"a", "b"};
  return names;
}

// Why a list is refused; "" if it is not.
std::string RefusalOf(const std::string& text, uint32_t micro_batches = 1) {
  std::vector<Pass> passes;
  Status status = LinkPasses(CallsOf(text), TwoNames(), &passes);
  if (status.ok()) status = CheckPasses(passes, TwoNames(), micro_batches);
  return status.message();
}

TEST(PassListTest, SchedulesOfPipelinesAreLists) {
  EXPECT_EQ(RefusalOf("Fa0 Fb0 Bb0 Ba0"), "");
  EXPECT_EQ(RefusalOf("Fa0 Fb0 Fa1 Fb1 Bb0 Ba0 Bb1 Ba1", 2), "");
  EXPECT_EQ(RefusalOf("Fa0 Fb0 Fa1 Fb1 Bb1 Bb0 Ba1 Ba0", 2), "");
  EXPECT_EQ(RefusalOf("Fa0 Fb0 Ib0 Fa1 Ia0 Fb1 Ib1 Wb0 Ia1 Wa0 Wa1 Wb1", 2),
            "");
  EXPECT_EQ(RefusalOf("Na0 Nb0 Na1 Nb1 Fa0 Fb0 Bb0 Ba0 Fa1 Fb1 Bb1 Ba1", 2),
            "");
  EXPECT_EQ(RefusalOf("Fa0 Fb0 Rb0 Bb0 Ra0 Ia0 Wa0"), "");
  EXPECT_EQ(RefusalOf("Na0 Fb0 Bb0"), "") << "a needs no backward.";
}

TEST(PassListTest, TheDefaultOrderIsAListThatLinksToItself) {
  for (const std::vector<uint32_t>& segments :
       {std::vector<uint32_t>{0, 0}, {1, 1}, {1, 2}}) {
    const std::vector<Pass> order = PassOrder({0, 1, 0}, segments, 2);
    std::vector<PassCall> calls;
    for (const Pass& pass : order) calls.push_back(pass.call());
    std::vector<Pass> linked;
    ASSERT_TRUE(LinkPasses(calls, TwoNames(), &linked).ok());
    EXPECT_EQ(linked, order);
    EXPECT_TRUE(CheckPasses(linked, TwoNames(), 2).ok());
    EXPECT_EQ(OneForward(linked, 2).size(), 3u);
  }
}

TEST(PassListTest, APassWithoutItsOtherHalfIsNamed) {
  EXPECT_EQ(RefusalOf("Fa0 Fb0 Bb0 Bb0"),
            "engine: pass 3 is BACKWARD of module 1 'b', micro-batch 0, which "
            "no FORWARD comes before that has no backward yet");
  EXPECT_EQ(RefusalOf("Fa0 Fb0 Bb0"),
            "engine: pass 0 is FORWARD of module 0 'a', micro-batch 0, which "
            "no BACKWARD comes after; a forward without one is NO_GRAD");
  EXPECT_EQ(RefusalOf("Fa0 Fb0 Wb0"),
            "engine: pass 2 is BACKWARD_WEIGHT of module 1 'b', micro-batch 0, "
            "which no BACKWARD_INPUT comes before that has no BACKWARD_WEIGHT "
            "yet");
  EXPECT_EQ(RefusalOf("Fa0 Fb0 Ib0 Ba0"),
            "engine: pass 2 is BACKWARD_INPUT of module 1 'b', micro-batch 0, "
            "which no BACKWARD_WEIGHT comes after");
  EXPECT_EQ(RefusalOf("Na0 Ba0 Fb0 Bb0"),
            "engine: pass 1 is BACKWARD of module 0 'a', micro-batch 0, which "
            "no FORWARD comes before that has no backward yet");
  EXPECT_EQ(RefusalOf("Fa0 Ba0 Ra0"),
            "engine: pass 2 is RECOMPUTE of module 0 'a', micro-batch 0, which "
            "no FORWARD comes before that has no backward yet");
  EXPECT_EQ(RefusalOf("Fa0 Ra0 Ra0"),
            "engine: pass 2 is RECOMPUTE of module 0 'a', micro-batch 0, which "
            "has come before");
  EXPECT_EQ(RefusalOf("Fa0 Fc0"),
            "engine: pass 1 is FORWARD of module 2, micro-batch 0; there are 2 "
            "modules");
}

TEST(PassListTest, AListThatIsNoStepIsRefused) {
  EXPECT_EQ(RefusalOf("Fa0 Fb0 Bb0 Ba0 Fa1 Ba1", 2),
            "engine: the passes have no forward of module 1 'b' in micro-batch "
            "1; micro_batches is 2");
  EXPECT_EQ(RefusalOf("Fa0 Fb0 Bb0 Ba0 Fa1 Ba1", 1),
            "engine: pass 4 is FORWARD of module 0 'a', micro-batch 1; "
            "micro_batches is 1");
  EXPECT_EQ(RefusalOf("Fa0 Fb0 Bb0 Ba0 Fa1 Nb1 Ba1", 2),
            "engine: the passes have no backward of module 1 'b' in "
            "micro-batch 1; micro_batches is 2");
}

TEST(PassListTest, EachPassOfAListKnowsItsForward) {
  std::vector<Pass> passes;
  ASSERT_TRUE(LinkPasses(CallsOf("Fa0 Fa0 Fb0 Ib0 Ra0 Ia0 Ia0 Wa0 Wb0 Wa0 Na0"),
                         TwoNames(), &passes)
                  .ok());
  const uint32_t forwards[] = {0, 1, 2, 2, 1, 1, 0, 1, 2, 0, 10};
  const uint32_t uses[] = {0, 1, 0, 0, 1, 1, 0, 1, 0, 0, 0};
  for (size_t i = 0; i < passes.size(); ++i) {
    EXPECT_EQ(passes[i].forward, forwards[i]) << i;
    EXPECT_EQ(passes[i].use, uses[i]) << i;
  }
}

// Those of the first micro-batch, wherever they stand.
TEST(PassListTest, AnEvaluationRunsOneForwardOfEachModule) {
  const auto one = [](const std::string& text) {
    std::vector<Pass> passes;
    EXPECT_TRUE(LinkPasses(CallsOf(text), TwoNames(), &passes).ok());
    return OneForward(passes, 2);
  };
  EXPECT_EQ(one("Na0 Nb0 Na1 Nb1 Fa0 Fb0 Bb0 Ba0 Fa1 Fb1 Bb1 Ba1"),
            (std::vector<uint32_t>{4, 5}));
  EXPECT_EQ(one("Fa1 Fa0 Fb1 Fb0 Bb0 Bb1 Ba0 Ba1"),
            (std::vector<uint32_t>{1, 3}));
  EXPECT_EQ(one("Na0 Fb0 Bb0"), (std::vector<uint32_t>{0, 1}));
}

}  // namespace
}  // namespace commsched::engine
