// Which reductions backend "nccl" takes.
#include <cstdint>
#include <memory>

#include "comm/world.h"
#include "gtest/gtest.h"
#include "test/cuda/gpu_rig.h"
#include "test/support/comm_driver.h"
#include "test/support/launches.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using absl::StatusCode;

// Launches `op` of a few elements, which nobody looks at, on one rank.
absl::Status LaunchAlone(commsched_dtype_t dtype, commsched_reduce_op_t op,
                         bool deterministic, bool is_expected) {
  WorldSpec spec;
  spec.size = 1;
  spec.table = test::NcclTable();
  spec.devices = {test::FakeDevice(0)};
  const std::shared_ptr<World> world = *World::Create(spec);
  const test::DeviceMemory memory(test::FakeDevice(0), 64);
  const commsched_member_t member = {
      memory.address(), memory.address(), 8, nullptr, 0, 0, 0, 0};
  commsched_launch_t launch = LaunchOf(COMMSCHED_ALL_REDUCE, dtype, op, 0,
                                       deterministic ? 1 : 0, 1, &member);
  launch.scale = 0.5;
  CommDriver comm;
  EXPECT_OK(comm.Create(world.get(), {}, 0));
  return is_expected ? comm.Expect({launch}) : comm.LaunchAndWait(launch);
}

TEST(NcclReductionsTest, BitsAreRefusedByName) {
  for (const bool is_expected : {true, false}) {
    EXPECT_THAT(
        LaunchAlone(COMMSCHED_I32, COMMSCHED_BAND, false, is_expected),
        StatusIs(StatusCode::kUnimplemented,
                 "NCCL has no reduction band; it has sum, avg, min, max, prod, "
                 "and premul_sum of floating-point types"));
  }
  EXPECT_THAT(LaunchAlone(COMMSCHED_I32, COMMSCHED_BOR, false, false),
              StatusIs(StatusCode::kUnimplemented, "no reduction bor"));
  EXPECT_THAT(LaunchAlone(COMMSCHED_U8, COMMSCHED_BXOR, true, false),
              StatusIs(StatusCode::kUnimplemented, "no reduction bxor"));
  EXPECT_THAT(LaunchAlone(COMMSCHED_U8, 9, false, false),
              StatusIs(StatusCode::kInvalidArgument, "no reduction 9"));
}

TEST(NcclReductionsTest, AScaleIsForNcclsOwnSums) {
  EXPECT_OK(LaunchAlone(COMMSCHED_F16, COMMSCHED_PREMUL_SUM, false, false));
  EXPECT_THAT(
      LaunchAlone(COMMSCHED_F32, COMMSCHED_PREMUL_SUM, true, false),
      StatusIs(StatusCode::kUnimplemented,
               "NCCL has no reduction premul_sum in the order of the tree"));
  EXPECT_THAT(LaunchAlone(COMMSCHED_I64, COMMSCHED_PREMUL_SUM, false, false),
              StatusIs(StatusCode::kInvalidArgument,
                       "NCCL has no reduction premul_sum of integers"));
}

}  // namespace
}  // namespace commsched
