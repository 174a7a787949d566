// Random jobs, planned and driven in a random way, on real sessions.
#ifndef COMMSCHED_TEST_SUPPORT_RANDOM_RUN_H_
#define COMMSCHED_TEST_SUPPORT_RANDOM_RUN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/world.h"
#include "plan/planner.h"
#include "test/support/fault_backend.h"
#include "test/support/random_job.h"
#include "test/support/random_step.h"

namespace commsched::test {

// A random job, and what else is drawn: how it is planned and driven.
struct RandomRun {
  static constexpr uint64_t kSteps = 4;

  RandomJob job;
  PlanOptions options;
  CostProfile profile;
  WorldSpec world;  // Of ranks that are threads.
  std::vector<Fault> delays;
  bool worker_lanes = false;    // compute lanes are worker streams
  bool shuffled_calls = false;  // before/after in a random legal order
  uint64_t seed = 0;

  // By role.
  using Plans = std::vector<std::shared_ptr<const Plan>>;
  Plans BuildPlans() const;
};

// The same for the same arguments; of `min_ranks` to `max_ranks` ranks.
RandomRun DrawRandomRun(uint64_t seed, int min_ranks = 1, int max_ranks = 4);

// Runs all steps as rank `rank` of `world`, under the plan of its role, and
// drains. `*out_memory` is then the rank's memory.
absl::Status RunAsRank(const RandomRun& run, std::shared_ptr<World> world,
                       std::shared_ptr<const Plan> plan, int rank,
                       RankMemory* out_memory);

// The first buffer whose memory differs from what the sequential reference
// gives, `expected`: "" if none does. Owned and late-bound ones are not looked
// at.
std::string FindDifference(const RandomRun& run, const RankMemory& memory,
                           const RankMemory& expected);

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_SUPPORT_RANDOM_RUN_H_
