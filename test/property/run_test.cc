// Random cyclic graphs on real threads against a sequential reference (I1-I5):
// whatever the plan coalesces, caps, places or overlaps, and whatever the
// timing of threads and launches, memory ends up as if all ops had run one
// after the other.
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/world.h"
#include "gtest/gtest.h"
#include "test/support/fault_backend.h"
#include "test/support/property.h"
#include "test/support/random_run.h"

namespace commsched {
namespace {

using test::DrawRandomRun;
using test::FaultBackend;
using test::FindDifference;
using test::PropertyCases;
using test::PropertySeed;
using test::RandomRun;
using test::RankMemory;
using test::RunAsRank;
using test::RunSequentially;

using Plans = RandomRun::Plans;

// Runs `drawn` under `plans`, its ranks as threads. Says how a status or memory
// differs from what the reference gives: "" if nothing does.
std::string RunUnder(const RandomRun& drawn, const Plans& plans) {
  FaultBackend backend(drawn.delays);
  absl::StatusOr<std::shared_ptr<World>> world = World::Create(
      drawn.delays.empty() ? drawn.world : backend.Spec(drawn.world));
  if (!world.ok()) return std::string(world.status().message());
  std::vector<RankMemory> memory(drawn.job.num_ranks());
  std::vector<absl::Status> statuses(drawn.job.num_ranks());
  std::vector<std::thread> threads;
  for (int r = 0; r < drawn.job.num_ranks(); ++r) {
    threads.emplace_back([&, r] {
      statuses[r] = RunAsRank(drawn, *world, plans[drawn.job.role_of_rank[r]],
                              r, &memory[r]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<RankMemory> expected =
      RunSequentially(drawn.job.step, RandomRun::kSteps);
  for (int r = 0; r < drawn.job.num_ranks(); ++r) {
    if (!statuses[r].ok()) {
      return absl::StrCat("rank ", r, ": ", statuses[r].ToString());
    }
    const std::string buffer = FindDifference(drawn, memory[r], expected[r]);
    if (!buffer.empty()) {
      return absl::StrCat("buffer '", buffer, "' of rank ", r);
    }
  }
  return "";
}

TEST(RunPropertyTest, RandomStepsEndAsIfAllOpsHadRunOneAfterTheOther) {
  const int cases = PropertyCases(2000);
  std::map<Way, int> ways;
  uint64_t waits = 0, delayed = 0;
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = PropertySeed() + i;
    SCOPED_TRACE(test::DescribeSeed(seed));
    const RandomRun drawn = DrawRandomRun(seed);
    const Plans plans = drawn.BuildPlans();
    for (const auto& plan : plans) {
      for (const Launch& launch : plan->launches) {
        ++ways[launch.way];
        waits += launch.waits.size();
      }
    }
    ASSERT_EQ(RunUnder(drawn, plans), "");
    delayed += drawn.delays.empty() ? 0 : 1;
  }
  EXPECT_GE(ways[Way::kSingle], cases) << "the graphs have become trivial";
  if (cases < 1000) return;
  for (Way way : {Way::kInPlace, Way::kGroup, Way::kPack}) {
    EXPECT_GT(ways[way], 10) << "way " << static_cast<int>(way);
  }
  EXPECT_GT(waits, 0u);
  EXPECT_GT(delayed, 100u);
}

// The test above can fail: without the launches' waits for compute on worker
// streams, and without those between launches, some result is wrong.
TEST(RunPropertyTest, PlansWithoutWaitsAreFoundWrong) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "races on purpose, which the thread sanitizer reports";
#endif
  int wrong = 0;
  for (int i = 0; i < 400; ++i) {
    const RandomRun drawn = DrawRandomRun(PropertySeed() + i);
    Plans broken;
    for (const auto& plan : drawn.BuildPlans()) {
      auto copy = std::make_shared<Plan>(*plan);
      for (Launch& launch : copy->launches) launch.waits.clear();
      for (ComputeNode& node : copy->nodes) node.waits.clear();
      broken.push_back(std::move(copy));
    }
    if (!RunUnder(drawn, broken).empty()) ++wrong;
  }
  EXPECT_GT(wrong, 20);
}

}  // namespace
}  // namespace commsched
