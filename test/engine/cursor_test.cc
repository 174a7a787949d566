#include "engine/run/cursor.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/model/passes.h"

namespace commsched::engine {
namespace {

using Call = Cursor::Call;

Call Forward(uint32_t module, uint32_t micro_batch = 0) {
  return {false, module, micro_batch};
}
Call Backward(uint32_t module, uint32_t micro_batch = 0) {
  return {true, module, micro_batch};
}

// A cursor over the passes of modules "a", "b", "c", ...
struct Walk {
  Walk(const Sequence& sequence, bool may_skip, uint32_t micro_batches = 1,
       std::vector<uint32_t> segments = {})
      : cursor(may_skip) {
    std::vector<std::string> names;
    for (uint32_t module : sequence) {
      while (names.size() <= module) {
        names.push_back(std::string(1, static_cast<char>('a' + names.size())));
      }
    }
    segments.resize(names.size());
    passes = PassOrder(sequence, segments, micro_batches);
    cursor.Take(&passes, names);
  }

  // Begins and ends `call`, after what it leaves out. False, and nothing is
  // changed, if it is not next.
  bool Run(const Call& call) {
    const std::optional<uint64_t> index = cursor.Next(call);
    if (!index.has_value()) return false;
    while (cursor.index() < *index) Step(/*left_out=*/true);
    Step(/*left_out=*/false);
    return true;
  }
  void Step(bool left_out) {
    cursor.Begin(left_out);
    cursor.Advance();
  }

  std::vector<Pass> passes;
  Cursor cursor;
};

TEST(CursorTest, ThePlannedOrderIsTheOnlyOne) {
  Walk walk({0, 1}, /*may_skip=*/false, /*micro_batches=*/2);
  for (uint32_t mb = 0; mb < 2; ++mb) {
    for (const Call& call :
         {Forward(0, mb), Forward(1, mb), Backward(1, mb), Backward(0, mb)}) {
      EXPECT_FALSE(walk.cursor.CanEnd());
      EXPECT_FALSE(walk.Run({!call.backward, call.module, mb}));
      EXPECT_FALSE(walk.Run({call.backward, 1 - call.module, mb}));
      EXPECT_FALSE(walk.Run({call.backward, call.module, 1 - mb}));
      EXPECT_FALSE(walk.Run({call.backward, 2, mb}));
      EXPECT_TRUE(walk.cursor.IsAt(call));
      EXPECT_TRUE(walk.Run(call));
    }
  }
  EXPECT_TRUE(walk.cursor.at_end());
  EXPECT_TRUE(walk.cursor.CanEnd());
  EXPECT_FALSE(walk.cursor.IsAt(Forward(0)));
  walk.cursor.Restart();
  EXPECT_TRUE(walk.Run(Forward(0)));
}

TEST(CursorTest, WhatIsExpectedIsSaidInWords) {
  Walk walk({0, 1, 0}, /*may_skip=*/false);
  EXPECT_EQ(walk.cursor.Expected("end"),
            "forward_begin of module 0 'a', micro-batch 0");
  EXPECT_TRUE(walk.Run(Forward(0)));
  EXPECT_EQ(walk.cursor.ExpectedEnd(),
            "forward_end of module 1 'b', micro-batch 0");
  EXPECT_TRUE(walk.Run(Forward(1)));
  EXPECT_EQ(walk.cursor.Expected("end"),
            "forward_begin of module 0 'a', micro-batch 0, pass 2");
  EXPECT_TRUE(walk.Run(Forward(0)));
  EXPECT_EQ(walk.cursor.Expected("end"),
            "backward_begin of module 0 'a', micro-batch 0, pass 2");
  EXPECT_TRUE(walk.Run(Backward(0)));
  EXPECT_TRUE(walk.Run(Backward(1)));
  EXPECT_TRUE(walk.Run(Backward(0)));
  EXPECT_EQ(walk.cursor.Expected("end"), "end");
}

TEST(CursorTest, ForwardsThatRunAgainComeBeforeTheirBackwards) {
  Walk walk({0, 1}, /*may_skip=*/false, /*micro_batches=*/1, {1, 1});
  EXPECT_TRUE(walk.Run(Forward(0)));
  EXPECT_TRUE(walk.Run(Forward(1)));
  EXPECT_FALSE(walk.Run(Backward(1)));
  EXPECT_EQ(walk.cursor.Expected("end"),
            "forward_begin of module 0 'a', micro-batch 0, recomputed");
  EXPECT_TRUE(walk.Run(Forward(0)));
  EXPECT_TRUE(walk.Run(Forward(1)));
  EXPECT_TRUE(walk.Run(Backward(1)));
  EXPECT_TRUE(walk.Run(Backward(0)));
  EXPECT_TRUE(walk.cursor.at_end());
}

TEST(CursorTest, WhatIsLeftOutTakesItsBackwardAlong) {
  Walk walk({0, 1, 2}, /*may_skip=*/true);
  EXPECT_EQ(walk.cursor.Expected("end"),
            "forward_begin of module 0 'a', micro-batch 0, or a later call");
  EXPECT_TRUE(walk.Run(Forward(0)));
  EXPECT_TRUE(walk.Run(Forward(2)));
  EXPECT_FALSE(walk.Run(Forward(1))) << "It does not come back.";
  EXPECT_FALSE(walk.cursor.CanEnd());
  EXPECT_FALSE(walk.Run(Backward(1)));
  EXPECT_EQ(walk.cursor.Expected("end"),
            "backward_begin of module 2 'c', micro-batch 0");
  EXPECT_TRUE(walk.Run(Backward(2)));
  EXPECT_FALSE(walk.Run(Backward(1)));
  EXPECT_EQ(walk.cursor.Expected("end"),
            "backward_begin of module 0 'a', micro-batch 0");
  EXPECT_TRUE(walk.Run(Backward(0)));
  EXPECT_TRUE(walk.cursor.at_end());
}

TEST(CursorTest, AllMayBeLeftOut) {
  Walk walk({0, 1}, /*may_skip=*/true, /*micro_batches=*/2);
  EXPECT_TRUE(walk.cursor.CanEnd());
  EXPECT_TRUE(walk.Run(Forward(1, 1)));
  EXPECT_FALSE(walk.cursor.CanEnd());
  EXPECT_TRUE(walk.Run(Backward(1, 1)));
  EXPECT_TRUE(walk.cursor.CanEnd());
}

// What is in one step is forgotten in the next.
TEST(CursorTest, WhatWasLeftOutInAStepRunsInTheNext) {
  Walk walk({0, 1}, /*may_skip=*/true);
  EXPECT_TRUE(walk.Run(Forward(1)));
  EXPECT_TRUE(walk.Run(Backward(1)));
  walk.cursor.Restart();
  for (const Call& call : {Forward(0), Forward(1), Backward(1), Backward(0)}) {
    EXPECT_TRUE(walk.Run(call));
  }
}

// Against the rule itself: of the planned passes those run whose forward the
// caller runs, in the planned order, and any other call is refused.
TEST(CursorTest, RandomCallersAreTakenAtTheirWord) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 draw(seed);
    Sequence sequence = RegisteredSequence(1 + draw() % 4);
    const bool comes_twice = draw() % 2 == 0;
    if (comes_twice) sequence.push_back(draw() % sequence.size());
    std::vector<uint32_t> segments(sequence.size());
    // What comes twice and runs again comes as planned only.
    for (uint32_t& segment : segments) segment = comes_twice ? 0 : draw() % 2;
    Walk walk(sequence, /*may_skip=*/true, 1 + draw() % 3, segments);
    std::vector<bool> wanted(walk.passes.size());
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = draw() % 3 != 0;
    for (size_t i = 0; i < walk.passes.size(); ++i) {
      const Pass& pass = walk.passes[i];
      if (!wanted[pass.forward]) continue;
      const Call call = {pass.backward, pass.module, pass.micro_batch};
      const std::optional<uint64_t> index = walk.cursor.Next(call);
      if (!index.has_value()) {
        ADD_FAILURE() << "pass " << i << "; " << walk.cursor.Expected("end");
        break;
      }
      // Of two uses the first is run, if one is: nobody can tell which it was.
      if (comes_twice) {
        EXPECT_EQ(walk.passes[*index].module, pass.module);
      } else {
        EXPECT_EQ(*index, i);
      }
      EXPECT_TRUE(walk.Run(call));
    }
    EXPECT_TRUE(walk.cursor.CanEnd());
  }
}

}  // namespace
}  // namespace commsched::engine
