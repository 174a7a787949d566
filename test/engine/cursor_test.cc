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

PassCall Forward(uint32_t module, uint32_t micro_batch = 0) {
  return {PassKind::kForward, module, micro_batch};
}
PassCall Recompute(uint32_t module, uint32_t micro_batch = 0) {
  return {PassKind::kRecompute, module, micro_batch};
}
PassCall Backward(uint32_t module, uint32_t micro_batch = 0) {
  return {PassKind::kBackward, module, micro_batch};
}

constexpr uint32_t kAll = ~0u;  // Micro-batches.

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
    cursor.Restart(kAll);
  }

  // Begins and ends `call`, after what it leaves out. False, and nothing is
  // changed, if it is not next.
  bool Run(const PassCall& call) {
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
    for (const PassCall& call :
         {Forward(0, mb), Forward(1, mb), Backward(1, mb), Backward(0, mb)}) {
      EXPECT_FALSE(walk.cursor.CanEnd());
      for (uint32_t kind = 0; kind < kNumPassKinds; ++kind) {
        const auto other = static_cast<PassKind>(kind);
        if (other == call.kind) continue;
        EXPECT_FALSE(walk.Run({other, call.module, mb}));
      }
      EXPECT_FALSE(walk.Run({call.kind, 1 - call.module, mb}));
      EXPECT_FALSE(walk.Run({call.kind, call.module, 1 - mb}));
      EXPECT_FALSE(walk.Run({call.kind, 2, mb}));
      EXPECT_TRUE(walk.cursor.IsAt(call));
      EXPECT_TRUE(walk.Run(call));
    }
  }
  EXPECT_TRUE(walk.cursor.at_end());
  EXPECT_TRUE(walk.cursor.CanEnd());
  EXPECT_FALSE(walk.cursor.IsAt(Forward(0)));
  walk.cursor.Restart(kAll);
  EXPECT_TRUE(walk.Run(Forward(0)));
}

TEST(CursorTest, WhatIsExpectedIsSaidInWords) {
  Walk walk({0, 1, 0}, /*may_skip=*/false);
  EXPECT_EQ(walk.cursor.Expected("end"),
            "pass_begin of FORWARD of module 0 'a', micro-batch 0");
  EXPECT_TRUE(walk.Run(Forward(0)));
  EXPECT_EQ(walk.cursor.ExpectedEnd(),
            "pass_end of FORWARD of module 1 'b', micro-batch 0");
  EXPECT_TRUE(walk.Run(Forward(1)));
  EXPECT_EQ(walk.cursor.Expected("end"),
            "pass_begin of FORWARD of module 0 'a', micro-batch 0, pass 2");
  EXPECT_TRUE(walk.Run(Forward(0)));
  EXPECT_EQ(walk.cursor.Expected("end"),
            "pass_begin of BACKWARD of module 0 'a', micro-batch 0, pass 2");
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
            "pass_begin of RECOMPUTE of module 0 'a', micro-batch 0");
  EXPECT_FALSE(walk.Run(Forward(0)));
  EXPECT_TRUE(walk.Run(Recompute(0)));
  EXPECT_TRUE(walk.Run(Recompute(1)));
  EXPECT_TRUE(walk.Run(Backward(1)));
  EXPECT_TRUE(walk.Run(Backward(0)));
  EXPECT_TRUE(walk.cursor.at_end());
}

TEST(CursorTest, WhatIsLeftOutTakesItsBackwardAlong) {
  Walk walk({0, 1, 2}, /*may_skip=*/true);
  EXPECT_EQ(walk.cursor.Expected("end"),
            "pass_begin of FORWARD of module 0 'a', micro-batch 0, or a later "
            "call");
  EXPECT_TRUE(walk.Run(Forward(0)));
  EXPECT_TRUE(walk.Run(Forward(2)));
  EXPECT_FALSE(walk.Run(Forward(1))) << "It does not come back.";
  EXPECT_FALSE(walk.Run(Backward(1)));
  EXPECT_EQ(walk.cursor.Expected("end"),
            "pass_begin of BACKWARD of module 2 'c', micro-batch 0, or a later "
            "call");
  EXPECT_TRUE(walk.Run(Backward(2)));
  EXPECT_FALSE(walk.Run(Backward(1)));
  EXPECT_TRUE(walk.Run(Backward(0)));
  EXPECT_TRUE(walk.cursor.at_end());
}

TEST(CursorTest, ABackwardMayBeLeftOutAfterItsForward) {
  Walk walk({0, 1}, /*may_skip=*/true);
  EXPECT_TRUE(walk.Run(Forward(0)));
  EXPECT_TRUE(walk.Run(Forward(1)));
  EXPECT_TRUE(walk.Run(Backward(0)));
  EXPECT_FALSE(walk.Run(Backward(1))) << "It does not come back.";
  EXPECT_TRUE(walk.cursor.CanEnd());
}

TEST(CursorTest, AllMayBeLeftOut) {
  Walk walk({0, 1}, /*may_skip=*/true, /*micro_batches=*/2);
  EXPECT_TRUE(walk.cursor.CanEnd());
  EXPECT_TRUE(walk.Run(Forward(1, 1)));
  EXPECT_TRUE(walk.Run(Backward(1, 1)));
  EXPECT_TRUE(walk.cursor.CanEnd());
}

TEST(CursorTest, AStepOfFewerMicroBatchesEndsWithoutTheOthers) {
  for (bool may_skip : {false, true}) {
    Walk walk({0, 1}, may_skip, /*micro_batches=*/3);
    walk.cursor.Restart(2);
    for (uint32_t mb : {0u, 1u}) {
      EXPECT_EQ(walk.cursor.CanEnd(), may_skip);
      for (const PassCall& call :
           {Forward(0, mb), Forward(1, mb), Backward(1, mb), Backward(0, mb)}) {
        EXPECT_TRUE(walk.Run(call));
      }
    }
    EXPECT_TRUE(walk.cursor.CanEnd());
    EXPECT_EQ(walk.cursor.Expected("end"), "end");
    EXPECT_FALSE(walk.Run(Forward(0, 2)));
    walk.cursor.Restart(kAll);
    EXPECT_EQ(walk.cursor.Next(Forward(0, 0)), 0u);
  }
}

// What is in one step is forgotten in the next.
TEST(CursorTest, WhatWasLeftOutInAStepRunsInTheNext) {
  Walk walk({0, 1}, /*may_skip=*/true);
  EXPECT_TRUE(walk.Run(Forward(1)));
  EXPECT_TRUE(walk.Run(Backward(1)));
  walk.cursor.Restart(kAll);
  for (const PassCall& call :
       {Forward(0), Forward(1), Backward(1), Backward(0)}) {
    EXPECT_TRUE(walk.Run(call));
  }
}

// Halves of a backward and forwards without one, in whatever order the list
// has: a forward that is left out takes both halves along.
TEST(CursorTest, APassOfAListComesAtItsPlaceOnly) {
  const std::vector<PassCall> list = {
      {PassKind::kNoGrad, 0, 0},         {PassKind::kForward, 0, 0},
      {PassKind::kForward, 1, 0},        {PassKind::kBackwardInput, 1, 0},
      {PassKind::kBackwardInput, 0, 0},  {PassKind::kBackwardWeight, 1, 0},
      {PassKind::kBackwardWeight, 0, 0},
  };
  for (bool may_skip : {false, true}) {
    std::vector<Pass> passes;
    ASSERT_TRUE(LinkPasses(list, {"a", "b"}, &passes).ok());
    Cursor cursor(may_skip);
    cursor.Take(&passes, {"a", "b"});
    cursor.Restart(kAll);
    const auto run = [&](const PassCall& call) {
      const std::optional<uint64_t> index = cursor.Next(call);
      if (!index.has_value()) return false;
      while (cursor.index() <= *index) {
        cursor.Begin(/*left_out=*/cursor.index() < *index);
        cursor.Advance();
      }
      return true;
    };
    EXPECT_EQ(run(list[2]), may_skip);
    if (!may_skip) {
      for (const PassCall& call : list) EXPECT_TRUE(run(call));
    } else {
      EXPECT_FALSE(run(list[1])) << "It does not come back.";
      EXPECT_TRUE(run(list[3]));
      EXPECT_FALSE(run(list[4])) << "Its forward was left out.";
      EXPECT_TRUE(run(list[5]));
      EXPECT_TRUE(cursor.CanEnd());
    }
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
      const PassCall call = pass.call();
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
