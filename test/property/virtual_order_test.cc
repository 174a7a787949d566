// Random jobs of several roles on one thread, in any order of host calls,
// streams, lanes and transfers, with and without faults (I1-I5, I7).
//
// The long run: COMMSCHED_PROPERTY_SCALE=10000 test_property
//   --gtest_filter='VirtualPropertyTest.*'
#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/json.h"
#include "gtest/gtest.h"
#include "plan/planner.h"
#include "test/property/plan_text.h"
#include "test/property/virtual_run.h"
#include "test/support/property.h"
#include "test/support/random_job.h"

namespace commsched {
namespace {

using test::Fault;
using test::MakeRandomJob;
using test::PropertyCases;
using test::PropertySeed;
using test::RandomJob;
using test::RandomStepLimits;
using test::RankMemory;
using test::RunOutcome;
using test::Trouble;
using test::VirtualRun;

using Plans = std::vector<std::shared_ptr<const Plan>>;

// Runs of one job under one plan, each with an order and trouble of its own.
constexpr int kRunsPerJob = 10;

class Drawing {
 public:
  explicit Drawing(uint64_t seed) : random_(seed) {}
  int operator()(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random_);
  }

 private:
  std::mt19937_64 random_;
};

struct OrderCase {
  RandomJob job;
  Plans plans;
  std::vector<std::vector<RankMemory>> expected;
  bool tight = false;  // the arena is smaller than everything side by side
  std::string wrong;
};

RandomStepLimits DrawLimits(Drawing& draw) {
  RandomStepLimits limits;
  limits.max_ranks = draw(2, 4);
  limits.max_ops = draw(3, 25);
  limits.max_buffers = draw(2, 8);
  limits.max_compute_lanes = draw(1, 3);
  limits.subgroups = draw(0, 1) == 1;
  limits.tiles = draw(0, 1) == 1;
  limits.late_bound = draw(0, 2) == 0;
  limits.peers = draw(0, 1) == 1;
  limits.uneven = draw(0, 1) == 1;
  limits.barriers = draw(0, 1) == 1;
  return limits;
}

PlanOptions DrawOptions(Drawing& draw) {
  PlanOptions options;
  options.schedule = draw(0, 4) == 0 ? Schedule::kSerial : Schedule::kOverlap;
  options.deterministic = draw(0, 1) == 1;
  options.max_launches_in_flight = static_cast<uint32_t>(draw(0, 4));
  options.max_bytes_in_flight =
      static_cast<uint64_t>(draw(0, 1) * draw(8, 600));
  options.coalesce_bytes = static_cast<uint64_t>(draw(0, 2) * draw(16, 1000));
  options.num_comm_lanes = static_cast<uint32_t>(draw(1, 3));
  options.partition_bytes = static_cast<uint64_t>(draw(0, 1) * draw(8, 200));
  options.priority = static_cast<Priority>(draw(0, 2));
  return options;
}

uint64_t LargestArena(const Plans& plans) {
  uint64_t bytes = 0;
  for (const auto& plan : plans) bytes = std::max(bytes, plan->arena_bytes);
  return bytes;
}

OrderCase DrawOrderCase(uint64_t seed) {
  Drawing draw(seed * 0x9e3779b97f4a7c15u + 1);
  OrderCase drawn;
  RandomStepLimits limits = DrawLimits(draw);
  limits.place_groups = seed % 2 == 0;
  drawn.job = MakeRandomJob(seed, limits, draw(0, 2) == 0 ? 1 : 6);
  PlanOptions options = DrawOptions(draw);
  CostProfile profile;
  // So slow a copy that a list is cheaper than packing.
  if (draw(0, 1) == 1) profile.copy_bytes_per_s = 1e3;
  const std::vector<RoleSpec> roles = drawn.job.Roles(profile);
  absl::StatusOr<Plans> plans = BuildPlans(roles, options);
  if (!plans.ok()) {
    drawn.wrong = absl::StrCat("planning: ", plans.status().ToString());
    return drawn;
  }
  if (draw(0, 1) == 1 && LargestArena(*plans) > 64) {
    options.arena_bytes =
        LargestArena(*plans) * static_cast<uint64_t>(draw(40, 90)) / 100;
    absl::StatusOr<Plans> tight = BuildPlans(roles, options);
    if (tight.ok()) {
      drawn.tight = true;
      plans = std::move(tight);
    } else if (tight.status().code() != absl::StatusCode::kResourceExhausted) {
      drawn.wrong = absl::StrCat("planning: ", tight.status().ToString());
      return drawn;
    }
  }
  drawn.plans = *std::move(plans);
  drawn.expected =
      test::RunStepByStep(drawn.job.step, static_cast<uint64_t>(draw(1, 3)));
  return drawn;
}

// A communicator of several ranks, to be broken on one of them.
Fault DrawFault(Drawing& draw, const RandomJob& job, uint64_t seed) {
  Fault fault;
  // All but kShort and kFailCommCreate, which nobody can notice, or recover
  // from.
  static constexpr Fault::Kind kKinds[] = {
      Fault::Kind::kDelay,        Fault::Kind::kLateIssue,
      Fault::Kind::kAfterNext,    Fault::Kind::kLoseWakes,
      Fault::Kind::kWakeStorm,    Fault::Kind::kFailLaunch,
      Fault::Kind::kFailPoll,     Fault::Kind::kHang,
      Fault::Kind::kNeverIssue,   Fault::Kind::kMismatchKind,
      Fault::Kind::kMismatchCount};
  fault.kind = kKinds[draw(0, 10)];
  fault.seed = seed;
  if (draw(0, 10) < 4) fault.kind = kKinds[draw(0, 4)];
  const bool delays = static_cast<int>(fault.kind) <=
                          static_cast<int>(Fault::Kind::kAfterNext) ||
                      fault.kind == Fault::Kind::kLoseWakes ||
                      fault.kind == Fault::Kind::kWakeStorm;
  if (delays) {
    fault.per_million = 300'000;
    fault.delay_ns = draw(1, 1000);
    return fault;
  }
  fault.world_rank = draw(0, job.num_ranks() - 1);
  fault.launch = draw(0, 5);
  // One rank alone agrees with itself on what is wrong.
  if (job.num_ranks() == 1 && (fault.kind == Fault::Kind::kMismatchKind ||
                               fault.kind == Fault::Kind::kMismatchCount)) {
    fault.kind = Fault::Kind::kHang;
  }
  return fault;
}

Trouble DrawTrouble(Drawing& draw, const OrderCase& drawn, uint64_t seed) {
  Trouble trouble;
  const int percent = draw(1, 100);
  trouble.rank = draw(0, drawn.job.num_ranks() - 1);
  trouble.after_turns = static_cast<uint64_t>(draw(0, 150));
  if (percent <= 50) return trouble;
  if (percent <= 80) {
    trouble.kind = Trouble::Kind::kFault;
    trouble.fault = DrawFault(draw, drawn.job, seed);
  } else if (percent <= 85) {
    trouble.kind = Trouble::Kind::kHostAborts;
  } else if (percent <= 90) {
    trouble.kind = Trouble::Kind::kHostStops;
  } else if (percent <= 95) {
    trouble.kind = Trouble::Kind::kWireBreaks;
  } else {
    trouble.kind = Trouble::Kind::kMissedCalls;
  }
  return trouble;
}

struct Totals {
  uint64_t jobs = 0, runs = 0, turns = 0;
  uint64_t several_roles = 0, tight = 0, late = 0, peers = 0, pieces = 0;
  uint64_t troubles = 0, failures = 0, out_of_order = 0, scribbles = 0;
  std::array<uint64_t, 4> ways = {};
  std::array<uint64_t, 8> kinds = {};

  void Add(const OrderCase& drawn) {
    ++jobs;
    several_roles += drawn.plans.size() > 1;
    tight += drawn.tight;
    bool has_late = false, has_peers = false, has_pieces = false;
    for (const auto& plan : drawn.plans) {
      for (const Launch& launch : plan->launches) {
        ++ways[static_cast<size_t>(launch.way)];
        ++kinds[static_cast<size_t>(launch.kind)];
        has_peers |= launch.kind == CollectiveKind::kSend;
        has_pieces |= launch.piece.of > 1;
      }
      for (const Buffer& buffer : plan->graph->buffers()) {
        has_late |= buffer.ownership == Ownership::kLateBound;
      }
    }
    late += has_late;
    peers += has_peers;
    pieces += has_pieces;
  }
  void Add(const RunOutcome& outcome) {
    ++runs;
    turns += outcome.turns;
    troubles += outcome.happened;
    failures += outcome.failed;
    out_of_order += outcome.calls_out_of_order;
    scribbles += outcome.scribbles;
  }
  std::string Text() const {
    return absl::StrCat(
        jobs, " jobs (", several_roles, " of several roles, ", tight,
        " in a tight arena, ", late, " with late-bound buffers, ", peers,
        " with sends, ", pieces, " with pieces), ", runs, " runs of ", turns,
        " turns (", troubles, " with trouble that happened, ", failures,
        " that failed, ", out_of_order, " calls out of planned order, ",
        scribbles, " scribbles)");
  }
};

std::string GraphsText(const std::vector<Graph>& graphs) {
  std::string text;
  for (const Graph& graph : graphs) absl::StrAppend(&text, GraphToJson(graph));
  return text;
}

TEST(VirtualPropertyTest, AnyOrderOfAnyJobEndsAsTheReferenceOrFailsOnAllRanks) {
  const int jobs = PropertyCases(10'000 / kRunsPerJob);
  Totals totals;
  const std::clock_t begin = std::clock();
  for (int i = 0; i < jobs; ++i) {
    const uint64_t seed = PropertySeed() + static_cast<uint64_t>(i);
    const OrderCase drawn = DrawOrderCase(seed);
    ASSERT_EQ(drawn.wrong, "")
        << test::DescribeSeed(seed) << GraphsText(drawn.job.graphs);
    totals.Add(drawn);
    Drawing draw(~seed);
    for (int run = 0; run < kRunsPerJob; ++run) {
      const uint64_t run_seed = seed * kRunsPerJob + static_cast<uint64_t>(run);
      const Trouble trouble = DrawTrouble(draw, drawn, run_seed);
      const RunOutcome outcome =
          VirtualRun(drawn.job, drawn.plans, drawn.expected, trouble, run_seed)
              .Run();
      ASSERT_EQ(outcome.wrong, "")
          << "run " << run << ", trouble " << static_cast<int>(trouble.kind)
          << ", fault " << static_cast<int>(trouble.fault.kind) << "\n"
          << test::PlansText(drawn.plans) << test::DescribeSeed(seed);
      totals.Add(outcome);
    }
    if ((i + 1) % 5000 == 0) {
      std::printf("seeds %llu to %llu: %s, %.0f s of CPU\n",
                  static_cast<unsigned long long>(PropertySeed()),
                  static_cast<unsigned long long>(seed), totals.Text().c_str(),
                  static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
      std::fflush(stdout);
    }
  }
  std::printf("seeds from %llu: %s, %.1f s of CPU\n",
              static_cast<unsigned long long>(PropertySeed()),
              totals.Text().c_str(),
              static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  if (jobs < 500) return;
  // The jobs have not become trivial.
  for (const uint64_t some : {totals.several_roles, totals.tight, totals.late,
                              totals.peers, totals.pieces}) {
    EXPECT_GT(some, totals.jobs / 50);
  }
  for (const uint64_t some :
       {totals.troubles, totals.failures, totals.out_of_order}) {
    EXPECT_GT(some, totals.runs / 20);
  }
  for (const uint64_t launches : totals.ways) EXPECT_GT(launches, 0u);
  for (const uint64_t launches : totals.kinds) EXPECT_GT(launches, 0u);
}

// The test above can fail: without their waits plans give wrong results.
TEST(VirtualPropertyTest, PlansWithoutWaitsAreFoundWrong) {
  int wrong = 0;
  constexpr int kJobs = 100;
  for (int i = 0; i < kJobs; ++i) {
    const uint64_t seed = PropertySeed() + static_cast<uint64_t>(i);
    const OrderCase drawn = DrawOrderCase(seed);
    Plans broken;
    for (const auto& plan : drawn.plans) {
      auto copy = std::make_shared<Plan>(*plan);
      for (Launch& launch : copy->launches) launch.waits.clear();
      for (ComputeNode& node : copy->nodes) node.waits.clear();
      broken.push_back(std::move(copy));
    }
    wrong += !VirtualRun(drawn.job, broken, drawn.expected, Trouble(), seed)
                  .Run()
                  .wrong.empty();
  }
  EXPECT_GT(wrong, kJobs / 4);
}

}  // namespace
}  // namespace commsched
