#include "capi/convert.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

TEST(ConvertTest, ZeroProfileIsTheDefaultProfile) {
  ASSERT_OK_AND_ASSIGN(const CostProfile profile,
                       ToCostProfile(commsched_cost_profile_init()));
  const CostProfile expected;
  EXPECT_EQ(profile.link_bytes_per_s, expected.link_bytes_per_s);
  EXPECT_EQ(profile.link_latency_ns, expected.link_latency_ns);
  EXPECT_EQ(profile.launch_ns, expected.launch_ns);
  EXPECT_EQ(profile.copy_bytes_per_s, expected.copy_bytes_per_s);
  EXPECT_EQ(profile.flops_per_s, expected.flops_per_s);
  EXPECT_EQ(profile.memory_bytes_per_s, expected.memory_bytes_per_s);
  EXPECT_EQ(profile.num_ranks_sharing, 1u);
  EXPECT_EQ(profile.num_cores, 1u);
  EXPECT_TRUE(profile.op_cost_ns.empty());
}

// What include/commsched/plan.h promises for fields that are 0.
TEST(ConvertTest, DefaultsAreThoseOfTheHeader) {
  const CostProfile profile;
  EXPECT_EQ(profile.link_bytes_per_s, 10e9);
  EXPECT_EQ(profile.link_latency_ns, 0);
  EXPECT_EQ(profile.launch_ns, 20000);
  EXPECT_EQ(profile.copy_bytes_per_s, 5e9);
  EXPECT_EQ(profile.flops_per_s, 50e9);
  EXPECT_EQ(profile.memory_bytes_per_s, 10e9);
  EXPECT_EQ(PlanOptions().num_comm_lanes, 1u);
}

TEST(ConvertTest, EveryFieldOfAProfileArrives) {
  const std::vector<int64_t> costs = {1, 2};
  commsched_cost_profile_t given = commsched_cost_profile_init();
  given.link_bytes_per_s = 1;
  given.link_latency_ns = 2;
  given.launch_ns = 3;
  given.copy_bytes_per_s = 4;
  given.flops_per_s = 5;
  given.memory_bytes_per_s = 6;
  given.num_ranks_sharing = 7;
  given.num_cores = 8;
  given.op_cost_ns = costs.data();
  given.num_ops = costs.size();
  ASSERT_OK_AND_ASSIGN(const CostProfile profile, ToCostProfile(given));
  EXPECT_EQ(profile.link_bytes_per_s, 1);
  EXPECT_EQ(profile.link_latency_ns, 2);
  EXPECT_EQ(profile.launch_ns, 3);
  EXPECT_EQ(profile.copy_bytes_per_s, 4);
  EXPECT_EQ(profile.flops_per_s, 5);
  EXPECT_EQ(profile.memory_bytes_per_s, 6);
  EXPECT_EQ(profile.num_ranks_sharing, 7u);
  EXPECT_EQ(profile.num_cores, 8u);
  EXPECT_EQ(profile.op_cost_ns, costs);
}

TEST(ConvertTest, EveryFieldOfTheOptionsArrives) {
  commsched_plan_options_t given = commsched_plan_options_init();
  given.schedule = COMMSCHED_SERIAL;
  given.deterministic = 1;
  given.max_launches_in_flight = 2;
  given.num_comm_lanes = 3;
  given.max_bytes_in_flight = 4;
  given.coalesce_bytes = 5;
  given.arena_bytes = 6;
  ASSERT_OK_AND_ASSIGN(const PlanOptions options, ToPlanOptions(given));
  EXPECT_EQ(options.schedule, Schedule::kSerial);
  EXPECT_TRUE(options.deterministic);
  EXPECT_EQ(options.max_launches_in_flight, 2u);
  EXPECT_EQ(options.num_comm_lanes, 3u);
  EXPECT_EQ(options.max_bytes_in_flight, 4u);
  EXPECT_EQ(options.coalesce_bytes, 5u);
  EXPECT_EQ(options.arena_bytes, 6u);
}

TEST(ConvertTest, EveryFieldOfAComputeOpArrives) {
  commsched_access_t access = {};
  access.buffer = 3;
  access.mode = COMMSCHED_READ_WRITE;
  access.region = COMMSCHED_RANGE;
  access.offset = 4;
  access.count = 5;
  const commsched_op_id_t after = 6;
  commsched_compute_desc_t given = commsched_compute_desc_init();
  given.name = "op";
  given.accesses = &access;
  given.num_accesses = 1;
  given.after = &after;
  given.num_after = 1;
  given.lane = 7;
  given.priority = -9;
  given.cost_ns = 10;
  given.flops = 11;
  given.bytes = 12;
  ASSERT_OK_AND_ASSIGN(const Op op, ToComputeOp(given));
  EXPECT_EQ(op.name, "op");
  EXPECT_EQ(op.kind, OpKind::kCompute);
  ASSERT_EQ(op.accesses.size(), 1u);
  EXPECT_EQ(op.accesses[0].buffer, BufferId(3));
  EXPECT_EQ(op.accesses[0].mode, AccessMode::kReadWrite);
  EXPECT_EQ(op.accesses[0].region.kind, RegionKind::kRange);
  EXPECT_EQ(op.accesses[0].region.offset, 4u);
  EXPECT_EQ(op.accesses[0].region.count, 5u);
  EXPECT_FALSE(op.accesses[0].region.group.valid());
  EXPECT_EQ(op.after, std::vector<OpId>{OpId(6)});
  EXPECT_EQ(op.compute.lane, 7u);
  EXPECT_EQ(op.priority, -9);
  EXPECT_EQ(op.compute.cost_ns, 10);
  EXPECT_EQ(op.compute.flops, 11);
  EXPECT_EQ(op.compute.bytes, 12);
}

TEST(ConvertTest, CollectiveSaysTheModeOfItsSides) {
  const std::vector<uint64_t> counts = {1, 0, 2};
  commsched_collective_desc_t given = commsched_collective_desc_init();
  given.name = "gather";
  given.kind = COMMSCHED_ALL_GATHER;
  given.reduce_op = 77;  // Not a reducing kind: not looked at.
  given.group = 1;
  given.root = 2;
  given.priority = 3;
  given.input.buffer = 4;
  given.input.region = COMMSCHED_SHARD;
  given.input.group = 1;
  given.output.buffer = 5;
  given.counts = counts.data();
  given.num_counts = 3;
  ASSERT_OK_AND_ASSIGN(const Op op, ToCollectiveOp(given));
  EXPECT_EQ(op.kind, OpKind::kCollective);
  EXPECT_EQ(op.priority, 3);
  EXPECT_EQ(op.collective.kind, CollectiveKind::kAllGather);
  EXPECT_EQ(op.collective.group, GroupId(1));
  EXPECT_EQ(op.collective.root, 2);
  EXPECT_EQ(op.collective.input.mode, AccessMode::kRead);
  EXPECT_EQ(op.collective.input.region.kind, RegionKind::kShard);
  EXPECT_EQ(op.collective.input.region.group, GroupId(1));
  EXPECT_EQ(op.collective.output.buffer, BufferId(5));
  EXPECT_EQ(op.collective.output.mode, AccessMode::kWrite);
  EXPECT_EQ(op.collective.counts, counts);
}

TEST(ConvertTest, EnumBeyondItsLastNameIsRefused) {
  commsched_buffer_desc_t buffer = commsched_buffer_desc_init();
  buffer.name = "b";
  buffer.dtype = COMMSCHED_U8;
  buffer.ownership = COMMSCHED_BOUND;
  EXPECT_OK(ToBuffer(buffer));
  buffer.dtype = COMMSCHED_BOOL + 1;
  EXPECT_THAT(ToBuffer(buffer), StatusIs(absl::StatusCode::kInvalidArgument,
                                         "dtype is 17, outside 0..16"));
  EXPECT_THAT(ToFlag("x.on", 2), StatusIs(absl::StatusCode::kInvalidArgument,
                                          "x.on is 2, not 0 or 1"));
}

}  // namespace
}  // namespace commsched
