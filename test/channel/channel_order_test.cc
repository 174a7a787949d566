// What a channel asks a backend for if sums are to have the tree's order.
#include <cstdint>

#include "channel/channel_launch.h"
#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

constexpr uint32_t kTree = COMMSCHED_BACKEND_TREE_SUMS;
constexpr uint32_t kStreams = COMMSCHED_BACKEND_STREAM_ORDERED;

absl::Status Submitted(uint32_t capabilities, commsched_reduce_op_t reduce_op,
                       bool deterministic) {
  commsched_backend_t backend = {};
  backend.name = "some";
  backend.capabilities = capabilities;
  backend.reductions =
      COMMSCHED_BACKEND_BASIC_REDUCTIONS | COMMSCHED_BACKEND_SCALED_REDUCTIONS;
  ChannelGroup group;
  group.backend = &backend;
  group.axis = "dp";
  group.size = 2;
  float value = 1;
  ChannelOp op;
  op.kind = COMMSCHED_ALL_REDUCE;
  op.reduce_op = reduce_op;
  op.input = op.output = &value;
  op.count = 1;
  op.deterministic = deterministic;
  op.scale = 0.5;
  ChannelLaunch launch;
  return BuildLaunch(group, op, &launch);
}

TEST(ChannelOrderTest, ABackendThatHasNoneIsNotAskedForOne) {
  EXPECT_OK(Submitted(0, COMMSCHED_SUM, false));
  EXPECT_THAT(Submitted(0, COMMSCHED_SUM, true),
              StatusIs(absl::StatusCode::kUnimplemented,
                       "all_reduce: backend 'some' does not sum in the order "
                       "of the tree"));
}

// NCCL has an operation of its own for that.
TEST(ChannelOrderTest, ScaledInputsHaveNoneOnStreams) {
  EXPECT_OK(Submitted(kTree, COMMSCHED_PREMUL_SUM, true));
  EXPECT_OK(Submitted(kTree | kStreams, COMMSCHED_SUM, true));
  EXPECT_OK(Submitted(kTree | kStreams, COMMSCHED_PREMUL_SUM, false));
  EXPECT_THAT(Submitted(kTree | kStreams, COMMSCHED_PREMUL_SUM, true),
              StatusIs(absl::StatusCode::kUnimplemented,
                       "all_reduce: backend 'some' does not do premul_sum in "
                       "the order of the tree"));
}

}  // namespace
}  // namespace commsched
