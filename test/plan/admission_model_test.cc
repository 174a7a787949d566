// The admission rule in every interleaving, and ways to break it
// (docs/model.md).
#include "test/support/admission_model.h"

#include <algorithm>
#include <iostream>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/planner.h"
#include "test/plan/plan_test_support.h"
#include "test/support/pipeline.h"
#include "test/support/property.h"

namespace commsched {
namespace {

using test::Explore;
using test::ModelJob;
using test::ModelLaunch;
using test::ModelRank;
using test::ModelResult;
using ::testing::HasSubstr;

constexpr int kRanks = 3;

// One event after the other, each on the ranks of a bit mask, which is also its
// communicator. Each rank makes its input, and may use its output right away or
// after the next input.
struct Shape {
  enum class Use { kNever, kAtOnce, kLater };
  std::vector<int> members;
  std::vector<Use> use;
  int lanes = 1;
  int slots = 0;  // memory that launches fill in turn; 0: each has its own
};

ModelRank RankOf(const Shape& shape, int rank) {
  ModelRank result;
  int pending = -1;  // launch to be used after the next input
  auto use = [&](int launch) {
    result.launches[static_cast<size_t>(launch)].emptied_by =
        static_cast<int>(result.calls.size());
    result.calls.push_back({{launch}});
  };
  for (size_t e = 0; e < shape.members.size(); ++e) {
    if ((shape.members[e] >> rank & 1) == 0) continue;
    const int k = static_cast<int>(result.launches.size());
    ModelLaunch launch;
    launch.events = {static_cast<int>(e)};
    launch.lane = shape.members[e] % shape.lanes;
    launch.communicator = shape.members[e];
    launch.bytes = 1 + e % 3;
    launch.calls = {static_cast<int>(result.calls.size())};
    result.calls.push_back({});
    if (shape.slots != 0) {
      launch.slot = k % shape.slots;
      // Whoever had the slot has been used.
      if (k >= shape.slots) {
        launch.calls.push_back(
            result.launches[static_cast<size_t>(k - shape.slots)].emptied_by);
      }
    }
    result.launches.push_back(launch);
    if (pending >= 0) use(pending);
    pending = -1;
    if (shape.use[e] == Shape::Use::kAtOnce) use(k);
    if (shape.use[e] == Shape::Use::kLater) pending = k;
  }
  if (pending >= 0) use(pending);
  return result;
}

ModelJob JobOf(const Shape& shape, int max_launches, uint64_t max_bytes) {
  ModelJob job;
  for (int rank = 0; rank < kRanks; ++rank) {
    job.ranks.push_back(RankOf(shape, rank));
  }
  job.max_launches = max_launches;
  job.max_bytes = max_bytes;
  return job;
}

constexpr int kSubsets[] = {0b011, 0b101, 0b110, 0b111};

int NumCommunicators(const std::vector<int>& members) {
  int count = 0;
  for (int subset : kSubsets) {
    count += std::find(members.begin(), members.end(), subset) != members.end();
  }
  return count;
}

// The digits of `number` to base 4 as communicators.
std::vector<int> Members(int number, int length) {
  std::vector<int> members;
  for (int i = 0; i < length; ++i, number /= 4) {
    members.push_back(kSubsets[number % 4]);
  }
  return members;
}

// One job in how many is explored: each, unless property tests are to try less.
uint64_t Stride() {
  return 100 / static_cast<uint64_t>(std::min(100, test::PropertyCases(100)));
}

struct Total {
  uint64_t jobs = 0;
  uint64_t states = 0;
};

void ExpectGood(const ModelJob& job, Total* total) {
  const ModelResult result = Explore(job);
  ASSERT_TRUE(result.ok()) << result.Text();
  ++total->jobs;
  total->states += result.states;
}

TEST(AdmissionModelTest, EveryShortJobOfThreeRanksEndsWithinItsCaps) {
  Total total;
  uint64_t job = 0;
  for (int number = 0; number < 64; ++number) {
    for (int uses = 0; uses < 8; ++uses) {
      Shape shape;
      shape.members = Members(number, 3);
      for (int e = 0; e < 3; ++e) {
        shape.use.push_back((uses >> e & 1) != 0 ? Shape::Use::kAtOnce
                                                 : Shape::Use::kNever);
      }
      for (int lanes : {1, 2}) {
        shape.lanes = lanes;
        for (int window : {1, 2, 3}) {
          for (uint64_t bytes : {0, 1, 4}) {
            if (job++ % Stride() != 0) continue;
            ExpectGood(JobOf(shape, window, bytes), &total);
            ASSERT_FALSE(HasFatalFailure());
          }
        }
      }
    }
  }
  std::cout << total.jobs << " jobs, " << total.states << " states\n";
}

TEST(AdmissionModelTest, LongerJobsOfThreeCommunicatorsEndWithinTheirCaps) {
  Total total;
  std::mt19937_64 random(1);
  const auto jobs = static_cast<uint64_t>(test::PropertyCases(1000));
  while (total.jobs < jobs) {
    Shape shape;
    shape.members = Members(static_cast<int>(random() % 1024), 5);
    if (NumCommunicators(shape.members) > 3) continue;
    for (int e = 0; e < 5; ++e) {
      shape.use.push_back(static_cast<Shape::Use>(random() % 3));
    }
    shape.lanes = 1 + static_cast<int>(random() % 3);
    ExpectGood(JobOf(shape, 1 + static_cast<int>(random() % 3), random() % 5),
               &total);
    ASSERT_FALSE(HasFatalFailure());
  }
  std::cout << total.jobs << " jobs, " << total.states << " states\n";
}

TEST(AdmissionModelTest, SlotsAreHandedOverEmpty) {
  Total total;
  uint64_t job = 0;
  for (int number = 0; number < 256; ++number) {
    Shape shape;
    shape.members = Members(number, 4);
    if (NumCommunicators(shape.members) > 3) continue;
    for (int slots : {1, 2}) {
      shape.slots = slots;
      // One slot must be empty before the next input is made.
      shape.use.assign(4,
                       slots == 1 ? Shape::Use::kAtOnce : Shape::Use::kLater);
      for (int window : {1, 3}) {
        if (job++ % Stride() != 0) continue;
        ExpectGood(JobOf(shape, window, 0), &total);
        ASSERT_FALSE(HasFatalFailure());
      }
    }
  }
  std::cout << total.jobs << " jobs, " << total.states << " states\n";
}

// Real plans: the window is what their waits make of it.
TEST(AdmissionModelTest, PlansOfPipelinesEndWithinTheirCaps) {
  Total total;
  for (int stages : {2, 3}) {
    for (int micro_batches : {2, 3}) {
      for (bool interleave : {false, true}) {
        for (uint32_t window : {1u, 2u, 3u}) {
          const auto graphs =
              test::MakePipeline({.stages = stages,
                                  .micro_batches = micro_batches,
                                  .one_forward_one_backward = interleave});
          const auto roles = test::RolesOf(graphs);
          PlanOptions options;
          options.max_launches_in_flight = window;
          const auto plans = BuildPlans(roles, options);
          ASSERT_OK(plans);
          const auto meetings = FindMeetings(roles);
          ASSERT_OK(meetings);
          ExpectGood(test::ModelOf(*plans, *meetings, /*num_steps=*/2), &total);
          ASSERT_FALSE(HasFatalFailure());
        }
      }
    }
  }
  std::cout << total.jobs << " jobs, " << total.states << " states\n";
}

// From here on: that the model can fail.

Shape TwoOnTwo() {
  return {.members = {0b011, 0b011},
          .use = {Shape::Use::kNever, Shape::Use::kNever}};
}

TEST(AdmissionModelTest, OvertakingDeadlocks) {
  ModelJob job = JobOf(TwoOnTwo(), 1, 0);
  ASSERT_TRUE(Explore(job).ok());
  job.may_overtake = true;
  EXPECT_THAT(Explore(job).disorder, HasSubstr("issues event"));
  // As if the order on a communicator did not count.
  for (ModelRank& rank : job.ranks) {
    for (ModelLaunch& launch : rank.launches) launch.communicator = -1;
  }
  EXPECT_THAT(Explore(job).deadlock, HasSubstr("stuck"));
}

TEST(AdmissionModelTest, KeysThatDifferBetweenRanksDeadlock) {
  ModelJob job = JobOf(TwoOnTwo(), 1, 0);
  std::swap(job.ranks[0].launches[0].events, job.ranks[0].launches[1].events);
  for (ModelLaunch& launch : job.ranks[0].launches) launch.communicator = -1;
  EXPECT_THAT(Explore(job).deadlock, HasSubstr("stuck"));
}

TEST(AdmissionModelTest, KeysThatDifferOnOneCommunicatorAreDisorder) {
  ModelJob job = JobOf(TwoOnTwo(), 2, 0);
  std::swap(job.ranks[0].launches[0].events, job.ranks[0].launches[1].events);
  EXPECT_THAT(Explore(job).disorder, HasSubstr("issues event"));
}

TEST(AdmissionModelTest, KeysThatDifferAcrossCommunicatorsDeadlock) {
  ModelJob job = JobOf({.members = {0b011, 0b111},
                        .use = {Shape::Use::kNever, Shape::Use::kNever}},
                       1, 0);
  ASSERT_TRUE(Explore(job).ok());
  std::swap(job.ranks[1].launches[0], job.ranks[1].launches[1]);
  EXPECT_THAT(Explore(job).deadlock, HasSubstr("stuck"));
}

TEST(AdmissionModelTest,
     ACallThatNeedsALaunchWhichALaterCallMakesDueDeadlocks) {
  ModelJob job = JobOf({.members = {0b011, 0b011},
                        .use = {Shape::Use::kAtOnce, Shape::Use::kNever}},
                       3, 0);
  ASSERT_TRUE(Explore(job).ok());
  job.ranks[0].launches[0].calls = {2};
  EXPECT_THAT(Explore(job).deadlock, HasSubstr("stuck"));
}

TEST(AdmissionModelTest, ALaunchAboveTheCapThatMayNotEnterAloneDeadlocks) {
  ModelJob job = JobOf(TwoOnTwo(), 0, 1);
  ASSERT_TRUE(Explore(job).ok());
  job.empty_admits = false;
  EXPECT_THAT(Explore(job).deadlock, HasSubstr("stuck"));
}

TEST(AdmissionModelTest, WithoutAdmissionTheCapIsPassed) {
  ModelJob job = JobOf(TwoOnTwo(), 1, 0);
  job.enforced = false;
  EXPECT_THAT(Explore(job).over_cap, HasSubstr("2 launches"));
  job = JobOf(TwoOnTwo(), 0, 2);
  job.enforced = false;
  EXPECT_THAT(Explore(job).over_cap, HasSubstr("of 3 bytes"));
}

TEST(AdmissionModelTest, ASlotThatIsTakenEarlyIsOverwritten) {
  Shape shape = TwoOnTwo();
  shape.use.assign(2, Shape::Use::kLater);
  shape.slots = 1;
  ModelJob job = JobOf(shape, 2, 0);
  for (ModelRank& rank : job.ranks) {
    for (ModelLaunch& launch : rank.launches) launch.calls.resize(1);
  }
  EXPECT_THAT(Explore(job).overwrite, HasSubstr("overwrites launch"));
}

// Rank 1 sends only what it has made of what it has received.
TEST(AdmissionModelTest, ATickThatWaitsForItsOwnResultDeadlocks) {
  ModelJob job;
  job.ranks.resize(2);
  job.ranks[0].launches = {{.events = {0, 1}}};
  job.ranks[0].calls = {{{0}}};
  job.ranks[1].calls = {{{0}}};
  job.ranks[1].launches = {{.events = {0}}, {.events = {1}, .calls = {0}}};
  ASSERT_TRUE(Explore(job).ok());  // apart on rank 1
  job.ranks[1].launches = {{.events = {0, 1}, .calls = {0}}};
  EXPECT_THAT(Explore(job).deadlock, HasSubstr("stuck"));
}

// A window as waits, one of which is gone.
TEST(AdmissionModelTest, AWindowEdgeThatIsGoneIsNoticed) {
  const auto graphs = test::MakePipeline({.stages = 2, .micro_batches = 2});
  const auto roles = test::RolesOf(graphs);
  PlanOptions options;
  options.max_launches_in_flight = 1;
  const auto plans = BuildPlans(roles, options);
  ASSERT_OK(plans);
  const auto meetings = FindMeetings(roles);
  ASSERT_OK(meetings);
  ModelJob job = test::ModelOf(*plans, *meetings, 1);
  ASSERT_TRUE(Explore(job).ok());
  job.ranks[0].launches[1].after.clear();
  EXPECT_THAT(Explore(job).over_cap, HasSubstr("rank 0 has 2 launches"));
}

}  // namespace
}  // namespace commsched
