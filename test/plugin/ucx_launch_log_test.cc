#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "test/support/launches.h"
#include "ucx/launch_log.h"

namespace commsched {
namespace {

using ucx::LaunchLog;
using ucx::LaunchReport;

commsched_launch_t AllReduce(commsched_reduce_op_t reduce_op = COMMSCHED_SUM,
                             commsched_dtype_t dtype = COMMSCHED_F32) {
  return LaunchOf(COMMSCHED_ALL_REDUCE, dtype, reduce_op, 0, 0, 0, nullptr);
}

commsched_launch_t Other(commsched_collective_t kind, int32_t root = 0) {
  return LaunchOf(kind, COMMSCHED_F32, COMMSCHED_SUM, root, 0, 0, nullptr);
}

// Of one launch of each of two ranks.
std::string Difference(const commsched_launch_t& theirs,
                       const commsched_launch_t& own) {
  LaunchLog there, here;
  there.Add(theirs);
  here.Add(own);
  return here.DifferenceFrom(there.Report(), "rank 1", "rank 0");
}

TEST(UcxLaunchLogTest, WhatDiffersIsNamed) {
  EXPECT_EQ(Difference(AllReduce(), AllReduce()), "");
  EXPECT_EQ(Difference(Other(COMMSCHED_BARRIER), AllReduce()),
            "launch #0: rank 1 has kind barrier, rank 0 has kind all_reduce");
  EXPECT_EQ(Difference(AllReduce(COMMSCHED_SUM, COMMSCHED_I32), AllReduce()),
            "launch #0: rank 1 has dtype i32, rank 0 has dtype f32");
  EXPECT_EQ(Difference(AllReduce(COMMSCHED_PREMUL_SUM), AllReduce()),
            "launch #0: rank 1 has reduction premul_sum, rank 0 has reduction "
            "sum");
  EXPECT_EQ(Difference(Other(COMMSCHED_REDUCE, 3), Other(COMMSCHED_REDUCE, 2)),
            "launch #0: rank 1 has root 3, rank 0 has root 2");
  commsched_launch_t in_order = AllReduce();
  in_order.deterministic = 1;
  EXPECT_EQ(Difference(in_order, AllReduce()),
            "launch #0: rank 1 has deterministic 1, rank 0 has deterministic "
            "0");
}

TEST(UcxLaunchLogTest, WhatAKindDoesNotHaveDoesNotDiffer) {
  commsched_launch_t gather = Other(COMMSCHED_ALL_GATHER, 1);
  gather.reduce_op = COMMSCHED_MAX;
  gather.deterministic = 1;
  EXPECT_EQ(Difference(gather, Other(COMMSCHED_ALL_GATHER)), "");
  commsched_launch_t barrier = Other(COMMSCHED_BARRIER);
  barrier.dtype = COMMSCHED_I64;
  EXPECT_EQ(Difference(barrier, Other(COMMSCHED_BARRIER)), "");
  EXPECT_EQ(Difference(Other(COMMSCHED_ALL_REDUCE, 1), AllReduce()), "");
}

TEST(UcxLaunchLogTest, TheFirstDifferenceIsNamedByItsNumber) {
  LaunchLog there, here;
  for (uint64_t i = 0; i < 100; ++i) {
    there.Add(i >= 70 ? Other(COMMSCHED_BARRIER) : AllReduce());
    here.Add(AllReduce());
  }
  EXPECT_EQ(here.DifferenceFrom(there.Report(), "rank 1", "rank 0"),
            "launch #70: rank 1 has kind barrier, rank 0 has kind all_reduce");
  // That many launches are in a report.
  EXPECT_EQ(there.Report().begin, 100 - LaunchReport::kMost);
  EXPECT_EQ(here.DifferenceFrom(there.ReportFrom(10), "rank 1", "rank 0"), "");
}

TEST(UcxLaunchLogTest, WhatOneOfTheTwoDoesNotKnowIsNotCompared) {
  LaunchLog there, here;
  there.Add(AllReduce());
  there.Add(AllReduce(COMMSCHED_MAX));
  here.Add(AllReduce());
  const LaunchReport report = there.Report();
  EXPECT_EQ(here.DifferenceFrom(report, "rank 1", "rank 0"), "");
  here.Add(AllReduce());
  EXPECT_NE(here.DifferenceFrom(report, "rank 1", "rank 0"), "");
  // It has forgotten.
  for (uint64_t i = 0; i < LaunchLog::kKept; ++i) here.Add(AllReduce());
  EXPECT_EQ(here.DifferenceFrom(report, "rank 1", "rank 0"), "");
}

TEST(UcxLaunchLogTest, AReportThatMakesNoSenseIsReadNoFurtherThanItIs) {
  LaunchLog here;
  for (uint64_t i = 0; i < LaunchReport::kMost; ++i) here.Add(AllReduce());
  LaunchReport report = here.Report();
  report.count = UINT32_MAX;
  EXPECT_EQ(here.DifferenceFrom(report, "rank 1", "rank 0"), "");
  report.begin = UINT64_MAX - 3;
  EXPECT_EQ(here.DifferenceFrom(report, "rank 1", "rank 0"), "");
}

TEST(UcxLaunchLogTest, ToldAreTheFirstOnesAndThenOneOf32) {
  LaunchLog log;
  std::string told;
  for (int i = 1; i <= 100; ++i) {
    log.Add(AllReduce());
    if (log.IsToBeTold()) told += std::to_string(i) + " ";
  }
  EXPECT_EQ(told, "1 2 4 8 16 32 64 96 ");
}

}  // namespace
}  // namespace commsched
