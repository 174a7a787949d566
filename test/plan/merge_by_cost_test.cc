#include "plan/merge_by_cost.h"

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "graph/collective_shape.h"
#include "gtest/gtest.h"
#include "plan/explain/launch_reason_text.h"
#include "plan/planner.h"
#include "plan/policy.h"
#include "plan/predict/predict.h"
#include "plan/verify/verify.h"
#include "test/plan/plan_test_support.h"
#include "test/support/pipeline.h"
#include "test/support/property.h"
#include "test/support/random_job.h"
#include "test/support/random_step.h"

namespace commsched {
namespace {

using test::GraphBuilder;
using test::LaunchNames;
using test::MakePlan;
using test::Merging;
using test::OnLane;
using test::PlainLink;
using test::Read;
using test::Write;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

PlanOptions ByCost() { return Merging(kCoalesceAuto); }

// An all-reduce of b bytes between two ranks takes 1000 + b ns, and its launch
// 500.
CostProfile Link() {
  CostProfile profile = PlainLink();
  profile.link_latency_ns = 1000;
  profile.launch_ns = 500;
  return profile;
}

int64_t StepNs(const std::shared_ptr<const Plan>& plan) {
  const auto prediction = Predict(*plan, plan->profile);
  EXPECT_OK(prediction);
  return prediction.ok() ? prediction->step_ns : 0;
}

// Two sums of 64 floats, of which `between` makes the second after the first,
// and an op that needs both.
Graph TwoSums(const ComputeSpec& between) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId x = b.Buffer("x", 64);
  const BufferId y = b.Buffer("y", 64);
  b.Compute("make_x", {Write(x)}, OnLane(0, 1000));
  b.AllReduce("sum_x", dp, x);
  b.Compute("make_y", {Write(y)}, between);
  b.AllReduce("sum_y", dp, y);
  b.Compute("use", {Read(x), Read(y)}, OnLane(0, 1000));
  return b.graph();
}

Graph TwoSums(int64_t apart_ns) { return TwoSums(OnLane(0, apart_ns)); }

TEST(MergeByCostTest, WhatIsReadySoonIsWorthWaitingFor) {
  const Graph graph = TwoSums(10);
  const auto merged = MakePlan(graph, ByCost(), Link());
  EXPECT_THAT(LaunchNames(*merged), ElementsAre("sum_x+sum_y"));
  EXPECT_EQ(merged->merging.choice, MergeReport::Choice::kMerged);
  const auto apart = MakePlan(graph, {}, Link());
  EXPECT_THAT(LaunchNames(*apart), ElementsAre("sum_x", "sum_y"));
  // A list of two costs what it does.
  EXPECT_EQ(StepNs(apart) - StepNs(merged),
            merged->merging.apart_ns - merged->merging.merged_ns);
  EXPECT_LT(StepNs(merged), StepNs(apart));
}

TEST(MergeByCostTest, WhatIsReadyLateIsNot) {
  const auto plan = MakePlan(TwoSums(2000), ByCost(), Link());
  EXPECT_THAT(LaunchNames(*plan), ElementsAre("sum_x", "sum_y"));
  EXPECT_EQ(plan->merging.choice, MergeReport::Choice::kNothing);
  EXPECT_THAT(ReasonText(*plan, plan->launches[0]),
              HasSubstr("with 'sum_y' it would save too little: 0 ns of"));
}

TEST(MergeByCostTest, EachMergeSaysWhatItSaves) {
  const auto plan = MakePlan(TwoSums(10), ByCost(), Link());
  EXPECT_THAT(ReasonText(*plan, plan->launches[0]),
              HasSubstr("; merged: saves "));
  EXPECT_THAT(ReasonText(*plan, plan->launches[0]),
              HasSubstr("; ends: last in key order"));
}

// Sums that are all ready at once, each read by an op of its own, which takes
// `use_ns`.
Graph Chain(int sums, uint64_t count, int64_t use_ns) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  std::vector<BufferId> buffers;
  std::vector<Access> made;
  for (int i = 0; i < sums; ++i) {
    buffers.push_back(b.Buffer(absl::StrCat("x", i), count));
    made.push_back(Write(buffers.back()));
  }
  b.Compute("make", made, OnLane(0, 1000));
  for (int i = 0; i < sums; ++i) {
    b.AllReduce(absl::StrCat("sum", i), dp, buffers[i]);
  }
  for (int i = 0; i < sums; ++i) {
    b.Compute(absl::StrCat("use", i), {Read(buffers[i])}, OnLane(0, use_ns));
  }
  return b.graph();
}

// 2,500 floats take 10 us, and each op that reads them as long.
TEST(MergeByCostTest, AConsumerThatWaitsForTheFirstKeepsItApart) {
  const auto plan = MakePlan(Chain(4, 2500, 11'000), ByCost(), Link());
  EXPECT_EQ(LaunchNames(*plan).front(), "sum0");
}

// Each is on the link for a fifth of the time that its launch takes.
TEST(MergeByCostTest, WhatIsSetUpTogetherSavesALaunchLessTheCopies) {
  CostProfile link = Link();
  link.launch_ns = 5000;
  const auto plan = MakePlan(Chain(2, 250, 10), ByCost(), link);
  EXPECT_THAT(LaunchNames(*plan), ElementsAre("sum0+sum1"));
  EXPECT_THAT(ReasonText(*plan, plan->launches[0]),
              HasSubstr("saves 4200 ns and keeps nobody waiting"));
}

// It passes while the other one is under way.
TEST(MergeByCostTest, ALatencyIsNotSaved) {
  CostProfile link = Link();
  link.link_latency_ns = 100'000;
  EXPECT_EQ(MakePlan(Chain(2, 2500, 10), ByCost(), link)->launches.size(), 2u);
}

TEST(MergeByCostTest, OnALaneThatIsSerialItIs) {
  CostProfile link = Link();
  link.link_latency_ns = 5000;
  PlanOptions options = ByCost();
  options.backend.serial_lanes = true;
  const auto plan = MakePlan(Chain(2, 2500, 10), options, link);
  EXPECT_THAT(LaunchNames(*plan), ElementsAre("sum0+sum1"));
  EXPECT_THAT(ReasonText(*plan, plan->launches[0]),
              HasSubstr("saves 4000 ns and keeps nobody waiting"));
}

// The link is busy longer than a launch takes, so that only the processor
// gains.
TEST(MergeByCostTest, OnSharedCoresALaunchLessIsTimeToCompute) {
  CostProfile link = Link();
  link.launch_ns = 5000;
  link.num_ranks_sharing = 4;
  link.num_cores = 2;
  const auto merged = MakePlan(Chain(2, 2500, 10), ByCost(), link);
  EXPECT_EQ(merged->launches.size(), 1u);
  const auto apart = MakePlan(Chain(2, 2500, 10), {}, link);
  EXPECT_LT(StepNs(merged), StepNs(apart));
}

TEST(MergeByCostTest, SmallOnesThatAreReadyTogetherGoTogether) {
  const auto plan = MakePlan(Chain(8, 4, 10), ByCost(), Link());
  EXPECT_EQ(plan->launches.size(), 1u);
}

// A launch of which a merge saves 4 us, less what it arrives later.
CostProfile SlowLaunch() {
  CostProfile link = Link();
  link.launch_ns = 5000;
  return link;
}

// Sums of 10,000 floats, which take 40 us, and of `count`, of which
// `between_ns` makes the second ready after the first and after a gather of
// `gathered` floats. Nobody needs them soon.
Graph Leisurely(uint64_t count, int64_t between_ns, uint64_t gathered = 2) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId x = b.Buffer("x", 10'000);
  const BufferId y = b.Buffer("y", count);
  const BufferId z = b.Buffer("z", gathered);
  b.Compute("make_x", {Write(x), Write(z)}, OnLane(0, 1000));
  b.AllGather("gather", dp, z);
  b.AllReduce("sum_x", dp, x);
  b.Compute("make_y", {Write(y)}, OnLane(0, between_ns));
  b.AllReduce("sum_y", dp, y);
  b.Compute("work", {}, OnLane(0, 10'000'000));
  b.Compute("use", {Read(x), Read(y), Read(z)}, OnLane(0, 1000));
  return b.graph();
}

size_t LeisurelyLaunches(uint64_t count, int64_t between_ns,
                         uint64_t gathered = 2) {
  return MakePlan(Leisurely(count, between_ns, gathered), ByCost(),
                  SlowLaunch())
      ->launches.size();
}

// The merge saves 3 us, between 1 and 10 % of what the launch takes.
TEST(MergeByCostTest, WhatIsTinyJoinsForAHundredth) {
  const auto plan = MakePlan(Leisurely(500, 10), ByCost(), SlowLaunch());
  EXPECT_THAT(LaunchNames(*plan), ElementsAre("gather", "sum_x+sum_y"));
  EXPECT_EQ(LeisurelyLaunches(5000, 10), 3u);
}

// It saves 3 us.
TEST(MergeByCostTest, UnlessTwiceTheWaitIsMoreThanItSaves) {
  EXPECT_EQ(LeisurelyLaunches(500, 1000), 2u);
  EXPECT_EQ(LeisurelyLaunches(500, 2000), 3u);
}

// The link is busy for 2 ns per float that is gathered, and hides the wait.
TEST(MergeByCostTest, AndTheLinkIsNotBusyForTwiceAsLong) {
  EXPECT_EQ(LeisurelyLaunches(500, 15'000, 10'000), 3u);
  EXPECT_EQ(LeisurelyLaunches(500, 15'000, 20'000), 2u);
}

// A merged launch takes up to kLeastSavedShare times what the merge saves.
TEST(MergeByCostTest, LargeOnesHaveNothingToGain) {
  const auto plan = MakePlan(Chain(2, 16'384, 10), ByCost(), Link());
  EXPECT_EQ(plan->launches.size(), 2u);
  EXPECT_THAT(ReasonText(*plan, plan->launches[0]),
              HasSubstr("it would save too little: "));
}

TEST(MergeByCostTest, PartitionBytesIsALimitToo) {
  PlanOptions options = ByCost();
  options.partition_bytes = 2 * 16;
  const auto plan = MakePlan(Chain(4, 4, 10), options, Link());
  EXPECT_THAT(LaunchNames(*plan), ElementsAre("sum0+sum1", "sum2+sum3"));
}

// A launch of 128 bytes would make the window as large (I3).
TEST(MergeByCostTest, SoIsTheByteWindow) {
  PlanOptions options = ByCost();
  options.max_bytes_in_flight = 32;
  const auto plan = MakePlan(Chain(8, 4, 10), options, Link());
  EXPECT_THAT(LaunchNames(*plan),
              ElementsAre("sum0+sum1", "sum2+sum3", "sum4+sum5", "sum6+sum7"));
  EXPECT_THAT(ReasonText(*plan, plan->launches[0]),
              HasSubstr("with 'sum2' it would exceed 32 bytes"));
  options.max_bytes_in_flight = 8;
  EXPECT_EQ(MakePlan(Chain(8, 4, 10), options, Link())->launches.size(), 8u);
}

TEST(MergeByCostTest, NothingIsMergedAcrossAnOpWithoutACost) {
  const auto plan = MakePlan(TwoSums(0), ByCost(), Link());
  EXPECT_THAT(LaunchNames(*plan), ElementsAre("sum_x", "sum_y"));
  EXPECT_THAT(ReasonText(*plan, plan->launches[0]),
              HasSubstr("between it and 'sum_y' is an op whose cost is not "
                        "known"));
}

// They are due together, but what the first consumer hides nobody can tell.
TEST(MergeByCostTest, NorAcrossAConsumerWithoutACost) {
  EXPECT_EQ(MakePlan(Chain(3, 4, 0), ByCost(), Link())->launches.size(), 3u);
}

TEST(MergeByCostTest, AMeasuredCostOfNothingIsACost) {
  const Graph graph = TwoSums(0);
  CostProfile measured = Link();
  measured.op_cost_ns.assign(graph.ops().size(), 0);
  EXPECT_EQ(MakePlan(graph, ByCost(), measured)->launches.size(), 1u);
}

TEST(MergeByCostTest, SoIsAnEstimateThatRoundsToNothing) {
  ComputeSpec few;
  few.flops = 1;
  EXPECT_EQ(MakePlan(TwoSums(few), ByCost(), Link())->launches.size(), 1u);
}

// Whichever of the roles that share the sums has it.
TEST(MergeByCostTest, AnOpWithoutACostInOneRoleKeepsThemApartInAll) {
  const auto launches = [](int64_t first_ns, int64_t second_ns) {
    const std::vector<Graph> graphs = {TwoSums(first_ns), TwoSums(second_ns)};
    const auto plans = BuildPlans(test::RolesOf(graphs, Link()), ByCost());
    EXPECT_OK(plans);
    return plans.ok() ? (*plans)[1]->launches.size() : 0;
  };
  EXPECT_EQ(launches(10, 10), 1u);
  EXPECT_EQ(launches(0, 10), 2u);
  EXPECT_EQ(launches(10, 0), 2u);
}

TEST(MergeByCostTest, SeriallyOnlyWhatIsDueTogetherIsMerged) {
  PlanOptions options = ByCost();
  options.schedule = Schedule::kSerial;
  const auto apart = MakePlan(TwoSums(10), options, Link());
  EXPECT_EQ(apart->launches.size(), 2u);
  EXPECT_EQ(apart->merging.apart_ns, 0);  // Not predicted.
  EXPECT_EQ(MakePlan(Chain(4, 4, 0), options, Link())->launches.size(), 1u);
}

PlanOptions ByCostWithoutLists() {
  PlanOptions options = ByCost();
  options.backend.lists = false;
  return options;
}

// What is packed would need memory that there is not.
TEST(MergeByCostTest, WhereMergesDoNotFitTheArenaNothingIsMerged) {
  PlanOptions options = ByCostWithoutLists();
  const Graph graph = Chain(4, 4, 10);
  const auto free = MakePlan(graph, options, Link());
  ASSERT_EQ(free->launches.size(), 1u);
  ASSERT_EQ(free->launches[0].way, Way::kPack);
  options.arena_bytes = 1;
  const auto plan = MakePlan(graph, options, Link());
  EXPECT_EQ(plan->launches.size(), 4u);
  EXPECT_EQ(plan->merging.choice, MergeReport::Choice::kNoRoom);
  EXPECT_THAT(ReasonText(*plan, plan->launches[0]),
              HasSubstr("merged launches do not fit the arena"));
}

TEST(MergeByCostTest, WhatCouldNotBeMergedAnywaySaysWhy) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId x = b.Buffer("x", 4);
  const BufferId y = b.Buffer("y", 4);
  const BufferId z = b.Buffer("z", 4);
  b.Compute("make", {Write(x), Write(y), Write(z)}, OnLane(0, 1000));
  b.AllReduce("sum_x", dp, x);
  b.AllReduce("sum_y", dp, y);
  b.AllGather("gather_z", dp, z);
  b.Compute("use", {Read(x), Read(y), Read(z)}, OnLane(0, 1000));
  PlanOptions options = ByCostWithoutLists();
  options.arena_bytes = 1;
  const auto plan = MakePlan(b.graph(), options, Link());
  EXPECT_THAT(LaunchNames(*plan), ElementsAre("sum_x", "sum_y", "gather_z"));
  EXPECT_THAT(ReasonText(*plan, plan->launches[0]),
              HasSubstr("merged launches do not fit the arena"));
  EXPECT_THAT(ReasonText(*plan, plan->launches[1]),
              HasSubstr("'gather_z' is of another kind"));
}

// Staging memory for pairs.
TEST(MergeByCostTest, WhereTheArenaIsSmallLaunchesAre) {
  PlanOptions options = ByCostWithoutLists();
  const Graph graph = Chain(8, 64, 10);
  CostProfile link = Link();
  link.launch_ns = 5000;
  ASSERT_EQ(MakePlan(graph, options, link)->launches.size(), 1u);
  options.arena_bytes = 1024;
  const auto plan = MakePlan(graph, options, link);
  EXPECT_EQ(plan->launches.size(), 4u);
  EXPECT_EQ(plan->merging.choice, MergeReport::Choice::kMerged);
  EXPECT_LE(plan->arena_bytes, 1024u);
  EXPECT_THAT(ReasonText(*plan, plan->launches[0]), HasSubstr("512"));
}

// Pairs would fit here, too, but each try is a whole plan.
TEST(MergeByCostTest, OfLargeJobsNoLimitIsSought) {
  PlanOptions options = ByCostWithoutLists();
  options.arena_bytes = 1024;
  const Graph graph = Chain(kMaxOpsCompared / 2 + 1, 64, 10);
  const auto plan = MakePlan(graph, options, Link());
  EXPECT_EQ(plan->launches.size(), kMaxOpsCompared / 2 + 1);
  EXPECT_EQ(plan->merging.choice, MergeReport::Choice::kNoRoom);
}

// No limit leaves room for two, so that none is out of room.
TEST(MergeByCostTest, WhereLimitsLeaveNothingToMergeTheyAreTheReason) {
  PlanOptions options = ByCostWithoutLists();
  options.arena_bytes = 300;
  const auto plan = MakePlan(Chain(4, 64, 10), options, Link());
  EXPECT_EQ(plan->launches.size(), 4u);
  EXPECT_EQ(plan->merging.choice, MergeReport::Choice::kNothing);
  EXPECT_THAT(ReasonText(*plan, plan->launches[0]),
              HasSubstr("it would exceed 150 bytes"));
}

class Splitter : public Policy {
 public:
  absl::string_view name() const override { return "splitter"; }
  absl::StatusOr<MergeAnswer> Merge(
      const MergeQuestion& question) const override {
    EXPECT_TRUE(question.ours);
    return question.next.name == "sum2" ? MergeAnswer::kSplit
                                        : MergeAnswer::kOurs;
  }
};

TEST(MergeByCostTest, APolicyMayDecideOtherwise) {
  PlanOptions options = ByCost();
  options.policy = std::make_shared<Splitter>();
  const auto plan = MakePlan(Chain(4, 4, 10), options, Link());
  EXPECT_THAT(LaunchNames(*plan), ElementsAre("sum0+sum1", "sum2+sum3"));
}

// As policies do that have not heard of merging by cost: no limit is no merge.
class WithinLimit : public Policy {
 public:
  absl::string_view name() const override { return "within_limit"; }
  absl::StatusOr<MergeAnswer> Merge(
      const MergeQuestion& question) const override {
    return question.legal && question.open.bytes + question.next.bytes <=
                                 question.limit_bytes
               ? MergeAnswer::kJoin
               : MergeAnswer::kSplit;
  }
};

TEST(MergeByCostTest, APolicyThatCountsBytesMergesNoneByCost) {
  PlanOptions options = ByCost();
  options.policy = std::make_shared<WithinLimit>();
  EXPECT_EQ(MakePlan(Chain(4, 4, 10), options, Link())->launches.size(), 4u);
  options.coalesce_bytes = 32;
  EXPECT_EQ(MakePlan(Chain(4, 4, 10), options, Link())->launches.size(), 2u);
}

// Leaves everything to us.
class Indifferent : public Policy {
 public:
  absl::string_view name() const override { return "indifferent"; }
};

TEST(MergeByCostTest, UnderAPolicyTheArenaIsMadeDoWithToo) {
  PlanOptions options = ByCostWithoutLists();
  options.policy = std::make_shared<Indifferent>();
  options.arena_bytes = 1024;
  EXPECT_EQ(MakePlan(Chain(8, 64, 10), options, Link())->launches.size(), 4u);
  options.arena_bytes = 1;
  const auto plan = MakePlan(Chain(4, 4, 10), options, Link());
  EXPECT_EQ(plan->launches.size(), 4u);
  EXPECT_EQ(plan->merging.choice, MergeReport::Choice::kNoRoom);
}

// ---- Properties ----

// Of several members, none is above the window (I3).
void ExpectWithinWindow(const Plan& plan) {
  const uint64_t window = plan.options.max_bytes_in_flight;
  for (const Launch& launch : plan.launches) {
    if (launch.members.size() == 1 || IsPointToPoint(launch.kind)) continue;
    EXPECT_TRUE(window == 0 || launch.payload_bytes <= window)
        << launch.payload_bytes << " bytes in a window of " << window;
  }
}

CostProfile RandomProfile(const Graph& graph, std::mt19937_64* random) {
  CostProfile profile = PlainLink();
  profile.link_latency_ns = static_cast<int64_t>((*random)() % 500);
  profile.launch_ns = static_cast<int64_t>((*random)() % 500);
  for (uint32_t op = 0; op < graph.ops().size(); ++op) {
    profile.op_cost_ns.push_back(static_cast<int64_t>((*random)() % 1000));
  }
  return profile;
}

PlanOptions RandomOptions(std::mt19937_64* random) {
  PlanOptions options = ByCost();
  options.max_launches_in_flight = static_cast<uint32_t>((*random)() % 4);
  options.num_comm_lanes = 1 + static_cast<uint32_t>((*random)() % 2);
  options.priority = static_cast<Priority>((*random)() % 3);
  options.backend.lists = (*random)() % 2 == 0;
  if ((*random)() % 4 == 0) options.max_bytes_in_flight = (*random)() % 2000;
  if ((*random)() % 4 == 0) options.partition_bytes = 64 + (*random)() % 400;
  if ((*random)() % 4 == 0) options.schedule = Schedule::kSerial;
  return options;
}

// A graph on which the merged launches, which the simulation finds as fast, are
// slower in the order that is chosen last.
TEST(MergeByCostTest, TheWholePlanHasTheLastWord) {
  constexpr uint64_t kSeed = 20260027;
  std::mt19937_64 random(kSeed);
  const Graph graph =
      test::MakeRandomStep(kSeed, {.max_compute_lanes = 2}).graph;
  const CostProfile profile = RandomProfile(graph, &random);
  const auto plan = MakePlan(graph, RandomOptions(&random), profile);
  EXPECT_EQ(plan->merging.choice, MergeReport::Choice::kApart);
  EXPECT_GT(plan->merging.merged_ns, plan->merging.apart_ns);
  EXPECT_EQ(StepNs(plan), plan->merging.apart_ns);
}

TEST(MergeByCostPropertyTest, NoStepIsPredictedLongerAndEqualInputsAgree) {
  const int cases = test::PropertyCases(1000);
  int merged = 0;
  int shorter = 0;
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = test::PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(test::DescribeSeed(seed));
    std::mt19937_64 random(seed);
    const Graph graph =
        test::MakeRandomStep(seed, {.max_compute_lanes = 2}).graph;
    const CostProfile profile = RandomProfile(graph, &random);
    PlanOptions options = RandomOptions(&random);
    const auto plan = MakePlan(graph, options, profile);
    ASSERT_NE(plan, nullptr);
    ASSERT_OK(VerifyPlan(*plan));
    ExpectWithinWindow(*plan);
    EXPECT_EQ(MakePlan(graph, options, profile)->fingerprint,
              plan->fingerprint);
    options.coalesce_bytes = 0;
    const auto apart = MakePlan(graph, options, profile);
    ASSERT_NE(apart, nullptr);
    ASSERT_LE(plan->launches.size(), apart->launches.size());
    ASSERT_LE(StepNs(plan), StepNs(apart));
    merged += plan->launches.size() < apart->launches.size() ? 1 : 0;
    shorter += StepNs(plan) < StepNs(apart) ? 1 : 0;
  }
  if (cases < 200) return;
  EXPECT_GT(merged, cases / 10);
  EXPECT_GT(shorter, cases / 20);
}

TEST(MergeByCostPropertyTest, WhatFitsTheArenaApartFitsIt) {
  int merged = 0;
  const int cases = test::PropertyCases(500);
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = test::PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(test::DescribeSeed(seed));
    std::mt19937_64 random(seed);
    const Graph graph = test::MakeRandomStep(seed, {}).graph;
    const CostProfile profile = RandomProfile(graph, &random);
    PlanOptions options = RandomOptions(&random);
    options.coalesce_bytes = 0;
    options.arena_bytes = MakePlan(graph, options, profile)->arena_bytes;
    const auto apart = MakePlan(graph, options, profile);
    options.coalesce_bytes = kCoalesceAuto;
    const auto plan = MakePlan(graph, options, profile);
    ASSERT_NE(plan, nullptr);
    ASSERT_OK(VerifyPlan(*plan));
    ASSERT_LE(StepNs(plan), StepNs(apart));
    merged += plan->launches.size() < apart->launches.size() ? 1 : 0;
  }
  if (cases < 200) return;
  EXPECT_GT(merged, cases / 20);
}

TEST(MergeByCostPropertyTest, RolesMergeWhatTheyShareAlike) {
  const int cases = test::PropertyCases(300);
  int merged = 0;
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = test::PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(test::DescribeSeed(seed));
    std::mt19937_64 random(seed);
    const test::RandomJob job = test::MakeRandomJob(seed, {}, 3);
    std::vector<RoleSpec> roles = job.Roles({});
    for (RoleSpec& role : roles) {
      role.profile = RandomProfile(*role.graph, &random);
    }
    PlanOptions options = RandomOptions(&random);
    // Verified together, which compares what they share.
    ASSERT_OK_AND_ASSIGN(const auto plans, BuildPlans(roles, options));
    options.coalesce_bytes = 0;
    ASSERT_OK_AND_ASSIGN(const auto apart, BuildPlans(roles, options));
    std::vector<PlayedRole> played, played_apart;
    size_t launches = 0, launches_apart = 0;
    for (size_t r = 0; r < plans.size(); ++r) {
      played.push_back({plans[r].get(), &roles[r].profile});
      played_apart.push_back({apart[r].get(), &roles[r].profile});
      launches += plans[r]->launches.size();
      launches_apart += apart[r]->launches.size();
    }
    ASSERT_OK_AND_ASSIGN(const auto together, PredictJob(played));
    ASSERT_OK_AND_ASSIGN(const auto alone, PredictJob(played_apart));
    ASSERT_LE(together.front().step_ns, alone.front().step_ns);
    merged += launches < launches_apart ? 1 : 0;
  }
  if (cases < 200) return;
  EXPECT_GT(merged, cases / 20);
}

}  // namespace
}  // namespace commsched
