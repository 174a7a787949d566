#include "plan/predict/predict.h"

#include <algorithm>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/predict/cost_model.h"
#include "test/plan/plan_test_support.h"
#include "test/support/property.h"
#include "test/support/random_step.h"

namespace commsched {
namespace {

using test::GraphBuilder;
using test::MakePlan;
using test::OnLane;
using test::PlainLink;
using test::Read;
using test::Write;
using test::ZeroStep;

Prediction Of(const Graph& graph, const CostProfile& profile,
              const PlanOptions& options = {}) {
  auto prediction = Predict(*MakePlan(graph, options, profile), profile);
  EXPECT_OK(prediction);
  return *prediction;
}

TEST(CostModelTest, LinkTimeFollowsTheKind) {
  const CostProfile link = PlainLink();
  EXPECT_EQ(LinkNs(CollectiveKind::kAllReduce, 4, 1000, link), 1500);
  EXPECT_EQ(LinkNs(CollectiveKind::kReduceScatter, 4, 1000, link), 750);
  EXPECT_EQ(LinkNs(CollectiveKind::kAllGather, 4, 1000, link), 750);
  EXPECT_EQ(LinkNs(CollectiveKind::kAllToAll, 4, 1000, link), 750);
  EXPECT_EQ(LinkNs(CollectiveKind::kBroadcast, 4, 1000, link), 750);
  EXPECT_EQ(LinkNs(CollectiveKind::kReduce, 4, 1000, link), 750);
  EXPECT_EQ(LinkNs(CollectiveKind::kBarrier, 4, 0, link), 0);
  EXPECT_EQ(LinkNs(CollectiveKind::kAllReduce, 1, 1000, link), 0);
}

TEST(CostModelTest, AnUnevenExchangeTakesWhatItsBusiestMemberMoves) {
  Graph graph;
  Buffer buffer;
  buffer.ownership = Ownership::kBound;
  buffer.count = 1102;
  CollectiveSpec spec;
  spec.kind = CollectiveKind::kAllToAll;
  spec.group = graph.AddGroup("dp", 2).value();
  buffer.name = "in";
  spec.input = {graph.AddBuffer(buffer).value(), AccessMode::kRead, {}};
  buffer.name = "out";
  spec.output = {graph.AddBuffer(buffer).value(), AccessMode::kWrite, {}};
  // Rank 0 receives 100; the 1000 that it keeps cross no link.
  spec.counts = {1000, 2, 100, 0};
  EXPECT_EQ(LinkNs(graph, spec, PlainLink()), 400);
  spec.counts = {};
  EXPECT_EQ(LinkNs(graph, spec, PlainLink()), 2204);
}

TEST(CostModelTest, MeasuredCostReplacesEstimates) {
  GraphBuilder b;
  ComputeSpec spec;
  spec.flops = 100;
  spec.bytes = 10;
  const OpId op = b.Compute("op", {}, spec);
  CostProfile profile;
  profile.flops_per_s = 1e9;
  profile.memory_bytes_per_s = 1e9;
  EXPECT_EQ(OpCostNs(b.graph(), op, profile), 110);
  profile.op_cost_ns = {7};
  EXPECT_EQ(OpCostNs(b.graph(), op, profile), 7);
}

// make (1000) -> sum (1000 on the link) -> use (1000), in a circle: all serial.
TEST(PredictTest, AChainIsTheSumOfItsParts) {
  GraphBuilder b;
  const BufferId x = b.Buffer("x", 250);
  b.Compute("make", {Write(x)}, OnLane(0, 1000));
  b.AllReduce("sum", b.Group("dp", 2), x);
  b.Compute("use", {Read(x)}, OnLane(0, 1000));
  const Prediction p = Of(b.graph(), PlainLink());
  EXPECT_EQ(p.step_ns, 3000);
  EXPECT_EQ(p.compute_ns, 2000);
  EXPECT_EQ(p.comm_ns, 1000);
  EXPECT_EQ(p.exposed_ns, 1000);
  EXPECT_EQ(p.bound_cycle_ns, 3000);
  EXPECT_EQ(p.launches[0].ready_ns, 1000);
  EXPECT_EQ(p.launches[0].end_ns, 2000);
  EXPECT_EQ(p.launches[0].cause, ExposedCause::kDependency);
  EXPECT_EQ(p.peak_bytes_in_flight, 1000u);
}

// What the sum is needed for comes after 1500 ns of other work.
TEST(PredictTest, CommunicationUnderComputeIsNotExposed) {
  GraphBuilder b;
  const BufferId x = b.Buffer("x", 250);
  b.Compute("make", {Write(x)}, OnLane(0, 1000));
  b.AllReduce("sum", b.Group("dp", 2), x);
  b.Compute("other", {}, OnLane(0, 1500));
  b.Compute("use", {Read(x)}, OnLane(0, 1000));
  const Prediction p = Of(b.graph(), PlainLink());
  EXPECT_EQ(p.step_ns, 3500);
  EXPECT_EQ(p.exposed_ns, 0);
  EXPECT_EQ(p.launches[0].cause, ExposedCause::kNone);
}

TEST(PredictTest, TheNextStepHidesWhatThisOneLeaves) {
  // The gather is needed late in the next step only.
  GraphBuilder b;
  const BufferId x = b.Buffer("x", 500);
  b.Compute("other", {}, OnLane(0, 1500));
  b.Compute("use", {test::ReadWrite(x)}, OnLane(0, 1000));
  b.AllReduce("sum", b.Group("dp", 2), x, test::Range(0, 250));
  const Prediction p = Of(b.graph(), PlainLink());
  EXPECT_EQ(p.step_ns, 2500);
  EXPECT_EQ(p.exposed_ns, 0);
}

TEST(PredictTest, ALinkThatIsTheLimitSetsThePace) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId x = b.Buffer("x", 1000);
  const BufferId y = b.Buffer("y", 1000);
  b.Compute("make", {Write(x), Write(y)}, OnLane(0, 1000));
  b.AllReduce("sum_x", dp, x);
  b.AllReduce("sum_y", dp, y);
  const Prediction p = Of(b.graph(), PlainLink());
  EXPECT_EQ(p.bound_link_ns, 8000);
  EXPECT_GE(p.lower_bound_ns, 8000);
  EXPECT_GE(p.step_ns, p.lower_bound_ns);
  EXPECT_EQ(p.launches[1].cause, ExposedCause::kLink);
}

TEST(PredictTest, SerialIsNeverFasterThanOverlap) {
  PlanOptions serial;
  serial.schedule = Schedule::kSerial;
  CostProfile profile = PlainLink();
  profile.link_bytes_per_s = 1e8;
  const Prediction s = Of(ZeroStep(), profile, serial);
  const Prediction o = Of(ZeroStep(), profile);
  EXPECT_GT(s.step_ns, o.step_ns);
  EXPECT_EQ(s.lower_bound_ns, o.lower_bound_ns);
  EXPECT_EQ(s.exposed_ns, s.comm_ns);
}

TEST(PredictTest, RanksThatShareCoresStretchCompute) {
  CostProfile profile = PlainLink();
  profile.num_ranks_sharing = 4;
  profile.num_cores = 2;
  const Prediction shared = Of(ZeroStep(), profile);
  const Prediction alone = Of(ZeroStep(), PlainLink());
  EXPECT_EQ(shared.compute_ns, 2 * alone.compute_ns);
  EXPECT_EQ(shared.bound_compute_ns, 2 * alone.bound_compute_ns);
}

TEST(PredictTest, AProfileOfAnotherGraphIsRefused) {
  const auto plan = MakePlan(ZeroStep());
  CostProfile profile;
  profile.op_cost_ns = {1};
  EXPECT_THAT(Predict(*plan, profile),
              StatusIs(absl::StatusCode::kInvalidArgument, "measured 1 ops"));
}

// ---- Blame: each cause alone ------------------------------------------------

// What the launch of collective `name` was exposed by.
Blame BlameOf(const Graph& graph, const CostProfile& profile,
              const PlanOptions& options, const std::string& name) {
  const auto plan = MakePlan(graph, options, profile);
  const auto prediction = Predict(*plan, profile);
  EXPECT_OK(prediction);
  const LaunchId launch = plan->launch_of_op[graph.FindOp(name)->value()];
  return prediction->launches[launch.value()].exposed_by;
}

// Two sums that could go under "other", of which the second is held.
Graph TwoSumsUnderOther(int64_t other_ns) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId x = b.Buffer("x", 250);
  const BufferId y = b.Buffer("y", 250);
  b.Compute("make", {Write(x), Write(y)}, OnLane(0, 1000));
  b.AllReduce("sum_x", dp, x);
  b.AllReduce("sum_y", dp, y);
  b.Compute("other", {}, OnLane(0, other_ns));
  b.Compute("use", {Read(x), Read(y)}, OnLane(0, 1000));
  return b.graph();
}

TEST(PredictBlameTest, ProducersThatAreLateAreADependency) {
  GraphBuilder b;
  const BufferId x = b.Buffer("x", 250);
  b.Compute("make", {Write(x)}, OnLane(0, 1000));
  b.AllReduce("sum", b.Group("dp", 2), x);
  b.Compute("use", {Read(x)}, OnLane(0, 1000));
  EXPECT_EQ(BlameOf(b.graph(), PlainLink(), {}, "sum"),
            (Blame{.dependency_ns = 1000}));
}

TEST(PredictBlameTest, AWireThatIsLongerThanAllComputeIsTheLink) {
  GraphBuilder b;
  const BufferId x = b.Buffer("x", 2500);  // 10000 on the link
  b.Compute("make", {Write(x)}, OnLane(0, 1000));
  b.AllReduce("sum", b.Group("dp", 2), x);
  const Blame blame = BlameOf(b.graph(), PlainLink(), {}, "sum");
  EXPECT_EQ(blame, (Blame{.dependency_ns = 1000, .link_ns = 9000}));
}

TEST(PredictBlameTest, AQueueForTheWireIsTheLink) {
  EXPECT_EQ(BlameOf(TwoSumsUnderOther(2000), PlainLink(), {}, "sum_y"),
            Blame{});
  EXPECT_EQ(BlameOf(TwoSumsUnderOther(1500), PlainLink(), {}, "sum_y"),
            (Blame{.link_ns = 500}));
}

// A launch takes 400 to set up. Without the window the second is set up while
// the first is on the wire, and just fits under the other work.
TEST(PredictBlameTest, AFullWindowIsTheCap) {
  CostProfile profile = PlainLink();
  profile.launch_ns = 400;
  PlanOptions one;
  one.max_launches_in_flight = 1;
  const Graph graph = TwoSumsUnderOther(2400);
  EXPECT_EQ(BlameOf(graph, profile, {}, "sum_y"), Blame{});
  EXPECT_EQ(BlameOf(graph, profile, one, "sum_y"), (Blame{.cap_ns = 400}));
}

// The sum of y has the first key, since y was thought to be made first.
TEST(PredictBlameTest, AnEarlierKeyThatIsLateIsTheOrder) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId x = b.Buffer("x", 250);
  const BufferId y = b.Buffer("y", 25);
  const OpId make_y = b.Compute("make_y", {Write(y)}, OnLane(1, 500));
  b.Compute("make_x", {Write(x)}, OnLane(0, 1000));
  b.AllReduce("sum_y", dp, y);
  b.AllReduce("sum_x", dp, x);
  b.Compute("other", {}, OnLane(0, 1000));
  b.Compute("use", {Read(x), Read(y)}, OnLane(0, 1000));
  const auto plan = MakePlan(b.graph(), {}, PlainLink());
  ASSERT_EQ(test::LaunchNames(*plan),
            (std::vector<std::string>{"sum_y", "sum_x"}));
  CostProfile measured = PlainLink();
  for (uint32_t op = 0; op < b.graph().ops().size(); ++op) {
    measured.op_cost_ns.push_back(OpCostNs(b.graph(), OpId(op), PlainLink()));
  }
  ASSERT_OK_AND_ASSIGN(Prediction p, Predict(*plan, measured));
  EXPECT_EQ(p.launches[1].exposed_by, Blame{});
  measured.op_cost_ns[make_y.value()] = 1500;
  ASSERT_OK_AND_ASSIGN(p, Predict(*plan, measured));
  // On the wire from 1600 to 2600; compute is over at 2000.
  EXPECT_EQ(p.launches[1].begin_ns, 1600);
  EXPECT_EQ(p.launches[1].exposed_by, (Blame{.order_ns = 600}));
}

// One sum over two roles; the other role takes 5000 to get there.
TEST(PredictBlameTest, AnotherRoleThatIsLateIsAStraggler) {
  const auto role = [](int64_t make_ns, int64_t other_ns) {
    GraphBuilder b;
    const BufferId x = b.Buffer("x", 250);
    b.Compute("make", {Write(x)}, OnLane(0, make_ns));
    b.AllReduce("sum", b.Group("dp", 2), x);
    b.Compute("other", {}, OnLane(0, other_ns));
    b.Compute("use", {Read(x)}, OnLane(0, 100));
    return MakePlan(b.graph(), {}, PlainLink());
  };
  const auto fast = role(1000, 1000);
  const auto slow = role(5000, 1000);
  const CostProfile profile = PlainLink();
  ASSERT_OK_AND_ASSIGN(
      const std::vector<Prediction> p,
      PredictJob({{fast.get(), &profile}, {slow.get(), &profile}}));
  EXPECT_EQ(p[1].exposed_by, Blame{});
  EXPECT_EQ(p[0].step_ns, 6100);
  EXPECT_EQ(p[1].step_ns, 6100);
  EXPECT_EQ(p[0].exposed_by, (Blame{.straggler_ns = 1000}));
  EXPECT_EQ(p[0].launches[0].cause, ExposedCause::kStraggler);
  // By itself it would have been hidden.
  EXPECT_EQ(Predict(*fast, profile)->exposed_ns, 0);
}

// ---- Several roles ----------------------------------------------------------

// Two stages: the second needs what the first makes, and makes what the next
// step of the first needs.
TEST(PredictJobTest, ACycleThroughTwoRolesBoundsBoth) {
  GraphBuilder stages[2];
  for (int stage = 0; stage < 2; ++stage) {
    GraphBuilder& b = stages[stage];
    const GroupId pp = b.Group("pp", 2);
    const BufferId there = b.Buffer("there", 250);
    const BufferId back = b.Buffer("back", 250);
    if (stage == 0) {
      b.Compute("first", {Read(back), Write(there)}, OnLane(0, 1000));
      b.AllReduce("go", pp, there);
      b.AllReduce("return", pp, back);
    } else {
      b.AllReduce("go", pp, there);
      b.Compute("second", {Read(there), Write(back)}, OnLane(0, 3000));
      b.AllReduce("return", pp, back);
    }
  }
  const CostProfile profile = PlainLink();
  std::vector<RoleSpec> specs(2);
  for (int stage = 0; stage < 2; ++stage) {
    specs[stage].graph = &stages[stage].graph();
    specs[stage].role_of_member = {{0, 1}};
    specs[stage].profile = profile;
  }
  ASSERT_OK_AND_ASSIGN(const auto plans, BuildPlans(specs, {}));
  ASSERT_OK_AND_ASSIGN(
      const std::vector<Prediction> p,
      PredictJob({{plans[0].get(), &profile}, {plans[1].get(), &profile}}));
  // 1000 each on the link, once around per step.
  EXPECT_EQ(p[0].bound_cycle_ns, 1000 + 1000 + 3000 + 1000);
  EXPECT_EQ(p[1].bound_cycle_ns, p[0].bound_cycle_ns);
  EXPECT_EQ(p[0].lower_bound_ns, 6000);
  EXPECT_EQ(p[0].step_ns, 6000);
  EXPECT_EQ(p[1].step_ns, 6000);
  EXPECT_EQ(p[0].bound_link_ns, 2000);
  for (const Prediction& role : p) {
    EXPECT_EQ(role.exposed_by.total_ns(), role.exposed_ns);
  }
}

TEST(PredictTest, TheLatenciesOfPiecesOverlap) {
  GraphBuilder b;
  const BufferId x = b.Buffer("x", 1024);
  b.Compute("make", {Write(x)}, OnLane(0, 1000));
  b.AllReduce("sum", b.Group("dp", 2), x);
  CostProfile profile = PlainLink();
  profile.link_latency_ns = 100;
  PlanOptions options;
  options.partition_bytes = 1024;
  const Prediction p = Of(b.graph(), profile, options);
  ASSERT_EQ(p.launches.size(), 4u);
  EXPECT_EQ(p.comm_ns, 4 * (1024 + 100));
  EXPECT_EQ(p.bound_link_ns, 4 * 1024);
  EXPECT_EQ(p.bound_cycle_ns, 1000 + 4 * 1024 + 100);
  EXPECT_EQ(p.bound_phases_ns, 1000 + 4 * 1024 + 100);
  EXPECT_EQ(p.step_ns, p.lower_bound_ns);
}

// Two sums of 1000 ns each, which are ready together, and a user of both.
Graph TwoAtOnce() {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId x = b.Buffer("x", 250);
  const BufferId y = b.Buffer("y", 250);
  b.Compute("make", {Write(x), Write(y)}, OnLane(0, 1000));
  b.AllReduce("sum_x", dp, x);
  b.AllReduce("sum_y", dp, y);
  b.Compute("use", {Read(x), Read(y)}, OnLane(0, 1000));
  return b.graph();
}

TEST(PredictTest, LatenciesOfLaunchesInFlightOverlap) {
  CostProfile profile = PlainLink();
  profile.link_latency_ns = 5000;
  const Prediction p = Of(TwoAtOnce(), profile);
  EXPECT_EQ(p.launches[0].end_ns, 1000 + 1000 + 5000);
  EXPECT_EQ(p.launches[1].begin_ns, 1000 + 1000);
  EXPECT_EQ(p.launches[1].end_ns, 1000 + 2 * 1000 + 5000);
  EXPECT_EQ(p.step_ns, 1000 + 2 * 1000 + 5000 + 1000);
  EXPECT_EQ(p.bound_link_ns, 2 * 1000);
}

TEST(PredictTest, OnALaneThatIsSerialTheyFollowEachOther) {
  CostProfile profile = PlainLink();
  profile.link_latency_ns = 5000;
  PlanOptions options;
  options.backend.serial_lanes = true;
  const Prediction p = Of(TwoAtOnce(), profile, options);
  EXPECT_EQ(p.step_ns, 1000 + 2 * (1000 + 5000) + 1000);
}

// Each launch takes 100 ns of the core that two ranks share, which compute for
// 2000 ns each.
TEST(PredictTest, LaunchesTakeTurnsWithComputeOnSharedCores) {
  CostProfile profile = PlainLink();
  profile.launch_ns = 100;
  EXPECT_EQ(Of(TwoAtOnce(), profile).compute_ns, 2000);
  profile.num_ranks_sharing = 2;
  profile.num_cores = 1;
  EXPECT_EQ(Of(TwoAtOnce(), profile).compute_ns, 2 * (2000 + 2 * 100));
}

TEST(PredictPropertyTest, BlameAddsUpToWhatIsExposed) {
  Blame seen;
  for (int i = 0; i < test::PropertyCases(500); ++i) {
    const uint64_t seed = test::PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(test::DescribeSeed(seed));
    std::mt19937_64 random(seed);
    const Graph graph =
        test::MakeRandomStep(seed, {.max_compute_lanes = 2}).graph;
    PlanOptions options;
    options.max_launches_in_flight = static_cast<uint32_t>(random() % 3);
    options.coalesce_bytes = random() % 1000;
    CostProfile profile = PlainLink();
    profile.link_latency_ns = static_cast<int64_t>(random() % 500);
    profile.launch_ns = static_cast<int64_t>(random() % 500);
    for (uint32_t op = 0; op < graph.ops().size(); ++op) {
      profile.op_cost_ns.push_back(static_cast<int64_t>(random() % 1000));
    }
    const auto plan = MakePlan(graph, options, profile);
    ASSERT_NE(plan, nullptr);
    // Not what was planned for, so that keys come in a bad order.
    std::shuffle(profile.op_cost_ns.begin(), profile.op_cost_ns.end(), random);
    ASSERT_OK_AND_ASSIGN(const Prediction p, Predict(*plan, profile));
    ASSERT_EQ(p.exposed_by.total_ns(), p.exposed_ns);
    Blame sum;
    for (const LaunchPrediction& launch : p.launches) {
      const Blame& blame = launch.exposed_by;
      ASSERT_EQ(blame.total_ns(), launch.exposed_ns);
      ASSERT_GE(std::min({blame.cap_ns, blame.dependency_ns, blame.order_ns,
                          blame.link_ns, blame.straggler_ns}),
                0);
      sum += blame;
    }
    ASSERT_EQ(sum, p.exposed_by);
    seen += sum;
  }
  EXPECT_EQ(seen.straggler_ns, 0);             // one role
  if (test::PropertyCases(500) < 200) return;  // too few to see all of them
  EXPECT_GT(seen.cap_ns, 0);
  EXPECT_GT(seen.dependency_ns, 0);
  EXPECT_GT(seen.order_ns, 0);
  EXPECT_GT(seen.link_ns, 0);
}

TEST(PredictPropertyTest, NoPlanBeatsItsLowerBoundAndNoCapIsPassed) {
  for (int i = 0; i < test::PropertyCases(500); ++i) {
    const uint64_t seed = test::PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(test::DescribeSeed(seed));
    const Graph graph =
        test::MakeRandomStep(seed, {.max_compute_lanes = 2}).graph;
    std::mt19937_64 random(seed);
    PlanOptions options;
    options.max_launches_in_flight = static_cast<uint32_t>(random() % 4);
    options.coalesce_bytes = random() % 1000;
    CostProfile profile = PlainLink();
    profile.link_latency_ns = static_cast<int64_t>(random() % 500);
    const auto plan = MakePlan(graph, options, profile);
    ASSERT_NE(plan, nullptr);
    if (random() % 2 == 0) {
      profile.num_ranks_sharing = 1 + static_cast<uint32_t>(random() % 4);
      profile.num_cores = 2;
    }
    ASSERT_OK_AND_ASSIGN(const Prediction p, Predict(*plan, profile));
    ASSERT_OK_AND_ASSIGN(const int64_t step_ns,
                         PredictStep({{plan.get(), &profile}}));
    ASSERT_EQ(step_ns, p.step_ns);
    ASSERT_GE(p.step_ns, p.lower_bound_ns);
    ASSERT_LE(p.bound_link_ns, p.lower_bound_ns);
    ASSERT_LE(p.exposed_ns, p.comm_ns);
    uint64_t largest = 0;
    for (const Launch& launch : plan->launches) {
      largest = std::max(largest, launch.payload_bytes);
    }
    if (options.max_launches_in_flight != 0) {
      ASSERT_LE(p.peak_bytes_in_flight,
                largest * options.max_launches_in_flight);
    }
  }
}

}  // namespace
}  // namespace commsched
