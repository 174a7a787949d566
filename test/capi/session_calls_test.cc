// The calls that a step is made of, through the ABI.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "commsched/commsched.hpp"
#include "gtest/gtest.h"
#include "test/support/alloc_counter.h"

namespace commsched {
namespace {

template <typename T>
T Value(api::Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  return *std::move(result);
}

// A chain of "op.<i>", each making a buffer that an all-reduce sums, on one
// rank of the null backend.
class SessionCallsTest : public ::testing::Test {
 protected:
  static constexpr int kOps = 16;

  SessionCallsTest() {
    api::Graph graph;
    Value(graph.AddGroup("dp", 1));
    for (int i = 0; i < kOps; ++i) AddPair(graph, std::to_string(i));
    commsched_world_desc_t desc = commsched_world_desc_init();
    desc.size = 1;
    desc.backend = "null";
    const api::World world = Value(api::World::CreateInproc(desc));
    const api::Context context = Value(api::Context::Create(world, 0));
    const api::Group group = Value(api::Group::CreateWorld(context, "dp"));
    const api::Plan plan = Value(api::Plan::Build(graph));
    api::SessionSpec spec;
    spec.context = &context;
    spec.plan = &plan;
    spec.groups = {&group};
    session_ = Value(api::Session::Create(spec));
  }

  void AddPair(api::Graph& graph, const std::string& name) {
    api::Buffer buffer;
    buffer.name = "buffer." + name;
    buffer.count = 1;
    const api::BufferId id = Value(graph.AddBuffer(buffer));
    api::Compute compute;
    compute.name = "op." + name;
    compute.accesses = {api::Writes(id)};
    ops_.push_back(Value(graph.Add(compute)));
    api::Collective sum;
    sum.name = "sum." + name;
    sum.input = api::Reads(id);
    sum.output = api::Writes(id);
    Value(graph.Add(sum));
  }

  // Returns the first code that is not OK.
  commsched_status_t Step() {
    const commsched_stream_t here = commsched_stream_caller();
    commsched_status_t status = commsched_session_step_begin(session_.get());
    for (const api::OpId op : ops_) {
      if (status != COMMSCHED_OK) return status;
      status = commsched_session_before(session_.get(), op, here);
      if (status != COMMSCHED_OK) return status;
      status = commsched_session_after(session_.get(), op, here);
    }
    if (status != COMMSCHED_OK) return status;
    return commsched_session_step_end(session_.get());
  }

  std::vector<api::OpId> ops_;
  api::Session session_;
};

TEST_F(SessionCallsTest, StepsAllocateNothing) {
  for (int i = 0; i < 3; ++i) ASSERT_EQ(Step(), COMMSCHED_OK);
  const uint64_t before = HeapAllocations();
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(Step(), COMMSCHED_OK);
  EXPECT_EQ(HeapAllocations() - before, 0u);
}

TEST_F(SessionCallsTest, SessionLivesWithoutItsParentsHandles) {
  EXPECT_EQ(Step(), COMMSCHED_OK);
  EXPECT_TRUE(session_.Drain().ok());
  EXPECT_EQ(Value(session_.GetCounters()).launches, uint64_t{kOps});
}

}  // namespace
}  // namespace commsched
