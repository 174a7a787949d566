#include "plan/prioritize.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/explain/launch_reason_text.h"
#include "plan/policy.h"
#include "plan/predict/predict.h"
#include "test/plan/plan_test_support.h"
#include "test/support/property.h"
#include "test/support/random_step.h"

namespace commsched {
namespace {

using test::GraphBuilder;
using test::LaunchNames;
using test::MakePlan;
using test::OnLane;
using test::PlainLink;
using test::Read;
using test::ReadWrite;
using test::Spec;
using test::Write;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Choice = PriorityReport::Choice;

PlanOptions With(Priority priority, uint64_t partition_bytes = 0) {
  PlanOptions options;
  options.priority = priority;
  options.partition_bytes = partition_bytes;
  return options;
}

int64_t StepNs(const Plan& plan) {
  return Predict(plan, plan.profile)->step_ns;
}

// A reduction of 8 us becomes ready just before a gather of 1 us. The gather is
// needed at once, the reduction only after 10 us of other work.
Graph UrgentBehindLarge() {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId grad = b.Buffer("grad", 2000);
  const BufferId param = b.Buffer("param", 500);
  const BufferId state = b.Buffer("state", 8);
  b.Compute("bwd", {Write(grad), ReadWrite(state)}, OnLane(0, 1000));
  b.AllReduce("large", dp, grad);
  b.Compute("opt", {Write(param), ReadWrite(state)}, OnLane(0, 100));
  b.AllGather("urgent", dp, param);
  b.Compute("fwd", {Read(param), ReadWrite(state)}, OnLane(0, 10000));
  b.Compute("late", {Read(grad), ReadWrite(state)}, OnLane(0, 100));
  return b.graph();
}

TEST(PrioritizeTest, AnUrgentGatherPassesBetweenThePiecesOfALateReduction) {
  const auto plan =
      MakePlan(UrgentBehindLarge(), With(Priority::kAuto, 2048), PlainLink());
  const std::vector<std::string> names = LaunchNames(*plan);
  ASSERT_EQ(names.size(), 5u);  // four pieces
  const auto urgent = std::find(names.begin(), names.end(), "urgent");
  EXPECT_EQ(urgent - names.begin(), 1);
  EXPECT_EQ(plan->priority.choice, Choice::kNeed);
  EXPECT_TRUE(std::is_sorted(
      plan->launches.begin(), plan->launches.end(),
      [](const Launch& a, const Launch& b) { return a.key < b.key; }));
}

TEST(PrioritizeTest, PassingBetweenPiecesIsPredictedToGain) {
  const Graph graph = UrgentBehindLarge();
  const auto off = MakePlan(graph, With(Priority::kOff, 2048), PlainLink());
  const auto automatic =
      MakePlan(graph, With(Priority::kAuto, 2048), PlainLink());
  // As ready, fwd waits for all of the reduction.
  EXPECT_GE(StepNs(*off), StepNs(*automatic) + 5000);
  EXPECT_EQ(automatic->priority.as_ready_ns, StepNs(*off));
  EXPECT_EQ(automatic->priority.by_need_ns, StepNs(*automatic));
  EXPECT_LE(automatic->priority.bound_ns, automatic->priority.by_need_ns);
}

// What is on the link cannot be called back.
TEST(PrioritizeTest, WithoutPiecesTheReductionIsOnTheLinkAlready) {
  const auto plan =
      MakePlan(UrgentBehindLarge(), With(Priority::kAuto), PlainLink());
  EXPECT_THAT(LaunchNames(*plan), ElementsAre("large", "urgent"));
  EXPECT_EQ(plan->priority.choice, Choice::kReady);
  EXPECT_TRUE(plan->priority.by_need_tried);
}

// A chain: each waits for the one before, in any order.
TEST(PrioritizeTest, AutoStaysOffWhereNothingIsToGain) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId x = b.Buffer("x", 250);
  const BufferId y = b.Buffer("y", 250);
  b.Compute("a", {Write(x)}, OnLane(0, 1000));
  b.AllReduce("sum_x", dp, x);
  b.Compute("b", {Read(x), Write(y)}, OnLane(0, 1000));
  b.AllReduce("sum_y", dp, y);
  b.Compute("c", {Read(y)}, OnLane(0, 1000));
  const auto plan = MakePlan(b.graph(), With(Priority::kAuto), PlainLink());
  EXPECT_EQ(plan->priority.choice, Choice::kReady);
  EXPECT_EQ(plan->priority.bound_ns, plan->priority.as_ready_ns);
  EXPECT_FALSE(plan->priority.by_need_tried);
}

TEST(PrioritizeTest, OffAndSerialSimulateNothing) {
  const auto off = MakePlan(UrgentBehindLarge(), With(Priority::kOff, 2048));
  EXPECT_EQ(off->priority.choice, Choice::kNotAsked);
  EXPECT_EQ(off->priority.as_ready_ns, 0);
  PlanOptions serial = With(Priority::kOn, 2048);
  serial.schedule = Schedule::kSerial;
  const auto plan = MakePlan(UrgentBehindLarge(), serial, PlainLink());
  EXPECT_EQ(plan->priority.choice, Choice::kNotAsked);
  EXPECT_EQ(LaunchNames(*plan).back(), "urgent");
}

TEST(PrioritizeTest, OnGoesByNeedWhateverItGains) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId x = b.Buffer("x", 8);
  const BufferId y = b.Buffer("y", 8);
  b.Compute("make", {Write(x), Write(y)}, OnLane(0, 1000));
  b.AllReduce("late", dp, x);
  b.AllReduce("early", dp, y);
  b.Compute("use_y", {Read(y)}, OnLane(0, 100000));
  b.Compute("use_x", {Read(x)}, OnLane(0, 1000));
  // The as-ready order has the first consumer as a late criterion; a hint that
  // stands before it is what by need does away with.
  const auto on = MakePlan(b.graph(), With(Priority::kOn), PlainLink());
  EXPECT_THAT(LaunchNames(*on), ElementsAre("early", "late"));
  EXPECT_EQ(on->priority.choice, Choice::kNeed);
}

// The gather of the first layer is needed right at the start of the next step;
// the sum that becomes ready before it, only at that step's end.
TEST(PrioritizeTest, NeedsReachAcrossTheStepBoundary) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId first = b.Buffer("first", 1000);
  const BufferId last = b.Buffer("last", 1000);
  b.Compute("use_first", {ReadWrite(first)}, OnLane(0, 1000));
  b.Compute("work", {}, OnLane(0, 20000));
  b.Compute("use_last", {ReadWrite(last)}, OnLane(0, 1000));
  b.Compute("tail", {ReadWrite(first), ReadWrite(last)}, OnLane(0, 10));
  b.AllReduce("of_last", dp, last);
  b.AllReduce("of_first", dp, first);
  const auto plan = MakePlan(b.graph(), With(Priority::kOn), PlainLink());
  EXPECT_THAT(LaunchNames(*plan), ElementsAre("of_first", "of_last"));
}

// Whatever the graph, the verifier takes the order, and what the option says is
// faster is so by the room's own prediction, which is simulated separately.
TEST(PrioritizePropertyTest, EveryOrderIsLegal) {
  int by_need = 0;
  for (int i = 0; i < test::PropertyCases(500); ++i) {
    const uint64_t seed = test::PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(test::DescribeSeed(seed));
    const Graph plain =
        test::MakeRandomStep(seed, {.max_compute_lanes = 3}).graph;
    std::mt19937_64 random(seed);
    Graph graph;
    for (const Group& group : plain.groups()) {
      ASSERT_OK(graph.AddGroup(group.name, group.size));
    }
    for (const Buffer& buffer : plain.buffers()) {
      ASSERT_OK(graph.AddBuffer(buffer));
    }
    for (Op op : plain.ops()) {
      if (op.kind == OpKind::kCompute) {
        op.compute.cost_ns = static_cast<int64_t>(random() % 2000);
      } else {
        op.priority = static_cast<int>(random() % 3);
      }
      ASSERT_OK(graph.AddOp(op));
    }
    PlanOptions options = With(
        random() % 2 == 0 ? Priority::kOn : Priority::kAuto, random() % 200);
    options.max_launches_in_flight = static_cast<uint32_t>(random() % 4);
    options.max_bytes_in_flight = random() % 3 == 0 ? random() % 500 : 0;
    options.num_comm_lanes = 1 + static_cast<uint32_t>(random() % 2);
    options.coalesce_bytes = random() % 2 == 0 ? random() % 1000 : 0;
    CostProfile profile = PlainLink();
    profile.link_latency_ns = static_cast<int64_t>(random() % 500);
    profile.launch_ns = static_cast<int64_t>(random() % 200);
    const auto plan = MakePlan(graph, options, profile);
    ASSERT_NE(plan, nullptr);
    by_need += plan->priority.choice == Choice::kNeed ? 1 : 0;
    if (options.priority == Priority::kAuto) {
      ASSERT_LE(plan->priority.chosen_ns, plan->priority.as_ready_ns);
    }
  }
  EXPECT_GT(by_need, test::PropertyCases(500) / 10);
}

// Turns the order of launches round.
class Backwards : public Policy {
 public:
  absl::string_view name() const override { return "backwards"; }
  absl::StatusOr<std::vector<uint32_t>> Order(
      absl::Span<const PolicyLaunch> launches) const override {
    std::vector<uint32_t> order;
    for (size_t i = launches.size(); i-- > 0;) {
      order.push_back(static_cast<uint32_t>(i));
    }
    return order;
  }
};

// What a test wants to hear.
class Scripted : public Policy {
 public:
  explicit Scripted(std::vector<uint32_t> order) : order_(std::move(order)) {}
  absl::string_view name() const override { return "scripted"; }
  absl::StatusOr<MergeAnswer> Merge(
      const MergeQuestion& question) const override {
    if (question.next.name == merge_) return MergeAnswer::kJoin;
    if (question.next.name == split_) return MergeAnswer::kSplit;
    return MergeAnswer::kOurs;
  }
  absl::StatusOr<std::vector<uint32_t>> Order(
      absl::Span<const PolicyLaunch> launches) const override {
    for (const PolicyLaunch& launch : launches) {
      seen_.push_back(std::string(launch.item.name));
    }
    return order_;
  }
  std::string merge_;
  std::string split_;
  mutable std::vector<std::string> seen_;

 private:
  std::vector<uint32_t> order_;
};

// Three sums that are ready at once; "again" depends on the first.
Graph ThreeSums(bool chain) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId x = b.Buffer("x", 64);
  const BufferId y = b.Buffer("y", 64);
  b.Compute("make", {Write(x), Write(y)}, OnLane(0, 1000));
  b.AllReduce("first", dp, x);
  b.AllReduce("second", dp, y);
  if (chain) b.AllReduce("again", dp, x);
  return b.graph();
}

PlanOptions Under(std::shared_ptr<const Policy> policy) {
  PlanOptions options;
  options.policy = std::move(policy);
  return options;
}

TEST(PolicyTest, ItsOrderStands) {
  const auto plan =
      MakePlan(ThreeSums(false), Under(std::make_shared<Backwards>()));
  EXPECT_THAT(LaunchNames(*plan), ElementsAre("second", "first"));
  EXPECT_EQ(plan->priority.choice, Choice::kPolicy);
}

TEST(PolicyTest, AnEmptyOrderIsOurs) {
  auto policy = std::make_shared<Scripted>(std::vector<uint32_t>{});
  const auto plan = MakePlan(ThreeSums(false), Under(policy));
  EXPECT_THAT(LaunchNames(*plan), ElementsAre("first", "second"));
  EXPECT_THAT(policy->seen_, ElementsAre("first", "second"));
}

void ExpectRefused(const Graph& graph, std::shared_ptr<const Policy> policy,
                   const std::string& message) {
  EXPECT_THAT(BuildPlan(graph, Under(std::move(policy)), {}),
              StatusIs(absl::StatusCode::kInvalidArgument, message));
}

TEST(PolicyTest, AnOrderAgainstADependencyIsRefused) {
  ExpectRefused(ThreeSums(true), std::make_shared<Backwards>(),
                "policy 'backwards' orders 'again' before 'first', which it "
                "comes after");
}

TEST(PolicyTest, AnOrderThatIsNoneIsRefused) {
  ExpectRefused(ThreeSums(false),
                std::make_shared<Scripted>(std::vector<uint32_t>{0, 0}),
                "policy 'scripted' orders 'first' twice");
  ExpectRefused(ThreeSums(false),
                std::make_shared<Scripted>(std::vector<uint32_t>{0}),
                "orders 1 launches; there are 2");
  ExpectRefused(ThreeSums(false),
                std::make_shared<Scripted>(std::vector<uint32_t>{0, 7}),
                "orders launch 7; there are 2");
}

TEST(PolicyTest, AnOrderThatDeadlocksTheHostIsRefused) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId x = b.Buffer("x", 64);
  const BufferId y = b.Buffer("y", 64);
  b.Compute("make_x", {Write(x)});
  b.AllReduce("sum_x", dp, x);
  b.Compute("use_x", {Read(x)});
  b.Compute("make_y", {Write(y)});
  b.AllReduce("sum_y", dp, y);
  ExpectRefused(b.graph(), std::make_shared<Backwards>(),
                "orders 'sum_y' before 'sum_x', but 'use_x' needs the latter "
                "before the former is ready: a deadlock");
}

TEST(PolicyTest, MergesBeyondTheLimitAndSplitsWithinIt) {
  auto policy = std::make_shared<Scripted>(std::vector<uint32_t>{});
  policy->merge_ = "second";
  EXPECT_THAT(LaunchNames(*MakePlan(ThreeSums(false), Under(policy))),
              ElementsAre("first+second"));
  policy->merge_.clear();
  policy->split_ = "second";
  PlanOptions options = Under(policy);
  options.coalesce_bytes = 1 << 20;
  const auto plan = MakePlan(ThreeSums(false), options);
  EXPECT_THAT(LaunchNames(*plan), ElementsAre("first", "second"));
  EXPECT_THAT(ReasonText(*plan, plan->launches[0]),
              HasSubstr("the policy keeps it apart from 'second'"));
}

TEST(PolicyTest, AnIllegalMergeIsRefused) {
  auto policy = std::make_shared<Scripted>(std::vector<uint32_t>{});
  policy->merge_ = "again";
  ExpectRefused(ThreeSums(true), policy,
                "policy 'scripted' merges 'again' with ");
}

}  // namespace
}  // namespace commsched
