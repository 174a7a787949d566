// commsched.hpp: what it adds to the C ABI, which has its own test. Compiled as
// C++17 too.
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "commsched/commsched.hpp"
#include "gtest/gtest.h"

namespace {

namespace cs = commsched::api;

static_assert(!std::is_copy_constructible_v<cs::Session>);
static_assert(std::is_nothrow_move_constructible_v<cs::Session>);
static_assert(std::is_nothrow_move_assignable_v<cs::Plan>);
static_assert(!std::is_copy_constructible_v<cs::HostStream>);

template <typename T>
T Value(cs::Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  return *std::move(result);
}

cs::Buffer BoundBuffer(const char* name, uint64_t count) {
  cs::Buffer buffer;
  buffer.name = name;
  buffer.count = count;
  buffer.ownership = COMMSCHED_BOUND;
  return buffer;
}

// "backward" writes "grad", "reduce" sums it in place over one rank.
struct Step {
  cs::Graph graph;
  cs::BufferId grad;
  cs::OpId backward;
};

Step MakeStep() {
  Step step;
  const cs::GroupId group = Value(step.graph.AddGroup("dp", 1));
  step.grad = Value(step.graph.AddBuffer(BoundBuffer("grad", 4)));
  cs::Compute backward;
  backward.name = "backward";
  backward.accesses = {cs::Writes(step.grad)};
  step.backward = Value(step.graph.Add(backward));
  cs::Collective reduce;
  reduce.name = "reduce";
  reduce.group = group;
  reduce.input = cs::Reads(step.grad);
  reduce.output = cs::Writes(step.grad);
  Value(step.graph.Add(reduce));
  return step;
}

TEST(WrapperTest, FailureCarriesCodeAndMessage) {
  cs::Graph graph;
  const cs::Result<cs::BufferId> buffer =
      graph.AddBuffer(BoundBuffer("empty", 0));
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.status().code(), COMMSCHED_INVALID_ARGUMENT);
  EXPECT_NE(buffer.status().message().find("'empty'"), std::string::npos);
  EXPECT_EQ(buffer.status().ToString().rfind("INVALID_ARGUMENT: ", 0), 0u);
  EXPECT_EQ(cs::Status().ToString(), "OK");
}

TEST(WrapperTest, BuffersOfAPlaceGroupShareTheirMemory) {
  cs::Graph graph;
  for (const char* name : {"one", "two"}) {
    cs::Buffer buffer;
    buffer.name = name;
    buffer.count = 64;
    buffer.place_group = 1;
    cs::Compute make;
    make.name = name;
    make.accesses = {cs::Writes(Value(graph.AddBuffer(buffer)))};
    Value(graph.Add(make));
  }
  const cs::Plan plan = Value(cs::Plan::Build(graph));
  EXPECT_EQ(Value(plan.GetInfo()).arena_bytes, 256u);
  EXPECT_EQ(Value(plan.GetInfo()).place_group_bytes, 0u);
}

TEST(WrapperTest, EmptyHandleIsRefusedByName) {
  cs::Session empty;
  EXPECT_FALSE(empty);
  EXPECT_EQ(empty.StepBegin().code(), COMMSCHED_INVALID_ARGUMENT);
  const commsched_stream_t here = cs::CallerStream();
  EXPECT_EQ(empty.CaptureBegin(here).code(), COMMSCHED_INVALID_ARGUMENT);
  EXPECT_EQ(empty.CaptureEnd().code(), COMMSCHED_INVALID_ARGUMENT);
  EXPECT_EQ(empty.ReplayBegin(here).code(), COMMSCHED_INVALID_ARGUMENT);
  EXPECT_EQ(empty.ReplayEnd().code(), COMMSCHED_INVALID_ARGUMENT);
  cs::Graph graph;
  cs::Graph taken = std::move(graph);
  EXPECT_TRUE(taken);
  EXPECT_EQ(graph.Reserve(1).message(), "argument 'graph' is NULL");
}

TEST(WrapperTest, HandlesDestroyInAnyOrder) {
  cs::World world = Value(cs::World::CreateInproc(1));
  cs::Context context = Value(cs::Context::Create(world, 0));
  const cs::Group group = Value(cs::Group::CreateWorld(context, "dp"));
  world = cs::World();
  context = cs::Context();
  EXPECT_EQ(group.size(), 1);
  EXPECT_EQ(group.rank(), 0);
}

TEST(WrapperTest, AccessHelpersSetWhatTheyName) {
  const commsched_access_t range = cs::Range(cs::ReadsAndWrites(3), 8, 16);
  EXPECT_EQ(range.buffer, 3u);
  EXPECT_EQ(range.mode, uint32_t{COMMSCHED_READ_WRITE});
  EXPECT_EQ(range.region, uint32_t{COMMSCHED_RANGE});
  EXPECT_EQ(range.offset, 8u);
  EXPECT_EQ(range.count, 16u);
  const commsched_access_t shard = cs::Shard(cs::Reads(2), 1);
  EXPECT_EQ(shard.region, uint32_t{COMMSCHED_SHARD});
  EXPECT_EQ(shard.group, 1u);
}

TEST(WrapperTest, APartOfAWorldIsAContextOfItsOwn) {
  cs::World world = Value(cs::World::CreateInproc(3));
  cs::Context context = Value(cs::Context::Create(world, 2));
  const cs::Context part = Value(context.Split({2}, "alone"));
  context = cs::Context();
  world = cs::World();
  EXPECT_EQ(part.rank(), 0);
  EXPECT_EQ(part.world_size(), 1);
  EXPECT_EQ(part.Split({1}, "nobody").status().code(), COMMSCHED_OUT_OF_RANGE);
}

TEST(WrapperTest, ThreadsAreOnOneHost) {
  const cs::World world = Value(cs::World::CreateInproc(3));
  const cs::Context context = Value(cs::Context::Create(world, 2));
  EXPECT_EQ(Value(context.Hosts()), std::vector<int32_t>(3));
}

TEST(WrapperTest, MeshGivesTheGroupOfAnAxis) {
  const cs::World world = Value(cs::World::CreateInproc(6));
  const cs::Context context = Value(cs::Context::Create(world, 4));
  const cs::Mesh mesh =
      Value(cs::Mesh::Create(context, {{"dp", 2}, {"tp", 3}}));
  EXPECT_EQ(Value(mesh.GroupOf("dp")).rank(), 1);
  EXPECT_EQ(Value(mesh.GroupOf("tp")).rank(), 1);
  EXPECT_EQ(Value(mesh.GroupOf("tp")).size(), 3);
  EXPECT_EQ(mesh.GroupOf("pp").status().code(), COMMSCHED_NOT_FOUND);
}

TEST(WrapperTest, AStreamReleasesItself) {
  const cs::World world = Value(cs::World::CreateInproc(1));
  const cs::Context context = Value(cs::Context::Create(world, 0));
  int count = 0;
  {
    cs::HostStream stream = Value(cs::HostStream::Create(context, "worker", 4));
    const auto increment = [](void* user) { ++*static_cast<int*>(user); };
    ASSERT_TRUE(stream.Enqueue(increment, &count).ok());
    cs::HostStream moved = std::move(stream);
    ASSERT_TRUE(moved.Enqueue(increment, &count).ok());
  }
  EXPECT_EQ(count, 2);
}

TEST(WrapperTest, GraphGoesThroughJson) {
  const Step step = MakeStep();
  const std::string json = Value(step.graph.ToJson());
  const cs::Graph copy = Value(cs::Graph::FromJson(json));
  EXPECT_EQ(copy.num_ops(), 2u);
  EXPECT_EQ(Value(copy.FindOp("reduce")), 1u);
  EXPECT_EQ(Value(copy.ToJson()), json);
}

TEST(WrapperTest, RunCallsBackAnyCallable) {
  const Step step = MakeStep();
  const cs::Plan plan = Value(cs::Plan::Build(step.graph));
  EXPECT_EQ(Value(plan.GetInfo()).num_ops, 2u);
  EXPECT_GT(Value(plan.Predict()).step_ns, 0);
  EXPECT_NE(Value(plan.Explain()).find("reduce"), std::string::npos);
  const cs::World world = Value(cs::World::CreateInproc(1));
  const cs::Context context = Value(cs::Context::Create(world, 0));
  const cs::Group group = Value(cs::Group::CreateWorld(context, "dp"));
  const cs::Trace trace = Value(cs::Trace::Create(context, 1024));
  std::vector<float> grad(4);
  cs::SessionSpec spec;
  spec.context = &context;
  spec.plan = &plan;
  spec.groups = {&group};
  spec.trace = &trace;
  spec.Bind(step.grad, grad.data(), grad.size() * sizeof(float));
  cs::Session session = Value(cs::Session::Create(spec));
  int calls = 0;
  const cs::Status ran = session.Run(3, [&](cs::OpId op, commsched_stream_t) {
    EXPECT_EQ(op, step.backward);
    grad.assign(4, static_cast<float>(++calls));
    return commsched_status_t{COMMSCHED_OK};
  });
  ASSERT_TRUE(ran.ok()) << ran.ToString();
  ASSERT_TRUE(session.Drain().ok());
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(grad, std::vector<float>(4, 3.0f));
  EXPECT_EQ(Value(session.GetCounters()).steps, 3u);
  EXPECT_NE(Value(session.Explain()).find("launches, in key order"),
            std::string::npos);
  EXPECT_EQ(session.LaunchEstimate(0).status().code(), COMMSCHED_UNIMPLEMENTED);
  EXPECT_EQ(Value(session.BufferVersion(step.grad)), 3u);
  EXPECT_EQ(Value(session.Address(step.backward, step.grad)), grad.data());
  EXPECT_EQ(Value(session.CollectiveCpuNs(2)).size(), 2u);
  EXPECT_EQ(trace.num_steps(), 2u);
}

}  // namespace
