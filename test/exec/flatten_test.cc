#include "exec/flatten.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "plan/planner.h"
#include "test/exec/logged_device.h"
#include "test/support/graph_builder.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::GraphBuilder;
using test::LoggedDevice;
using test::Read;
using test::Write;

// "make" writes x, "sum" sums it to itself, "use" reads it on lane 0; "idle"
// reads z only, which nobody writes.
struct ChainWithIdleOp {
  explicit ChainWithIdleOp(Ownership ownership = Ownership::kOwned) {
    GraphBuilder builder;
    const GroupId dp = builder.Group("dp", 2);
    const BufferId x = builder.Buffer("x", 4, ownership);
    const BufferId z = builder.Buffer("z", 4);
    builder.Compute("make", {Write(x)});
    builder.AllReduce("sum", dp, x);
    builder.Compute("use", {Read(x)});
    builder.Compute("idle", {Read(z)});
    plan = BuildPlan(builder.graph(), {}, CostProfile{}).value();
  }

  // Of rank 1, with compute lanes that are the caller or not.
  absl::StatusOr<std::unique_ptr<Program>> Flatten(bool caller_lanes,
                                                   bool issue_inline = false,
                                                   bool enqueue = false) {
    Binding binding;
    binding.buffer_address.assign(plan->graph->buffers().size(), memory);
    binding.arena = memory;
    binding.group_rank = {1};
    binding.device = &device;
    binding.enqueue = enqueue;
    binding.issue_inline = issue_inline;
    binding.caller_lanes.assign(plan->num_compute_lanes, caller_lanes);
    return commsched::Flatten(plan, binding);
  }

  std::shared_ptr<const Plan> plan;
  LoggedDevice device;
  char memory[256] = {};
};

const NodeProgram& NodeOf(const Program& program, absl::string_view name) {
  for (uint32_t i = 0; i < program.nodes.size(); ++i) {
    if (program.OpName(i) == name) return program.nodes[i];
  }
  ADD_FAILURE() << "no compute op is called " << name;
  return program.nodes.front();
}

// ---- Events and waits ----

TEST(FlattenTest, WhatSomebodyWaitsForHasAnEvent) {
  ChainWithIdleOp chain;
  const auto program = chain.Flatten(/*caller_lanes=*/false).value();
  const NodeProgram& make = NodeOf(*program, "make");
  const NodeProgram& use = NodeOf(*program, "use");
  const LaunchProgram& sum = program->launches[0];
  ASSERT_NE(make.event, nullptr);
  ASSERT_EQ(sum.waits.count, 1u);
  EXPECT_EQ(program->waits[sum.waits.begin].event, make.event);
  EXPECT_EQ(program->waits[sum.waits.begin].distance, 0u);
  ASSERT_NE(sum.event, nullptr);
  ASSERT_EQ(use.waits.count, 1u);
  EXPECT_EQ(program->waits[use.waits.begin].event, sum.event);
}

TEST(FlattenTest, WhatNobodyWaitsForHasNoEvent) {
  ChainWithIdleOp chain;
  const auto program = chain.Flatten(/*caller_lanes=*/false).value();
  EXPECT_EQ(NodeOf(*program, "idle").event, nullptr);
  size_t events = 0;
  for (const NodeProgram& node : program->nodes)
    events += node.event != nullptr;
  EXPECT_EQ(events + 1, program->events.size());
}

// Of a lane that is the calling thread: the op is done when it has its after.
TEST(FlattenTest, WaitsForOpsOfTheCallingThreadAreLeftOut) {
  ChainWithIdleOp chain;
  const auto program = chain.Flatten(/*caller_lanes=*/true).value();
  EXPECT_EQ(NodeOf(*program, "make").event, nullptr);
  EXPECT_EQ(program->launches[0].waits.count, 0u);
  // But a launch may be under way yet.
  EXPECT_EQ(NodeOf(*program, "use").waits.count, 1u);
}

TEST(FlattenTest, WhatIsIssuedInlineHasNoEventsAndNoWaits) {
  ChainWithIdleOp chain;
  const auto program =
      chain.Flatten(/*caller_lanes=*/true, /*issue_inline=*/true).value();
  EXPECT_TRUE(program->events.empty());
  EXPECT_TRUE(program->waits.empty());
  EXPECT_TRUE(program->issue_inline);
}

TEST(FlattenTest, EveryEnqueuedLaunchHasAnEvent) {
  GraphBuilder builder;
  const GroupId dp = builder.Group("dp", 2);
  for (const char* name : {"a", "b"}) {
    const BufferId x = builder.Buffer(name, 4, Ownership::kOwned);
    builder.Compute(std::string("make_") + name, {Write(x)});
    builder.AllReduce(std::string("sum_") + name, dp, x);
  }
  ChainWithIdleOp two;
  Plan plan = *BuildPlan(builder.graph(), {}, CostProfile{}).value();
  // Taken out, so that nobody waits for a launch.
  for (ComputeNode& node : plan.nodes) node.waits.clear();
  for (Launch& launch : plan.launches) launch.waits.clear();
  for (ComputeNode& node : plan.nodes) node.waits.clear();
  two.plan = std::make_shared<Plan>(plan);
  const auto polled = two.Flatten(/*caller_lanes=*/true).value();
  const auto enqueued = two.Flatten(true, false, /*enqueue=*/true).value();
  ASSERT_EQ(enqueued->launches.size(), 2u);
  for (const LaunchProgram& launch : enqueued->launches) {
    EXPECT_NE(launch.event, nullptr);
  }
  EXPECT_TRUE(enqueued->enqueue);
  EXPECT_EQ(polled->launches[0].event, nullptr);
  // The last of a lane, by which a drain goes, has one in any case.
  EXPECT_NE(polled->launches[1].event, nullptr);
}

// What a release of the caller's memory waits for.
TEST(FlattenTest, ALaunchOnTheCallersMemoryHasAnEvent) {
  GraphBuilder builder;
  const GroupId dp = builder.Group("dp", 2);
  const BufferId owned = builder.Buffer("owned", 4, Ownership::kOwned);
  const BufferId bound = builder.Buffer("bound", 4, Ownership::kBound);
  const BufferId last = builder.Buffer("last", 4, Ownership::kOwned);
  builder.Compute("make", {test::Write(owned), test::Write(last)});
  for (BufferId x : {owned, bound, last}) {
    builder.AllReduce("sum_" + builder.graph().buffer(x).name, dp, x);
  }
  ChainWithIdleOp three;
  PlanOptions options;
  options.priority = Priority::kOff;
  Plan plan = *BuildPlan(builder.graph(), options, CostProfile{}).value();
  // Of the next step for this one; then nobody waits for any.
  for (Launch& launch : plan.launches) launch.waits.clear();
  three.plan = std::make_shared<Plan>(plan);
  const auto program = three.Flatten(/*caller_lanes=*/true).value();
  for (uint32_t i = 0; i < 3; ++i) {
    const OpId op = three.plan->launches[i].members.front();
    const bool has_event = program->launches[i].event != nullptr;
    EXPECT_EQ(has_event, three.plan->graph->op(op).name != "sum_owned") << i;
  }
}

// As many generations as can be looked at: those that the host is ahead, and
// as far back as anybody waits.
TEST(FlattenTest, EventsAreAsDeepAsTheGreatestDistanceAndRunAhead) {
  ChainWithIdleOp chain;
  int distance = 0;
  for (const ComputeNode& node : chain.plan->nodes) {
    for (const Wait& wait : node.waits) {
      distance = std::max(distance, wait.distance);
    }
  }
  for (const Launch& launch : chain.plan->launches) {
    for (const Wait& wait : launch.waits) {
      distance = std::max(distance, wait.distance);
    }
  }
  ASSERT_OK(chain.Flatten(/*caller_lanes=*/false).status());
  ASSERT_FALSE(chain.device.depths.empty());
  for (uint32_t depth : chain.device.depths) {
    EXPECT_EQ(depth, 3u + static_cast<uint32_t>(distance) + 1u);
  }
}

// ---- What the dispatcher reads ----

TEST(FlattenTest, ANodeFeedsTheLaunchesThatItProducesFor) {
  ChainWithIdleOp chain;
  const auto program = chain.Flatten(/*caller_lanes=*/true).value();
  const NodeProgram& make = NodeOf(*program, "make");
  ASSERT_EQ(make.feeds.count, 1u);
  EXPECT_EQ(program->feeds[make.feeds.begin], 0u);
  EXPECT_EQ(program->launches[0].producers.count, 1u);
  EXPECT_EQ(NodeOf(*program, "use").feeds.count, 0u);
  EXPECT_EQ(NodeOf(*program, "use").due_needed, 1u);
}

TEST(FlattenTest, AReadOfALaunchsResultIsCheckedWhateverThePlanWaitsFor) {
  ChainWithIdleOp chain;
  auto plan = std::make_shared<Plan>(*chain.plan);
  for (ComputeNode& node : plan->nodes) node.waits.clear();
  chain.plan = plan;
  const auto program = chain.Flatten(/*caller_lanes=*/true).value();
  const NodeProgram& use = NodeOf(*program, "use");
  ASSERT_EQ(use.reads.count, 1u);
  EXPECT_EQ(program->reads[use.reads.begin].launch, 0u);
  EXPECT_EQ(program->reads[use.reads.begin].distance, 0u);
  EXPECT_EQ(NodeOf(*program, "make").reads.count, 0u);
}

TEST(FlattenTest, LaunchesAreDueInTheInstructionsBeforeWhoNeedsThem) {
  ChainWithIdleOp chain;
  const auto program = chain.Flatten(/*caller_lanes=*/true).value();
  uint32_t due = 0;
  uint32_t nodes = 0;
  for (const Instruction& instruction : program->instructions) {
    if (instruction.kind == Instruction::Kind::kIssue) {
      EXPECT_GT(instruction.index, due);
      due = instruction.index;
      continue;
    }
    EXPECT_EQ(instruction.index, nodes++);
    EXPECT_GE(due, program->nodes[instruction.index].due_needed);
  }
  EXPECT_EQ(due, program->launches.size());
  EXPECT_EQ(nodes, program->nodes.size());
}

TEST(FlattenTest, AnOpBeforeWhatItNeedsIsAnError) {
  ChainWithIdleOp chain;
  auto plan = std::make_shared<Plan>(*chain.plan);
  plan->due_after[0] = static_cast<uint32_t>(plan->nodes.size());
  chain.plan = plan;
  EXPECT_THAT(chain.Flatten(/*caller_lanes=*/true),
              StatusIs(absl::StatusCode::kInternal,
                       "op 'use' comes before launch #0 all_reduce 'sum' on "
                       "axis dp is due"));
}

// ---- Members and staging ----

TEST(FlattenTest, APackedLaunchIsStagedInAndOut) {
  GraphBuilder builder;
  const GroupId dp = builder.Group("dp", 2);
  const BufferId a = builder.Buffer("a", 4);
  const BufferId b = builder.Buffer("b", 6);
  builder.AllReduce("sum_a", dp, a);
  builder.AllReduce("sum_b", dp, b);
  PlanOptions options;
  options.coalesce_bytes = 1000;
  const auto plan = BuildPlan(builder.graph(), options, CostProfile{}).value();
  ASSERT_EQ(plan->launches.size(), 1u);
  ASSERT_EQ(plan->launches[0].way, Way::kPack);
  std::vector<char> arena(plan->arena_bytes);
  float memory_a[4] = {}, memory_b[6] = {};
  Binding binding;
  binding.buffer_address = {memory_a, memory_b};
  binding.arena = arena.data();
  binding.group_rank = {0};
  binding.issue_inline = true;
  binding.caller_lanes.assign(plan->num_compute_lanes, true);
  const auto program = Flatten(plan, binding).value();
  const LaunchProgram& launch = program->launches[0];
  ASSERT_EQ(launch.call.num_members, 1u);
  const commsched_member_t& packed = launch.call.members[0];
  EXPECT_EQ(packed.count, 10u);
  ASSERT_EQ(launch.staging_in.count, 2u);
  ASSERT_EQ(launch.staging_out.count, 2u);
  const StagingStep* in = &program->staging[launch.staging_in.begin];
  EXPECT_EQ(in[0].from, memory_a);
  EXPECT_EQ(in[0].to, packed.input);
  EXPECT_EQ(in[1].from, memory_b);
  EXPECT_EQ(in[1].to, static_cast<const char*>(packed.input) + 16);
  const StagingStep* out = &program->staging[launch.staging_out.begin];
  EXPECT_EQ(out[0].to, memory_a);
  EXPECT_EQ(out[0].from, packed.output);
  EXPECT_EQ(out[1].to, memory_b);
  EXPECT_EQ(out[1].row_bytes * out[1].rows, 24u);
}

TEST(FlattenTest, ASingleMemberIsNotStaged) {
  ChainWithIdleOp chain(Ownership::kBound);
  const auto program = chain.Flatten(/*caller_lanes=*/true).value();
  const LaunchProgram& launch = program->launches[0];
  EXPECT_EQ(launch.staging_in.count + launch.staging_out.count, 0u);
  EXPECT_EQ(launch.call.members[0].input, chain.memory);
  EXPECT_EQ(launch.call.members[0].count, 4u);
}

// ---- Late sides ----

// A graph refuses these orders itself; a plan from elsewhere might not.
class LateSidesTest : public testing::Test {
 protected:
  LateSidesTest() {
    GraphBuilder builder;
    const GroupId dp = builder.Group("dp", 2);
    const BufferId late = builder.Buffer("late", 8, Ownership::kLateBound);
    builder.Compute("bind", {Write(late)});
    builder.AllReduce("sum", dp, late);
    plan_ = *BuildPlan(builder.graph(), {}, CostProfile{}).value();
  }

  absl::StatusOr<std::unique_ptr<Program>> Flatten() {
    Binding binding;
    binding.buffer_address = {nullptr};
    binding.group_rank = {1};
    binding.issue_inline = true;
    binding.caller_lanes.assign(plan_.num_compute_lanes, true);
    return commsched::Flatten(std::make_shared<Plan>(plan_), binding);
  }

  Plan plan_;
};

TEST_F(LateSidesTest, ALateMemberNamesItsBufferAndItsGroup) {
  const auto program = Flatten().value();
  ASSERT_EQ(program->late_buffers.size(), 1u);
  EXPECT_EQ(program->OpName(program->late_buffers[0].writer), "bind");
  ASSERT_EQ(program->late_members.size(), 1u);
  EXPECT_EQ(program->late_members[0].input, 0u);
  EXPECT_EQ(program->late_members[0].output, 0u);
  EXPECT_EQ(program->late_members[0].group_size, 2);
  EXPECT_EQ(program->late_members[0].group_rank, 1);
  EXPECT_EQ(program->launches[0].late.count, 1u);
  EXPECT_EQ(program->late_buffers[0].uses.count, 1u);
  EXPECT_EQ(program->nodes[0].late_writes.count, 1u);
}

TEST_F(LateSidesTest, AUseBeforeTheWriterIsAnError) {
  std::swap(plan_.dependencies.position[0], plan_.dependencies.position[1]);
  EXPECT_THAT(Flatten(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "'sum' uses late-bound buffer 'late' before 'bind' "
                       "binds it in the step"));
}

TEST_F(LateSidesTest, TwoWritersAreAnError) {
  plan_.nodes.push_back(plan_.nodes[0]);
  EXPECT_THAT(Flatten(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                  "late-bound buffer 'late' is written by "
                                  "'bind' and by 'bind'"));
}

// Each collective has a binding of its own, though both are on one buffer.
class SubmittedSidesTest : public testing::Test {
 protected:
  SubmittedSidesTest() {
    Graph graph;
    graph.BindLateAtSubmit();
    const GroupId dp = graph.AddGroup("dp", 2).value();
    Buffer buffer;
    buffer.name = "late";
    buffer.ownership = Ownership::kLateBound;
    buffer.count = 8;
    const BufferId late = graph.AddBuffer(buffer).value();
    for (const char* name : {"first", "second"}) {
      Op op;
      op.name = name;
      op.kind = OpKind::kCollective;
      op.collective =
          test::Spec(CollectiveKind::kAllReduce, dp, Read(late), Write(late));
      ops_.push_back(graph.AddOp(op).value());
    }
    plan_ = BuildPlan(graph, {}, CostProfile{}).value();
  }

  absl::StatusOr<std::unique_ptr<Program>> Flatten(
      std::vector<OpId> submitted) {
    Binding binding;
    binding.buffer_address = {nullptr};
    binding.group_rank = {1};
    binding.issue_inline = true;
    binding.submitted = std::move(submitted);
    return commsched::Flatten(plan_, binding);
  }

  std::shared_ptr<const Plan> plan_;
  std::vector<OpId> ops_;
};

TEST_F(SubmittedSidesTest, EachSubmissionBindsItsOwn) {
  const auto program = Flatten(ops_).value();
  ASSERT_EQ(program->late_buffers.size(), 2u);
  for (uint32_t i = 0; i < 2; ++i) {
    const Span32 own = program->late_of_op[ops_[i].value()];
    EXPECT_EQ(own.begin, i);
    EXPECT_EQ(own.count, 1u);
    EXPECT_EQ(program->late_buffers[i].writer, Plan::kNone);
    ASSERT_EQ(program->late_buffers[i].uses.count, 1u);
    const LateMember& member =
        program->late_members
            [program->late_uses[program->late_buffers[i].uses.begin]];
    EXPECT_EQ(member.op, ops_[i]);
    EXPECT_EQ(member.input, i);
    EXPECT_EQ(member.output, i);
  }
}

TEST_F(SubmittedSidesTest, OneThatNobodySubmitsIsAnError) {
  EXPECT_THAT(Flatten({ops_[0]}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "'second' uses late-bound buffer 'late', but nobody "
                       "submits it"));
}

TEST_F(LateSidesTest, APackedLateMemberIsAnError) {
  plan_.launches[0].way = Way::kPack;
  EXPECT_THAT(Flatten(), StatusIs(absl::StatusCode::kInternal,
                                  "'sum' has a late-bound side but is packed"));
}

}  // namespace
}  // namespace commsched
