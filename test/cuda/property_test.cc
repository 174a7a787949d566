// Random cyclic graphs on stand-in devices against a sequential reference
// (I1-I5), and what is found where a plan lacks a wait.
#include "test/support/property.h"

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "plan/verify/verify.h"
#include "test/cuda/device_job.h"
#include "test/cuda/stream_order.h"

namespace commsched {
namespace {

using test::DeviceJob;
using test::DrawDeviceJob;
using test::HasRace;
using test::Outcome;
using test::Plans;
using test::PropertyCases;
using test::PropertySeed;
using test::RunBySeed;
using test::RunOnThreads;

// Hosts race on threads only, which the thread sanitizer is for: of the share
// that it is given it runs 200 here.
#ifdef __SANITIZE_THREAD__
constexpr int kCasesOnThreads = 4000;
#else
constexpr int kCasesOnThreads = 200;
#endif

TEST(CudaPropertyTest, RandomStepsEndAsIfAllOpsHadRunOneAfterTheOther) {
  const int cases = PropertyCases(kCasesOnThreads);
  uint64_t waits = 0;
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = PropertySeed() + i;
    SCOPED_TRACE(test::DescribeSeed(seed));
    const DeviceJob drawn = DrawDeviceJob(seed);
    const Plans plans = drawn.MakePlans();
    for (const auto& plan : plans) {
      for (const Launch& launch : plan->launches) waits += launch.waits.size();
    }
    ASSERT_EQ(RunOnThreads(drawn, plans), "");
  }
  EXPECT_GT(waits, 0u);
}

// I2: whichever stream is late.
TEST(CudaPropertyTest, RandomStepsRaceNowhere) {
  const int cases = PropertyCases(300);
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = PropertySeed() + i;
    SCOPED_TRACE(test::DescribeSeed(seed));
    const DeviceJob drawn = DrawDeviceJob(seed);
    const Outcome outcome = RunBySeed(drawn, drawn.MakePlans());
    ASSERT_EQ(outcome.wrong, "");
    ASSERT_EQ(outcome.first_race, "");
  }
}

// A wait of a plan, in a launch or before a compute op.
struct WaitPlace {
  uint32_t role = 0;
  bool of_launch = false;
  size_t node = 0;
  size_t wait = 0;
};

std::vector<WaitPlace> WaitsOf(const Plans& plans) {
  std::vector<WaitPlace> places;
  for (uint32_t role = 0; role < plans.size(); ++role) {
    const Plan& plan = *plans[role];
    for (size_t i = 0; i < plan.launches.size(); ++i) {
      for (size_t w = 0; w < plan.launches[i].waits.size(); ++w) {
        places.push_back({role, true, i, w});
      }
    }
    for (size_t i = 0; i < plan.nodes.size(); ++i) {
      for (size_t w = 0; w < plan.nodes[i].waits.size(); ++w) {
        places.push_back({role, false, i, w});
      }
    }
  }
  return places;
}

Plans Without(const Plans& plans, const WaitPlace& place) {
  Plans broken = plans;
  auto copy = std::make_shared<Plan>(*plans[place.role]);
  WaitList& waits = place.of_launch ? copy->launches[place.node].waits
                                    : copy->nodes[place.node].waits;
  waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(place.wait));
  broken[place.role] = std::move(copy);
  return broken;
}

// Whichever one is missing: by what orders two accesses, not by luck.
TEST(CudaPropertyTest, AWaitThatIsMissingIsARace) {
  const int cases = PropertyCases(40);
  int missing = 0;
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = PropertySeed() + i;
    SCOPED_TRACE(test::DescribeSeed(seed));
    const DeviceJob drawn = DrawDeviceJob(seed);
    const Plans plans = drawn.MakePlans();
    ASSERT_FALSE(HasRace(drawn, plans));
    for (const WaitPlace& place : WaitsOf(plans)) {
      const Plans broken = Without(plans, place);
      if (!HasRace(drawn, broken)) continue;
      ++missing;
      EXPECT_GT(RunBySeed(drawn, broken).races, 0u)
          << VerifyPlan(*broken[place.role]).message();
      EXPECT_FALSE(VerifyPlan(*broken[place.role]).ok());
    }
  }
  std::printf("%d waits were left out, one at a time\n", missing);
  EXPECT_GT(missing, 0);
}

}  // namespace
}  // namespace commsched
