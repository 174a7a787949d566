#include "trace/blame.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "test/support/property.h"
#include "trace/metrics.h"

namespace commsched {
namespace {

using ::testing::HasSubstr;

// A recorder that is told what happened.
class BlameHistory {
 public:
  void Begin(uint64_t step, int64_t at_ns) {
    Add({.begin_ns = at_ns, .end_ns = at_ns, .step = step}, 0);
  }
  void Compute(int64_t begin_ns, int64_t end_ns) {
    Add({.begin_ns = begin_ns, .end_ns = end_ns}, 1);
  }
  void Launch(uint64_t step, uint32_t index, int64_t begin_ns, int64_t end_ns) {
    Add({.begin_ns = begin_ns, .end_ns = end_ns, .step = step, .index = index},
        2);
  }
  // With what held it back.
  void Launch(uint64_t step, uint32_t index, int64_t begin_ns, int64_t end_ns,
              const Hold& hold) {
    Launch(step, index, begin_ns, end_ns);
    recorder_.Add(HoldRecord(hold, step, index, 0));
  }
  RunBlame Computed() const { return ComputeBlame(recorder_); }
  Recorder& recorder() { return recorder_; }

 private:
  void Add(Record record, int kind) {
    record.kind = static_cast<RecordKind>(kind);
    recorder_.Add(record);
  }
  Recorder recorder_{4096};
};

TEST(HoldRecordTest, KeepsWhatItIsGiven) {
  const Hold hold = HoldOf(HoldRecord(
      {.ready_ns = 5, .started_ns = 70, .order_ns = 20, .cap_ns = 30}, 3, 4,
      1));
  EXPECT_EQ(hold.ready_ns, 5);
  EXPECT_EQ(hold.started_ns, 70);
  EXPECT_EQ(hold.order_ns, 20);
  EXPECT_EQ(hold.cap_ns, 30);
  EXPECT_EQ(
      HoldOf(HoldRecord({.order_ns = int64_t{1} << 40}, 0, 0, 0)).order_ns,
      0xffffffff);
}

TEST(HoldRecordTest, IsNoIntervalOfTheTrace) {
  BlameHistory run;
  run.Launch(0, 0, 10, 20, {.ready_ns = 5, .started_ns = 12});
  ASSERT_EQ(run.recorder().Snapshot().size(), 1u);
  EXPECT_EQ(run.recorder().Snapshot()[0].kind, RecordKind::kLaunch);
  ASSERT_EQ(run.recorder().SnapshotOfHolds().size(), 1u);
}

// Compute in [0, 100) of a step of 300; one launch at [200, 250).
Blame BlameOfOne(const Hold& hold) {
  BlameHistory run;
  run.Begin(0, 0);
  run.Compute(0, 100);
  run.Launch(0, 0, 200, 250, hold);
  run.Begin(1, 300);
  const RunBlame blame = run.Computed();
  EXPECT_EQ(blame.steps.size(), 1u);
  EXPECT_EQ(blame.launches.size(), 1u);
  EXPECT_EQ(blame.steps[0].blame, blame.launches[0]);
  EXPECT_EQ(blame.steps[0].blame.total_ns(), 50);
  return blame.launches[0];
}

TEST(RunBlameTest, AFullWindowIsTheCap) {
  EXPECT_EQ(BlameOfOne({.ready_ns = 50, .started_ns = 200, .cap_ns = 150}),
            (Blame{.cap_ns = 50}));
  // Without it, 40 of 50 would still have been exposed.
  EXPECT_EQ(BlameOfOne({.ready_ns = 90, .started_ns = 200, .cap_ns = 110}),
            (Blame{.cap_ns = 10, .dependency_ns = 40}));
}

TEST(RunBlameTest, AnEarlierKeyIsTheOrder) {
  EXPECT_EQ(BlameOfOne({.ready_ns = 50, .started_ns = 200, .order_ns = 150}),
            (Blame{.order_ns = 50}));
}

TEST(RunBlameTest, ALateProducerIsADependency) {
  EXPECT_EQ(BlameOfOne({.ready_ns = 200, .started_ns = 200}),
            (Blame{.dependency_ns = 50}));
}

TEST(RunBlameTest, UntilAllMembersHaveArrivedItIsTheStraggler) {
  EXPECT_EQ(BlameOfOne({.ready_ns = 200, .started_ns = 230}),
            (Blame{.dependency_ns = 20, .straggler_ns = 30}));
}

TEST(RunBlameTest, AStartThatNobodyKnowsIsNoStraggler) {
  EXPECT_EQ(BlameOfOne({.ready_ns = 200, .started_ns = 0}),
            (Blame{.dependency_ns = 50}));
}

TEST(RunBlameTest, AStartOutsideItsLaunchIsOfAnotherOne) {
  EXPECT_EQ(BlameOfOne({.ready_ns = 200, .started_ns = 251}),
            (Blame{.dependency_ns = 50}));
}

TEST(RunBlameTest, MoreWireThanComputeIsTheLink) {
  BlameHistory run;
  run.Begin(0, 0);
  run.Compute(0, 100);
  run.Launch(0, 0, 100, 400, {.ready_ns = 100, .started_ns = 100});
  run.Begin(1, 400);
  EXPECT_EQ(run.Computed().launches[0],
            (Blame{.dependency_ns = 100, .link_ns = 200}));
}

// In flight together: the first is on the wire, the second waits for it.
TEST(RunBlameTest, ALaunchBehindAnotherWaitsForTheLink) {
  BlameHistory run;
  run.Begin(0, 0);
  run.Compute(0, 100);
  run.Launch(0, 0, 20, 90, {.ready_ns = 20, .started_ns = 20});
  run.Launch(0, 1, 20, 160, {.ready_ns = 20, .started_ns = 20});
  run.Begin(1, 200);
  const RunBlame blame = run.Computed();
  EXPECT_EQ(blame.launches[0], Blame{});
  EXPECT_EQ(blame.launches[1], (Blame{.link_ns = 60}));
}

TEST(RunBlameTest, ALaunchThatRunsOnIsCutAtTheStep) {
  BlameHistory run;
  run.Begin(0, 0);
  run.Launch(0, 0, 50, 130);
  run.Begin(1, 100);
  run.Begin(2, 200);
  const RunBlame blame = run.Computed();
  ASSERT_EQ(blame.steps.size(), 2u);
  EXPECT_EQ(blame.steps[0].blame.total_ns(), 50);
  EXPECT_EQ(blame.steps[1].blame.total_ns(), 30);
}

// Ranks tell each other later who was late.
TEST(RunBlameTest, AStartThatIsKnownLaterCountsAndNamesTheStraggler) {
  BlameHistory run;
  run.Begin(0, 0);
  run.Launch(0, 0, 200, 250, {.ready_ns = 200});
  run.Launch(0, 0, 260, 300, {.ready_ns = 260});
  run.Begin(1, 300);
  // Of the first; of the second, a little before its begin, by another host's
  // clock; and of neither.
  for (const Start& start :
       {Start{.started_ns = 230, .error_ns = 4, .last_rank = 3},
        Start{.started_ns = 257, .error_ns = 4, .last_rank = 2},
        Start{.started_ns = 900, .error_ns = 4, .last_rank = 1}}) {
    run.recorder().Add(StartRecord(start, 0, 0));
  }
  const RunBlame blame = run.Computed();
  EXPECT_EQ(blame.launches[0].straggler_ns, 30);
  EXPECT_EQ(blame.stragglers[0].rank, 3);
  EXPECT_EQ(blame.stragglers[0].ns, 30);
  EXPECT_EQ(blame.straggler.rank, 3);
  EXPECT_EQ(run.recorder().Snapshot().size(), 4u);
  const auto json = nlohmann::json::parse(BlameJson(run.recorder()));
  EXPECT_EQ(json["launches"][0]["straggler_rank"], 3);
}

// Which it has issued a little after its record begins.
TEST(RunBlameTest, ARankIsNotItsOwnStraggler) {
  BlameHistory run;
  run.Begin(0, 0);
  run.Launch(0, 0, 200, 250, {.ready_ns = 200});
  run.Begin(1, 300);
  const int own_rank = run.recorder().names().rank;
  run.recorder().Add(
      StartRecord({.started_ns = 230, .last_rank = own_rank}, 0, 0));
  EXPECT_EQ(run.Computed().launches[0].straggler_ns, 0);
  EXPECT_EQ(run.Computed().straggler.rank, -1);
}

TEST(RunBlameTest, NobodyIsNamedWhereItIsNotKnown) {
  BlameHistory run;
  run.Begin(0, 0);
  run.Launch(0, 0, 200, 250, {.ready_ns = 200, .started_ns = 230});
  run.Begin(1, 300);
  EXPECT_EQ(run.Computed().launches[0].straggler_ns, 30);
  EXPECT_EQ(run.Computed().stragglers[0].rank, -1);
  const auto json = nlohmann::json::parse(BlameJson(run.recorder()));
  EXPECT_FALSE(json["launches"][0].contains("straggler_rank"));
}

TEST(RunBlameTest, TextAndJsonNameTheLaunches) {
  BlameHistory run;
  RecordNames names;
  names.launches.resize(1);
  names.launches[0].name = "all_reduce grads";
  run.recorder().SetNames(names);
  run.Begin(0, 0);
  run.Compute(0, 1000);
  run.Launch(0, 0, 2000, 3000, {.ready_ns = 2000, .started_ns = 2000});
  run.Begin(1, 5000);
  const std::string text = BlameText(run.recorder());
  EXPECT_THAT(text, HasSubstr("mean of 1 steps"));
  EXPECT_THAT(text, HasSubstr("#0 all_reduce grads"));
  const auto json = nlohmann::json::parse(BlameJson(run.recorder()));
  EXPECT_EQ(json["format"], "commsched-blame/1");
  EXPECT_EQ(json["launches"][0]["name"], "all_reduce grads");
  EXPECT_EQ(json["launches"][0]["dependency_ns"], 1000);
  EXPECT_EQ(json["steps"][0]["exposed_ns"], 1000);
}

// |comm \ compute| of each step, nanosecond by nanosecond.
TEST(RunBlamePropertyTest, AddsUpToWhatCountingFinds) {
  for (int i = 0; i < test::PropertyCases(300); ++i) {
    const uint64_t seed = test::PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(test::DescribeSeed(seed));
    std::mt19937_64 random(seed);
    const auto below = [&](int64_t limit) {
      return static_cast<int64_t>(random() % static_cast<uint64_t>(limit));
    };
    BlameHistory run;
    std::vector<bool> compute(800), comm(800);
    for (uint64_t step = 0; step < 4; ++step) {
      run.Begin(step, static_cast<int64_t>(step) * 200);
    }
    for (int64_t n = below(10); n > 0; --n) {
      const int64_t begin = below(700), end = begin + below(100);
      run.Compute(begin, end);
      std::fill(compute.begin() + begin, compute.begin() + end, true);
    }
    for (uint32_t n = 0; n < 12; ++n) {
      const int64_t begin = below(700), end = begin + below(100);
      std::fill(comm.begin() + begin, comm.begin() + end, true);
      if (below(4) == 0) {
        run.Launch(n / 3, n % 3, begin, end);
        continue;
      }
      run.Launch(n / 3, n % 3, begin, end,
                 {.ready_ns = begin - below(50),
                  .started_ns = begin + below(end - begin + 1),
                  .order_ns = below(50),
                  .cap_ns = below(50)});
    }
    const RunBlame blame = run.Computed();
    const std::vector<StepMetrics> metrics = ComputeStepMetrics(run.recorder());
    ASSERT_EQ(blame.steps.size(), 3u);
    Blame sum;
    for (size_t s = 0; s < 3; ++s) {
      int64_t exposed = 0;
      for (size_t t = s * 200; t < (s + 1) * 200; ++t) {
        exposed += comm[t] && !compute[t] ? 1 : 0;
      }
      const Blame& step = blame.steps[s].blame;
      ASSERT_EQ(step.total_ns(), exposed);
      ASSERT_EQ(step.total_ns(), metrics[s].exposed_ns);
      ASSERT_GE(std::min({step.cap_ns, step.dependency_ns, step.order_ns,
                          step.link_ns, step.straggler_ns}),
                0);
      sum += step;
    }
    Blame of_launches;
    for (const Blame& each : blame.launches) of_launches += each;
    ASSERT_EQ(of_launches, sum);
  }
}

}  // namespace
}  // namespace commsched
