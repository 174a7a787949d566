// Completions that tell of what a recording has submitted.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/completions.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "test/channel/channel_rig.h"
#include "test/recording/recording_rig.h"
#include "test/support/await.h"
#include "test/support/status_matchers.h"
#include "test/support/surprises.h"

namespace commsched {
namespace {

using test::ChannelRig;
using test::ExpectAllOk;
using test::ModulesRank;
using test::ModulesReference;
using test::ModulesSpec;
using test::RunModules;

constexpr int64_t kPatienceNs = int64_t{20} * 1000 * 1000 * 1000;
constexpr uint64_t kKeyOfRank0 = 70;

// Of each rank its own, with `capacity` places.
class TestCompletions {
 public:
  explicit TestCompletions(int ranks, uint64_t capacity = 1024) {
    for (int rank = 0; rank < ranks; ++rank) {
      of_rank_.push_back(std::make_shared<Completions>(capacity));
    }
  }

  // Those of `rank` go to `spec`.
  void GiveTo(RecordingSpec* spec) const {
    const auto rank = static_cast<size_t>(spec->world_rank);
    spec->completions = of_rank_[rank];
    spec->key = kKeyOfRank0 + rank;
  }
  ModulesSpec Into(ModulesSpec spec) const {
    spec.adjust = [this, before = spec.adjust](RecordingSpec* recording) {
      before(recording);
      GiveTo(recording);
    };
    return spec;
  }

  Completions& of(const ModulesRank& rank) const {
    return *of_rank_[static_cast<size_t>(rank.rank())];
  }
  // As many as are there by now, or `least`, for which it waits.
  std::vector<Completion> Take(const ModulesRank& rank, size_t least) const {
    const int64_t deadline_ns = SystemClock::Get().NowNs() + kPatienceNs;
    std::vector<Completion> taken;
    Completion out[16];
    while (true) {
      const size_t count = of(rank).Next(
          absl::MakeSpan(out), taken.size() < least ? deadline_ns : int64_t{0});
      taken.insert(taken.end(), out, out + count);
      if (count == 0) return taken;
    }
  }

 private:
  std::vector<std::shared_ptr<Completions>> of_rank_;
};

// By module, how often each of a rank's reductions is told of in `taken`, all
// of which are to be as they ought to.
std::map<int, int> TimesTold(const ModulesRank& rank, int modules,
                             const std::vector<Completion>& taken) {
  std::map<int, int> times;
  for (const Completion& completion : taken) {
    EXPECT_EQ(completion.key, kKeyOfRank0 + static_cast<uint64_t>(rank.rank()));
    EXPECT_EQ(completion.code, absl::StatusCode::kOk);
    for (int m = 0; m < modules; ++m) {
      if (completion.user == rank.ar(m)) ++times[m];
    }
  }
  return times;
}

// A step whose program goes on when it has been told: then the sums are there,
// and who waits for one returns at once.
absl::Status StepThatIsTold(const TestCompletions& completions,
                            const ModulesSpec& spec, ModulesRank& rank, int t,
                            const std::vector<std::vector<int32_t>>& expected,
                            uint64_t* num_told) {
  Recording& recording = rank.recording();
  RETURN_IF_ERROR(recording.StepBegin());
  for (int m = 0; m < spec.modules; ++m) {
    RETURN_IF_ERROR(rank.Backward(m, t));
    RETURN_IF_ERROR(rank.Reduce(m));
  }
  const auto num = static_cast<size_t>(spec.modules);
  const std::vector<Completion> taken = completions.Take(rank, num);
  EXPECT_EQ(taken.size(), num);
  std::vector<uint64_t> requests;
  for (const Completion& completion : taken) {
    requests.push_back(completion.request);
  }
  std::sort(requests.begin(), requests.end());
  for (const uint64_t request : requests) EXPECT_EQ(request, ++*num_told);
  const std::map<int, int> times = TimesTold(rank, spec.modules, taken);
  for (int m = 0; m < spec.modules; ++m) {
    EXPECT_EQ(times.count(m) == 0 ? 0 : times.at(m), 1) << "module " << m;
    EXPECT_OK(recording.Wait(rank.ar(m), 0));
    EXPECT_EQ(rank.grad(m), expected[m]) << "module " << m << ", step " << t;
  }
  for (int m = 0; m < spec.modules; ++m) RETURN_IF_ERROR(rank.Optimize(m));
  return recording.StepEnd();
}

void RunTold(const ModulesSpec& of, int steps = 8) {
  const TestCompletions completions(of.ranks);
  const ModulesSpec spec = completions.Into(of);
  using Grads = std::vector<std::vector<int32_t>>;
  std::vector<std::vector<Grads>> expected;  // by step and rank
  ModulesReference reference(spec);
  for (int t = 0; t < steps; ++t) {
    expected.emplace_back(spec.ranks);
    for (int m = 0; m < spec.modules; ++m) {
      reference.Step(m, t, std::vector<ModulesReference::Takes>(spec.ranks));
      for (int r = 0; r < spec.ranks; ++r) {
        expected[t][r].push_back(reference.grad(r, m));
      }
    }
  }
  ExpectAllOk(RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
    uint64_t num_told = 0;
    for (int t = 0; t < steps; ++t) {
      RETURN_IF_ERROR(StepThatIsTold(completions, spec, rank, t,
                                     expected[t][rank.rank()], &num_told));
    }
    EXPECT_EQ(rank.recording().info().plans, 1u);
    EXPECT_EQ(completions.Take(rank, 0).size(), 0u);
    return rank.recording().Drain();
  }));
}

TEST(RecordingCompletionsTest, EachSubmissionIsToldOfOnce) { RunTold({}); }

// One launch of all, launches of parts, and both.
TEST(RecordingCompletionsTest, SoAreThoseThatShareLaunchesOrHaveSeveral) {
  for (const uint64_t coalesce_bytes : {0, 1 << 20}) {
    for (const uint64_t partition_bytes : {0, 64}) {
      ModulesSpec spec;
      spec.count = 100;
      spec.coalesce_bytes = coalesce_bytes;
      spec.partition_bytes = partition_bytes;
      RunTold(spec);
    }
  }
}

TEST(RecordingCompletionsTest, WhatHasGoneEarlyIsToldOfOnceItIsSubmitted) {
  ModulesSpec of;
  of.early = true;
  const TestCompletions completions(of.ranks);
  const ModulesSpec spec = completions.Into(of);
  ExpectAllOk(RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
    Recording& recording = rank.recording();
    for (int t = 0; t < 6; ++t) {
      RETURN_IF_ERROR(recording.StepBegin());
      for (int m = 0; m < 4; ++m) RETURN_IF_ERROR(rank.Backward(m, t));
      for (int m = 0; m < 4; ++m) {
        EXPECT_EQ(completions.Take(rank, 0).size(), 0u);
        RETURN_IF_ERROR(rank.Reduce(m));
        EXPECT_EQ(TimesTold(rank, 4, completions.Take(rank, 1)),
                  (std::map<int, int>{{m, 1}}));
      }
      for (int m = 0; m < 4; ++m) RETURN_IF_ERROR(rank.Optimize(m));
      RETURN_IF_ERROR(recording.StepEnd());
    }
    return recording.Drain();
  }));
}

TEST(RecordingCompletionsTest, WhatIsLeftOutOfAStepIsNotToldOf) {
  const TestCompletions completions(3);
  const ModulesSpec spec = completions.Into({});
  ExpectAllOk(RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
    Recording& recording = rank.recording();
    for (int t = 0; t < 5; ++t) {
      const bool leaves_out = t == 3 && rank.rank() == 1;
      RETURN_IF_ERROR(recording.StepBegin());
      for (int m = 0; m < 4; ++m) {
        RETURN_IF_ERROR(rank.Backward(m, t));
        if (leaves_out && m == 2) continue;
        RETURN_IF_ERROR(rank.Reduce(m));
      }
      for (int m = 0; m < 4; ++m) RETURN_IF_ERROR(rank.Optimize(m));
      RETURN_IF_ERROR(recording.StepEnd());
      RETURN_IF_ERROR(recording.Drain());
      std::map<int, int> expected = {{0, 1}, {1, 1}, {2, 1}, {3, 1}};
      if (leaves_out) expected.erase(2);
      EXPECT_EQ(TimesTold(rank, 4, completions.Take(rank, leaves_out ? 3 : 4)),
                expected)
          << "step " << t;
    }
    return absl::OkStatus();
  }));
}

// Of recorded submissions and of frozen ones.
TEST(RecordingCompletionsTest, WithoutAPlaceNothingIsSubmitted) {
  const TestCompletions completions(2, /*capacity=*/1);
  ModulesSpec of;
  of.ranks = 2;
  of.modules = 2;
  const ModulesSpec spec = completions.Into(of);
  ExpectAllOk(RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
    Recording& recording = rank.recording();
    for (int t = 0; t < 5; ++t) {
      RETURN_IF_ERROR(recording.StepBegin());
      RETURN_IF_ERROR(rank.Backward(0, t));
      RETURN_IF_ERROR(rank.Reduce(0));
      RETURN_IF_ERROR(rank.Backward(1, t));
      EXPECT_THAT(rank.Reduce(1), StatusIs(absl::StatusCode::kResourceExhausted,
                                           "all 1 places are taken"));
      EXPECT_EQ(TimesTold(rank, 2, completions.Take(rank, 1)),
                (std::map<int, int>{{0, 1}}));
      RETURN_IF_ERROR(rank.Reduce(1));
      EXPECT_EQ(TimesTold(rank, 2, completions.Take(rank, 1)),
                (std::map<int, int>{{1, 1}}));
      for (int m = 0; m < 2; ++m) RETURN_IF_ERROR(rank.Optimize(m));
      RETURN_IF_ERROR(recording.StepEnd());
      EXPECT_EQ(recording.info().steps_deviating, 0u);
    }
    return recording.Drain();
  }));
}

// What is refused gives its place back.
TEST(RecordingCompletionsTest, WhatIsRefusedIsNotToldOf) {
  const TestCompletions completions(2, /*capacity=*/1);
  ModulesSpec of;
  of.ranks = 2;
  const ModulesSpec spec = completions.Into(of);
  ExpectAllOk(RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
    for (int t = 0; t < 4; ++t) {
      EXPECT_THAT(rank.recording().Submit(rank.bwd(0)),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           "op 'bwd.0' is a compute op"));
      EXPECT_THAT(rank.recording().Submit(99),
                  StatusIs(absl::StatusCode::kInvalidArgument, "op 99"));
      RETURN_IF_ERROR(rank.recording().StepBegin());
      for (int m = 0; m < 4; ++m) {
        RETURN_IF_ERROR(rank.Backward(m, t));
        RETURN_IF_ERROR(rank.Reduce(m));
        EXPECT_EQ(TimesTold(rank, 4, completions.Take(rank, 1)),
                  (std::map<int, int>{{m, 1}}));
      }
      for (int m = 0; m < 4; ++m) RETURN_IF_ERROR(rank.Optimize(m));
      RETURN_IF_ERROR(rank.recording().StepEnd());
    }
    return rank.recording().Drain();
  }));
}

// Rank 1 never submits what the others wait for.
TEST(RecordingCompletionsTest, WhatIsOpenFinishesAsTheRecordingFails) {
  const TestCompletions completions(3);
  const ModulesSpec spec = completions.Into({});
  RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
    Recording& recording = rank.recording();
    for (int t = 0; t < 3; ++t) {
      RETURN_IF_ERROR(rank.Step({0, 1, 2, 3}, t));
      EXPECT_EQ(completions.Take(rank, 4).size(), 4u);
    }
    RETURN_IF_ERROR(recording.StepBegin());
    RETURN_IF_ERROR(rank.Backward(0, 3));
    if (rank.rank() == 1) {
      recording.Abort("the program gives up");
      return absl::OkStatus();
    }
    // Told of with the failure, or refused with it.
    const absl::Status submitted = rank.Reduce(0);
    if (!submitted.ok()) return submitted;
    const std::vector<Completion> taken = completions.Take(rank, 1);
    EXPECT_EQ(taken.size(), 1u);
    if (taken.empty()) return absl::OkStatus();
    EXPECT_EQ(taken[0].user, rank.ar(0));
    EXPECT_EQ(taken[0].request, 13u);
    EXPECT_EQ(taken[0].code, absl::StatusCode::kAborted);
    EXPECT_THAT(recording.status(),
                StatusIs(absl::StatusCode::kAborted, "the program gives up"));
    return absl::OkStatus();
  });
}

// What waits for other submissions when the recording goes.
TEST(RecordingCompletionsTest, WhatIsOpenIsAbortedWithTheRecording) {
  const TestCompletions completions(2);
  ModulesSpec of;
  of.ranks = 2;
  of.coalesce_bytes = 1 << 20;
  const ModulesSpec spec = completions.Into(of);
  std::vector<std::vector<Completion>> taken(2);
  std::atomic<bool> has_ended = false;  // Rank 1 its steps,
  std::atomic<bool> is_gone = false;    // and rank 0 altogether.
  WorldSpec world_spec;
  world_spec.size = spec.ranks;
  const std::shared_ptr<World> world = World::Create(world_spec).value();
  std::vector<std::atomic<uint64_t>> instances(2);
  ExpectAllOk(RunRanks(2, [&](int r) -> absl::Status {
    ASSIGN_OR_RETURN(std::unique_ptr<ModulesRank> rank,
                     ModulesRank::Create(spec, world, &instances[r], r));
    for (int t = 0; t < 3; ++t) {
      RETURN_IF_ERROR(rank->Step({0, 1, 2, 3}, t));
      completions.Take(*rank, 4);
    }
    Completions& mine = completions.of(*rank);
    if (r == 1) {
      has_ended = true;
      EXPECT_TRUE(test::Await([&] { return is_gone.load(); }));
    } else {
      RETURN_IF_ERROR(rank->recording().StepBegin());
      RETURN_IF_ERROR(rank->Backward(0, 3));
      RETURN_IF_ERROR(rank->Reduce(0));
      EXPECT_TRUE(test::Await([&] { return has_ended.load(); }));
    }
    rank.reset();
    is_gone = true;
    Completion out[4];
    const size_t count = mine.Next(absl::MakeSpan(out), 0);
    taken[r].assign(out, out + count);
    return absl::OkStatus();
  }));
  ASSERT_EQ(taken[0].size(), 1u);
  EXPECT_EQ(taken[0][0].request, 13u);
  EXPECT_EQ(taken[0][0].code, absl::StatusCode::kAborted);
  EXPECT_EQ(taken[1].size(), 0u);
}

TEST(RecordingCompletionsTest, WhoDrivesIsToldOfWhatFinishesMeanwhile) {
  const TestCompletions completions(3);
  ModulesSpec of;
  of.adjust = [](RecordingSpec* recording) { recording->by_caller = true; };
  const ModulesSpec spec = completions.Into(of);
  ExpectAllOk(RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
    Recording& recording = rank.recording();
    for (int t = 0; t < 6; ++t) {
      RETURN_IF_ERROR(recording.StepBegin());
      for (int m = 0; m < 4; ++m) {
        RETURN_IF_ERROR(rank.Backward(m, t));
        RETURN_IF_ERROR(rank.Reduce(m));
        RETURN_IF_ERROR(recording.Wait(rank.ar(m), kPatienceNs));
        EXPECT_EQ(TimesTold(rank, 4, completions.Take(rank, 0)),
                  (std::map<int, int>{{m, 1}}));
      }
      for (int m = 0; m < 4; ++m) RETURN_IF_ERROR(rank.Optimize(m));
      RETURN_IF_ERROR(recording.StepEnd());
    }
    return recording.Drain();
  }));
}

TEST(RecordingCompletionsTest, AStepThatIsToldOfAllocatesNothing) {
  const TestCompletions completions(2);
  ModulesSpec of;
  of.ranks = 2;
  const ModulesSpec spec = completions.Into(of);
  test::Surprises begin, end;
  ExpectAllOk(RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
    const std::vector<int> order = {0, 1, 2, 3};
    int t = 0;
    const auto run = [&](int steps) -> absl::Status {
      for (const int last = t + steps; t < last; ++t) {
        RETURN_IF_ERROR(rank.Step(order, t));
        Completion out[4];
        size_t count = 0;
        while (count < 4) {
          count += completions.of(rank).Next(absl::MakeSpan(out).subspan(count),
                                             kNoDeadlineNs);
        }
      }
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(run(10));
    if (rank.rank() == 0) begin = test::Surprises();
    RETURN_IF_ERROR(run(100));
    if (rank.rank() == 0) end = test::Surprises();
    RETURN_IF_ERROR(run(10));
    return rank.recording().Drain();
  }));
  EXPECT_EQ(end.allocations - begin.allocations, 0u);
}

// ---- Beside channels, on every backend of the host --------------------------

class RecordingServiceTest : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Backends, RecordingServiceTest,
                         testing::ValuesIn(test::Backends()),
                         [](const auto& info) { return info.param; });

// Three recordings and a channel of a rank, of which a thread is told.
TEST_P(RecordingServiceTest, OneThreadServesRecordingsAndChannels) {
  constexpr int kRanks = 3;
  constexpr uint64_t kRecordings = 3;
  constexpr int kSteps = 10;
  constexpr uint64_t kOfChannel = 9;
  ChannelRig rig(GetParam(), kRanks);
  std::vector<std::atomic<uint64_t>> instances(kRanks);
  EXPECT_OK(RunAllRanks(kRanks, [&](int rank) -> absl::Status {
    const auto completions = std::make_shared<Completions>(1024);
    ChannelSpec of_channel = rig.Spec(rank);
    of_channel.completions = completions;
    of_channel.key = kOfChannel;
    ASSIGN_OR_RETURN(std::unique_ptr<Channel> channel,
                     Channel::Create(std::move(of_channel)));
    std::vector<std::unique_ptr<ModulesRank>> made;
    for (uint64_t key = 0; key < kRecordings; ++key) {
      ModulesSpec spec;
      spec.ranks = kRanks;
      spec.adjust = [&](RecordingSpec* recording) {
        recording->completions = completions;
        recording->key = key;
      };
      ASSIGN_OR_RETURN(
          made.emplace_back(),
          ModulesRank::Create(spec, rig.WorldOf(rank), &instances[rank], rank));
    }
    const size_t expected = kSteps * (4 * kRecordings + 1);
    std::map<uint64_t, std::vector<uint64_t>> told;  // requests by key
    std::thread server([&] {
      for (size_t num = 0; num < expected;) {
        Completion out[16];
        const size_t count = completions->Next(
            absl::MakeSpan(out), SystemClock::Get().NowNs() + kPatienceNs);
        if (count == 0) return;
        for (size_t i = 0; i < count; ++i) {
          EXPECT_EQ(out[i].code, absl::StatusCode::kOk);
          told[out[i].key].push_back(out[i].request);
        }
        num += count;
      }
    });
    absl::Status ran;
    float sum = 0;
    for (int t = 0; t < kSteps && ran.ok(); ++t) {
      for (const auto& each : made) ran.Update(each->Step({3, 2, 1, 0}, t));
      sum = 1;
      ran.Update(test::RunOp(*channel,
                             test::OpOf(COMMSCHED_ALL_REDUCE, &sum, &sum, 1)));
      EXPECT_EQ(sum, kRanks);
    }
    for (const auto& each : made) ran.Update(each->recording().Drain());
    server.join();
    EXPECT_EQ(told[kOfChannel].size(), static_cast<size_t>(kSteps));
    for (uint64_t key = 0; key < kRecordings; ++key) {
      std::sort(told[key].begin(), told[key].end());
      EXPECT_EQ(told[key].size(), static_cast<size_t>(4 * kSteps));
      for (size_t i = 0; i < told[key].size(); ++i) {
        EXPECT_EQ(told[key][i], i + 1);
      }
    }
    return ran;
  }));
}

}  // namespace
}  // namespace commsched
