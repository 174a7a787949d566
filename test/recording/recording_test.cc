#include "recording/recording.h"

#include <atomic>
#include <latch>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "test/recording/recording_rig.h"
#include "test/support/property.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::ExpectAllOk;
using test::ModulesRank;
using test::ModulesReference;
using test::ModulesSpec;
using test::RunModules;

absl::Status Same(const ModulesRank& rank, const ModulesReference& reference,
                  int modules) {
  for (int m = 0; m < modules; ++m) {
    const auto& weight = reference.weight(rank.rank(), m);
    const auto& grad = reference.grad(rank.rank(), m);
    if (rank.weight(m) == weight && rank.grad(m) == grad) continue;
    return absl::InternalError(absl::StrCat(
        "module ", m, ": weight ", rank.weight(m)[0], ", expected ", weight[0],
        "; grad ", rank.grad(m)[0], ", expected ", grad[0]));
  }
  return absl::OkStatus();
}

// Runs `steps` steps in which rank r takes part in module m of step t as
// `takes(t, r, m)` says, in order of modules, and compares at the end.
using Takes = ModulesReference::Takes;
void RunAndCompare(
    const ModulesSpec& spec, int steps,
    const std::function<Takes(int, int, int)>& takes,
    const std::function<absl::Status(Recording&, int)>& check =
        [](Recording&, int) { return absl::OkStatus(); }) {
  ModulesReference reference(spec);
  for (int t = 0; t < steps; ++t) {
    for (int m = 0; m < spec.modules; ++m) {
      std::vector<Takes> of_rank;
      for (int r = 0; r < spec.ranks; ++r) of_rank.push_back(takes(t, r, m));
      reference.Step(m, t, of_rank);
    }
  }
  ExpectAllOk(RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
    Recording& recording = rank.recording();
    for (int t = 0; t < steps; ++t) {
      RETURN_IF_ERROR(recording.StepBegin());
      for (int m = 0; m < spec.modules; ++m) {
        const Takes now = takes(t, rank.rank(), m);
        if (now.backward) RETURN_IF_ERROR(rank.Backward(m, t));
        if (now.reduce) RETURN_IF_ERROR(rank.Reduce(m));
      }
      for (int m = 0; m < spec.modules; ++m) {
        const Takes now = takes(t, rank.rank(), m);
        if (now.optimize) RETURN_IF_ERROR(rank.Optimize(m));
      }
      RETURN_IF_ERROR(recording.StepEnd());
      RETURN_IF_ERROR(check(recording, t));
    }
    RETURN_IF_ERROR(recording.Drain());
    return Same(rank, reference, spec.modules);
  }));
}

Takes All(int, int, int) { return {}; }
constexpr Takes kNothing = {false, false, false};

TEST(RecordingTest, EqualStepsAreFrozenAndReplayed) {
  RunAndCompare({}, 10, All, [](Recording& recording, int t) -> absl::Status {
    const RecordingInfo info = recording.info();
    EXPECT_EQ(info.phase,
              t < 1 ? RecordingPhase::kRecording : RecordingPhase::kFrozen);
    EXPECT_EQ(info.plans, t < 1 ? 0u : 1u);
    EXPECT_EQ(info.steps_deviating, 0u);
    return absl::OkStatus();
  });
}

TEST(RecordingTest, PlansCoalesceAndPartitionLikeExplicitOnes) {
  ModulesSpec spec;
  spec.coalesce_bytes = 1 << 20;
  RunAndCompare(spec, 6, All);
  spec.coalesce_bytes = 0;
  spec.count = 1000;
  spec.partition_bytes = 1024;
  RunAndCompare(spec, 6, All);
}

// Each module's reduction is submitted after the next one's backward, or, of
// one module in each step, inside it.
TEST(RecordingTest, ASubmitInsideAnOpIsNoDeviation) {
  for (const uint64_t coalesce_bytes : {0, 40, 1 << 20}) {
    ModulesSpec spec;
    spec.coalesce_bytes = coalesce_bytes;
    constexpr int kSteps = 16;
    ModulesReference reference(spec);
    for (int t = 0; t < kSteps; ++t) {
      for (int m = 0; m < spec.modules; ++m) {
        reference.Step(m, t, std::vector<Takes>(spec.ranks));
      }
    }
    ExpectAllOk(RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
      Recording& recording = rank.recording();
      for (int t = 0; t < kSteps; ++t) {
        RETURN_IF_ERROR(recording.StepBegin());
        RETURN_IF_ERROR(rank.Backward(0, t));
        for (int m = 1; m < spec.modules; ++m) {
          const auto reduce = [&] { return rank.Reduce(m - 1); };
          if (m == t % (spec.modules + 1)) {
            RETURN_IF_ERROR(rank.Backward(m, t, reduce));
          } else {
            RETURN_IF_ERROR(rank.Backward(m, t));
            RETURN_IF_ERROR(reduce());
          }
        }
        RETURN_IF_ERROR(rank.Reduce(spec.modules - 1));
        for (int m = 0; m < spec.modules; ++m) {
          RETURN_IF_ERROR(rank.Optimize(m));
        }
        RETURN_IF_ERROR(recording.StepEnd());
      }
      EXPECT_EQ(recording.info().steps_deviating, 0u);
      EXPECT_EQ(recording.info().plans, 1u);
      RETURN_IF_ERROR(recording.Drain());
      return Same(rank, reference, spec.modules);
    }));
  }
}

TEST(RecordingTest, ABranchTakenOnOneRankOnlyLeavesTheOthersMemoryAlone) {
  RunAndCompare({}, 14, [](int t, int rank, int m) -> Takes {
    if (t >= 4 && rank != 1 && m == 2) return kNothing;
    return {};
  });
}

TEST(RecordingTest, ABranchThatNoRankTakesAnyMoreIsDropped) {
  RunAndCompare(
      {}, 14,
      [](int t, int, int m) -> Takes {
        if (t >= 4 && m == 2) return kNothing;
        return {};
      },
      [](Recording& recording, int t) {
        if (t == 13) {
          EXPECT_EQ(recording.info().plans, 2u);
          // Launches of three modules and of the deviation flag.
          EXPECT_EQ(recording.plan()->launches.size(), 4u);
          EXPECT_LT(recording.info().steps_deviating, 6u);
        }
        return absl::OkStatus();
      });
}

TEST(RecordingTest, ABranchOnAlternatingStepsIsRecordedOnce) {
  RunAndCompare(
      {}, 20,
      [](int t, int, int m) -> Takes {
        if (t >= 2 && t % 2 == 1 && m == 1) return kNothing;
        return {};
      },
      [](Recording& recording, int t) {
        if (t == 19) {
          EXPECT_EQ(recording.info().plans, 1u);
          EXPECT_EQ(recording.info().rerecordings, 1u);
          EXPECT_EQ(recording.info().phase, RecordingPhase::kFrozen);
        }
        return absl::OkStatus();
      });
}

TEST(RecordingTest, ABranchOnAlternatingStepsFromTheStartIsFrozenAtTheLimit) {
  ModulesSpec spec;
  spec.max_recorded_steps = 5;
  RunAndCompare(
      spec, 12,
      [](int t, int, int m) -> Takes {
        return t % 2 == 1 && m == 1 ? kNothing : Takes{};
      },
      [](Recording& recording, int t) {
        EXPECT_EQ(recording.info().plans, t < 4 ? 0u : 1u);
        return absl::OkStatus();
      });
}

TEST(RecordingTest, AParameterNeverUsedIsNotPlanned) {
  RunAndCompare(
      {}, 8,
      [](int, int, int m) -> Takes { return m == 3 ? kNothing : Takes{}; },
      [](Recording& recording, int t) {
        if (t == 7) {
          EXPECT_EQ(recording.plan()->launches.size(), 4u);
          EXPECT_EQ(recording.info().steps_deviating, 0u);
        }
        return absl::OkStatus();
      });
}

TEST(RecordingTest, ASkippedOpsCollectiveThatIsSubmittedSendsWhatMemoryHolds) {
  RunAndCompare({}, 12, [](int t, int rank, int m) -> Takes {
    if (t >= 3 && rank == 0 && m == 1) return {false, true, true};
    return {};
  });
}

TEST(RecordingTest, SegmentsAreRecordedOneByOne) {
  ModulesSpec spec;
  spec.segments = 2;
  RunAndCompare(
      spec, 14,
      [](int t, int, int m) -> Takes {
        return t >= 4 && m == 1 ? kNothing : Takes{};
      },
      [](Recording& recording, int t) {
        if (t >= 4 && recording.info().phase == RecordingPhase::kRerecording) {
          EXPECT_EQ(recording.info().segment, 1u);
        }
        return absl::OkStatus();
      });
}

// Order of modules of each step and rank; compares with the reference.
void RunOrders(const ModulesSpec& spec, int steps,
               const std::function<std::vector<int>(int, int)>& order,
               const std::function<void(Recording&)>& at_end) {
  ModulesReference reference(spec);
  for (int t = 0; t < steps; ++t) {
    for (int m = 0; m < spec.modules; ++m) {
      reference.Step(m, t, std::vector<Takes>(spec.ranks));
    }
  }
  ExpectAllOk(RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
    for (int t = 0; t < steps; ++t) {
      RETURN_IF_ERROR(rank.Step(order(t, rank.rank()), t));
    }
    RETURN_IF_ERROR(rank.recording().Drain());
    at_end(rank.recording());
    return Same(rank, reference, spec.modules);
  }));
}

TEST(RecordingTest, ModulesInAnotherOrderOnAllRanksArePlannedInThatOrder) {
  RunOrders(
      {}, 12,
      [](int t, int) {
        return t < 4 ? std::vector<int>{0, 1, 2, 3}
                     : std::vector<int>{3, 1, 0, 2};
      },
      [](Recording& recording) {
        EXPECT_EQ(recording.info().plans, 2u);
        const Plan& plan = *recording.plan();
        EXPECT_EQ(plan.graph->op(plan.nodes.front().op).name, "bwd.3");
      });
}

TEST(RecordingTest, ModulesInAnotherOrderOnOneRankDoNotThrash) {
  RunOrders(
      {}, 20,
      [](int t, int rank) {
        return t < 4 || rank != 2 ? std::vector<int>{0, 1, 2, 3}
                                  : std::vector<int>{2, 1, 0, 3};
      },
      [](Recording& recording) {
        EXPECT_EQ(recording.info().plans, 1u);
        EXPECT_EQ(recording.info().rerecordings, 1u);
      });
}

TEST(RecordingTest, AParameterUsedTwiceIsTwoCalls) {
  ModulesSpec spec;
  ModulesReference reference(spec);
  for (int t = 0; t < 8; ++t) {
    for (int m = 0; m < spec.modules; ++m) {
      reference.Step(m, t, std::vector<Takes>(spec.ranks, {true, true, false}));
      if (m == 1) {
        reference.Step(m, t,
                       std::vector<Takes>(spec.ranks, {true, true, false}));
      }
      reference.Step(m, t,
                     std::vector<Takes>(spec.ranks, {false, false, true}));
    }
  }
  ExpectAllOk(RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
    Recording& recording = rank.recording();
    for (int t = 0; t < 8; ++t) {
      RETURN_IF_ERROR(recording.StepBegin());
      for (int m = 0; m < spec.modules; ++m) {
        for (int use = 0; use < (m == 1 ? 2 : 1); ++use) {
          RETURN_IF_ERROR(rank.Backward(m, t));
          RETURN_IF_ERROR(rank.Reduce(m));
        }
      }
      for (int m = 0; m < spec.modules; ++m) RETURN_IF_ERROR(rank.Optimize(m));
      RETURN_IF_ERROR(recording.StepEnd());
    }
    RETURN_IF_ERROR(recording.Drain());
    EXPECT_OK(recording.plan()->graph->FindOp("bwd.1#2"));
    EXPECT_EQ(recording.info().steps_deviating, 0u);
    return Same(rank, reference, spec.modules);
  }));
}

TEST(RecordingTest, AnExtraCollectiveIsAnErrorThatNamesItUntilRecorded) {
  ExpectAllOk(RunModules({}, [&](ModulesRank& rank) -> absl::Status {
    for (int t = 0; t < 4; ++t) {
      RETURN_IF_ERROR(rank.Step({0, 1, 2}, t));
    }
    int refused = 0;
    for (int t = 4; t < 10; ++t) {
      RETURN_IF_ERROR(rank.recording().StepBegin());
      for (int m : {0, 1, 2}) {
        RETURN_IF_ERROR(rank.Backward(m, t));
        RETURN_IF_ERROR(rank.Reduce(m));
      }
      const absl::Status extra = rank.Reduce(3);
      if (!extra.ok()) {
        ++refused;
        EXPECT_THAT(extra,
                    StatusIs(absl::StatusCode::kFailedPrecondition,
                             "collective 'ar.3' was submitted once in step"));
      }
      for (int m : {0, 1, 2}) RETURN_IF_ERROR(rank.Optimize(m));
      RETURN_IF_ERROR(rank.recording().StepEnd());
    }
    // Seen in step 4, agreed at the end of step 5, recorded in 6 and 7.
    EXPECT_EQ(refused, 4);
    return rank.recording().Drain();
  }));
}

TEST(RecordingTest, AnAlternativeIsPlannedThoughNobodyHasSubmittedIt) {
  ModulesSpec spec;
  spec.alternative = true;
  RunAndCompare(spec, 12, [](int t, int rank, int m) -> Takes {
    if (m != 3) return {};
    return t >= 4 && (t + rank) % 3 == 0 ? Takes{} : kNothing;
  });
}

TEST(RecordingTest, AnOpThatWasNeverRecordedRunsAlone) {
  RunAndCompare({}, 12, [](int t, int rank, int m) -> Takes {
    if (m != 3) return {};
    return t >= 4 && rank == 1 ? Takes{true, false, true} : kNothing;
  });
}

TEST(RecordingTest, RanksThatRecordDifferentOrdersAreNamedAtTheLimit) {
  ModulesSpec spec;
  spec.ranks = 2;
  spec.max_recorded_steps = 3;
  const std::vector<absl::Status> statuses =
      RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
        for (int t = 0; t < 4; ++t) {
          RETURN_IF_ERROR(rank.recording().StepBegin());
          const int first = rank.rank() == 0 ? 0 : 1;
          RETURN_IF_ERROR(rank.Backward(first, t));
          RETURN_IF_ERROR(rank.Backward(1 - first, t));
          RETURN_IF_ERROR(rank.recording().StepEnd());
        }
        return absl::OkStatus();
      });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 "at call 0 of the last 2. step recorded: "
                                 "rank 0 called 'bwd.0', rank 1 called "
                                 "'bwd.1'"));
  }
}

TEST(RecordingTest, RanksThatSubmitDifferentThingsWhileRecordingAreNamed) {
  ModulesSpec spec;
  spec.ranks = 2;
  const std::vector<absl::Status> statuses =
      RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
        RETURN_IF_ERROR(rank.recording().StepBegin());
        return rank.Reduce(rank.rank());
      });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 "'ar.1' of step 0"));
  }
}

TEST(RecordingTest, AnAbortEndsARecordingOnEveryRank) {
  ModulesSpec spec;
  spec.ranks = 2;
  for (const int steps : {0, 4}) {
    const std::vector<absl::Status> statuses =
        RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
          int t = 0;
          for (; t < steps; ++t) RETURN_IF_ERROR(rank.Step({0, 1}, t));
          RETURN_IF_ERROR(rank.recording().StepBegin());
          if (rank.rank() == 1) {
            rank.recording().Abort("enough");
            return rank.recording().status();
          }
          RETURN_IF_ERROR(rank.Backward(0, t));
          RETURN_IF_ERROR(rank.Reduce(0));
          return rank.Optimize(0);
        });
    for (const absl::Status& status : statuses) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, "enough"));
    }
  }
}

// The plan is made, its session not yet there; rank 1 stays, and does nothing.
TEST(RecordingTest, AnAbortWhileAStepIsFrozenReachesEveryRank) {
  std::atomic<Recording*> aborted = nullptr;
  std::latch over(1);
  ModulesSpec spec;
  spec.ranks = 2;
  spec.on_take_instance = [&](int rank) {
    if (rank == 1 && aborted != nullptr) aborted.load()->Abort("enough");
  };
  const std::vector<absl::Status> statuses =
      RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
        RETURN_IF_ERROR(rank.Step({0, 1}, 0));
        if (rank.rank() == 1) {
          aborted = &rank.recording();
          const absl::Status step = rank.Step({0, 1}, 1);
          over.wait();
          return step;
        }
        absl::Status status;
        for (int t = 1; t < 9 && status.ok(); ++t) {
          status = rank.Step({0, 1}, t);
        }
        over.count_down();
        return status;
      });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, "enough"));
  }
}

// Each step, each rank leaves out what it likes and takes modules in any order.
TEST(RecordingPropertyTest, AnyDeviationGivesWhatSequentialRanksGet) {
  const int cases = test::PropertyCases(60);
  for (int k = 0; k < cases; ++k) {
    const uint64_t seed = test::PropertySeed() + k;
    SCOPED_TRACE(test::DescribeSeed(seed));
    std::mt19937_64 random(seed);
    ModulesSpec spec;
    spec.ranks = 2 + static_cast<int>(random() % 3);
    spec.modules = 2 + static_cast<int>(random() % 5);
    spec.alternative = true;
    spec.segments = 1 + static_cast<uint32_t>(random() % 2);
    spec.coalesce_bytes = random() % 3 == 0 ? 0 : 64 << (random() % 8);
    if (random() % 4 == 0) spec.partition_bytes = 16;
    const int steps = 20;
    // [step][rank][module]
    std::vector<std::vector<std::vector<Takes>>> takes(steps);
    std::vector<std::vector<std::vector<int>>> orders(steps);
    const uint64_t rarely = 2 + random() % 6;
    std::vector<int> order(spec.modules);
    for (int m = 0; m < spec.modules; ++m) order[m] = m;
    ModulesReference reference(spec);
    for (int t = 0; t < steps; ++t) {
      for (int r = 0; r < spec.ranks; ++r) {
        std::vector<Takes> of_module(spec.modules);
        std::vector<int> mine = order;
        const bool deviates = t >= 2 && random() % rarely == 0;
        if (deviates) {
          for (Takes& each : of_module) {
            if (random() % 3 == 0) each.backward = false;
            if (random() % 3 == 0) each.reduce = false;
            if (random() % 3 == 0) each.optimize = false;
          }
          if (random() % 2 == 0) std::shuffle(mine.begin(), mine.end(), random);
        }
        takes[t].push_back(of_module);
        orders[t].push_back(mine);
      }
      for (int m = 0; m < spec.modules; ++m) {
        std::vector<Takes> of_rank;
        for (int r = 0; r < spec.ranks; ++r) of_rank.push_back(takes[t][r][m]);
        reference.Step(m, t, of_rank);
      }
    }
    const auto statuses =
        RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
          Recording& recording = rank.recording();
          for (int t = 0; t < steps; ++t) {
            const std::vector<Takes>& now = takes[t][rank.rank()];
            RETURN_IF_ERROR(recording.StepBegin());
            for (int m : orders[t][rank.rank()]) {
              if (now[m].backward) RETURN_IF_ERROR(rank.Backward(m, t));
              if (now[m].reduce) RETURN_IF_ERROR(rank.Reduce(m));
            }
            for (int m : orders[t][rank.rank()]) {
              if (now[m].optimize) RETURN_IF_ERROR(rank.Optimize(m));
            }
            RETURN_IF_ERROR(recording.StepEnd());
          }
          RETURN_IF_ERROR(recording.Drain());
          return Same(rank, reference, spec.modules);
        });
    ExpectAllOk(statuses);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace commsched
