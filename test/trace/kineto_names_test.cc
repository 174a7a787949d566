#include "trace/kineto_names.h"

#include "gtest/gtest.h"

namespace commsched {
namespace {

TEST(ComputeKernelNameTest, HarmlessNameIsKept) {
  EXPECT_EQ(ComputeKernelName("forward h.0"), "forward h.0");
  EXPECT_EQ(ComputeKernelName("async memcpy DMA"), "async memcpy DMA");
  EXPECT_EQ(ComputeKernelName(""), "");
}

TEST(ComputeKernelNameTest, WordsThatMakeItNoComputationChangeCase) {
  EXPECT_EQ(ComputeKernelName("GradSync 3"), "Gradsync 3");
  EXPECT_EQ(ComputeKernelName("my Memcpy and Memset"), "my memcpy and memset");
  EXPECT_EQ(ComputeKernelName("windmap"), "winDMAp");
  EXPECT_EQ(ComputeKernelName("x ncclKernel"), "x NcclKernel");
  EXPECT_EQ(ComputeKernelName("ProfilerStep#4"), "profilerStep#4");
}

TEST(ComputeKernelNameTest, TakenBeginningsGetAnotherBeginning) {
  EXPECT_EQ(ComputeKernelName("nccl_pack"), "op:nccl_pack");
  EXPECT_EQ(ComputeKernelName("hipster"), "op:hipster");
  EXPECT_EQ(ComputeKernelName("cudaLaunchKernel"), "op:cudaLaunchKernel");
  EXPECT_EQ(ComputeKernelName("runFunction"), "op:runFunction");
  EXPECT_EQ(ComputeKernelName("Stream Wait Event"), "op:Stream Wait Event");
}

TEST(LaunchKernelNameTest, SaysCollectiveReductionTypeAndMembers) {
  RecordNames::LaunchName launch;
  launch.name = "reduce_scatter grad.0+grad.1";
  launch.collective = "_reduce_scatter_base";
  launch.reduction = "sum";
  launch.dtype = "f32";
  EXPECT_EQ(LaunchKernelName(launch),
            "ncclDevKernel_ReduceScatter_Sum_f32_grad.0+grad.1(commsched)");
}

TEST(LaunchKernelNameTest, EveryCollectiveHasTheNameOfItsKernel) {
  const auto name_of = [](const char* collective) {
    RecordNames::LaunchName launch;
    launch.collective = collective;
    return LaunchKernelName(launch);
  };
  EXPECT_EQ(name_of("allreduce"), "ncclDevKernel_AllReduce(commsched)");
  EXPECT_EQ(name_of("_allgather_base"), "ncclDevKernel_AllGather(commsched)");
  EXPECT_EQ(name_of("all_to_all"), "ncclDevKernel_SendRecv(commsched)");
  EXPECT_EQ(name_of("broadcast"), "ncclDevKernel_Broadcast(commsched)");
  EXPECT_EQ(name_of("reduce"), "ncclDevKernel_Reduce(commsched)");
  EXPECT_EQ(name_of("barrier"), "ncclDevKernel_AllReduce(commsched)");
  EXPECT_EQ(name_of("send"), "ncclDevKernel_SendRecv(commsched)");
  EXPECT_EQ(name_of("new_thing"), "ncclDevKernel_NewThing(commsched)");
}

TEST(LaunchKernelNameTest, SpacesAndBracketsOfTheNameAreReplaced) {
  RecordNames::LaunchName launch;
  launch.name = "broadcast a b(c)<d>";
  launch.collective = "broadcast";
  EXPECT_EQ(LaunchKernelName(launch),
            "ncclDevKernel_Broadcast_a_b_c__d_(commsched)");
}

}  // namespace
}  // namespace commsched
