// Random plans against brute force: the planner's plans are good, and the
// verifier finds whatever makes them bad.
#include "test/property/plan_oracle.h"

#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "plan/planner.h"
#include "plan/verify/verify.h"
#include "test/support/graph_builder.h"
#include "test/support/place_groups.h"
#include "test/support/property.h"
#include "test/support/random_step.h"
#include "test/support/status_matchers.h"

namespace commsched::test {
namespace {

// From so many cases on, each kind of plan and fault must have come up: a test
// that met none would prove nothing.
constexpr int kEnoughForCounts = 500;

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  int Int(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random_);
  }
  bool Chance(int percent) { return Int(1, 100) <= percent; }

 private:
  std::mt19937_64 random_;
};

// A random step with explicit edges on top.
Graph RandomGraph(uint64_t seed, Draw* draw) {
  RandomStepLimits limits;
  limits.max_compute_lanes = 3;
  limits.max_ops = 18;
  Graph graph = MakeRandomStep(seed, limits).graph;
  const int num_edges = draw->Int(0, 3);
  for (int i = 0; i < num_edges; ++i) {
    const int last = static_cast<int>(graph.ops().size()) - 1;
    const int a = draw->Int(0, last);
    const int b = draw->Int(0, last);
    const int distance = draw->Int(0, 1);
    // Refused if it closes a cycle; then there is one edge less.
    (void)graph.AddEdge({OpId(a), OpId(b), distance});
  }
  return graph;
}

// Short-lived owned buffers that pass through collectives, many at once, and
// pieces of one flat buffer: what arenas, packing and in-place merging are for.
class ChainGraph {
 public:
  explicit ChainGraph(Draw* draw) : draw_(*draw) {
    groups_ = {builder_.Group("two", 2), builder_.Group("four", 4)};
    params_ = builder_.Buffer("params", 64);
    flat_ = builder_.Buffer("flat", 64);
  }

  Graph Make() {
    const int num_chains = draw_.Int(2, 7);
    std::vector<Chain> chains(static_cast<size_t>(num_chains));
    while (!chains.empty()) {
      const size_t i = static_cast<size_t>(
          draw_.Int(0, static_cast<int>(chains.size()) - 1));
      if (!Advance(&chains[i])) {
        chains.erase(chains.begin() + static_cast<ptrdiff_t>(i));
      }
    }
    return builder_.graph();
  }

 private:
  struct Chain {
    int stage = 0;
    BufferId buffer;  // invalid: a piece of flat_
    uint64_t count = 0;
    uint64_t offset = 0;
  };

  std::string Name(const char* what) {
    return absl::StrCat(what, builder_.graph().ops().size());
  }
  GroupId AnyGroup() { return groups_[draw_.Chance(70) ? 0 : 1]; }
  BufferId Owned(uint64_t count) {
    return builder_.Buffer(absl::StrCat("b", num_buffers_++), count,
                           Ownership::kOwned);
  }

  // Adds the chain's next op; false at its end.
  bool Advance(Chain* chain) {
    switch (chain->stage++) {
      case 0:
        Begin(chain);
        return true;
      case 1:
      case 2:
        if (draw_.Chance(70)) Communicate(chain);
        return true;
      default:
        Compute({Access(*chain, AccessMode::kRead)});
        return draw_.Chance(30);
    }
  }

  commsched::Access Access(const Chain& chain, AccessMode mode) const {
    if (chain.buffer.valid()) return {chain.buffer, mode, {}};
    return {flat_, mode, Range(chain.offset, chain.count)};
  }

  void Compute(std::vector<commsched::Access> accesses) {
    ComputeSpec spec;
    spec.lane = draw_.Chance(75) ? 0 : 1;
    if (draw_.Chance(30)) accesses.push_back(Read(params_));
    builder_.Compute(Name("c"), std::move(accesses), spec);
  }

  void Begin(Chain* chain) {
    if (draw_.Chance(35)) {
      chain->count = 8;
      chain->offset = 8 * static_cast<uint64_t>(next_piece_++ % 8);
    } else {
      chain->count = 4 * static_cast<uint64_t>(draw_.Int(1, 40));
      chain->buffer = Owned(chain->count);
    }
    Compute({Access(*chain, AccessMode::kWrite)});
  }

  void Communicate(Chain* chain) {
    const GroupId group = AnyGroup();
    const uint64_t n =
        static_cast<uint64_t>(builder_.graph().group(group).size);
    const auto in = Access(*chain, AccessMode::kRead);
    if (!chain->buffer.valid() || draw_.Chance(30)) {
      builder_.Collective(Name("ar"),
                          Spec(CollectiveKind::kAllReduce, group, in,
                               Access(*chain, AccessMode::kWrite)));
      return;
    }
    const bool gather = draw_.Chance(40);
    const uint64_t count = gather ? chain->count * n : chain->count / n;
    const BufferId to = Owned(count);
    auto spec = Spec(
        gather ? CollectiveKind::kAllGather : CollectiveKind::kReduceScatter,
        group, in, Write(to));
    // Uneven: rank 0 has one less, the last rank one more.
    if (!gather && draw_.Chance(20) && count > 1) {
      spec.counts.assign(n, count);
      spec.counts.front() -= 1;
      spec.counts.back() += 1;
      const BufferId wide = Owned(count + 1);
      spec.output = Write(wide);
      builder_.Collective(Name("rs"), std::move(spec));
      chain->buffer = wide;
      chain->count = count + 1;
      chain->stage = 9;
      return;
    }
    builder_.Collective(Name(gather ? "ag" : "rs"), std::move(spec));
    chain->buffer = to;
    chain->count = count;
    if (count % 4 != 0) chain->stage = 9;  // can be shared out no further
  }

  GraphBuilder builder_;
  Draw& draw_;
  std::vector<GroupId> groups_;
  BufferId params_;
  BufferId flat_;
  int num_buffers_ = 0;
  int next_piece_ = 0;
};

PlanOptions RandomOptions(Draw* draw) {
  PlanOptions options;
  if (draw->Chance(25)) options.schedule = Schedule::kSerial;
  options.num_comm_lanes = static_cast<uint32_t>(draw->Int(1, 2));
  if (draw->Chance(60)) {
    options.coalesce_bytes = static_cast<uint64_t>(draw->Int(64, 2000));
  }
  if (draw->Chance(35)) {
    options.max_launches_in_flight = static_cast<uint32_t>(draw->Int(1, 6));
  }
  if (draw->Chance(35)) {
    options.max_bytes_in_flight = static_cast<uint64_t>(draw->Int(8, 1500));
  }
  if (draw->Chance(35)) {
    options.partition_bytes = static_cast<uint64_t>(draw->Int(4, 400));
  }
  options.priority = static_cast<Priority>(draw->Int(0, 2));
  // 1: the least that works.
  if (draw->Chance(40)) options.arena_bytes = 1;
  return options;
}

// Plans; an arena limit that is too small becomes the least that works, as the
// refusal states it.
absl::StatusOr<std::shared_ptr<const Plan>> PlanWithLeastArena(
    const Graph& graph, PlanOptions options, const CostProfile& profile) {
  auto plan = BuildPlan(graph, options, profile);
  if (plan.status().code() != absl::StatusCode::kResourceExhausted) return plan;
  const std::string message(plan.status().message());
  const std::string before = "the least size that works is ";
  const size_t at = message.find(before);
  if (at == std::string::npos) return plan;
  options.arena_bytes =
      std::strtoull(message.c_str() + at + before.size(), nullptr, 10);
  return BuildPlan(graph, options, profile);
}

struct Case {
  std::shared_ptr<const Plan> plan;  // null if explicit edges close a cycle
};

Case MakeCase(uint64_t seed, Draw* draw) {
  Graph graph =
      seed % 2 == 0 ? RandomGraph(seed, draw) : ChainGraph(draw).Make();
  if (graph.ops().empty()) return {};
  if (draw->Chance(50)) graph = WithPlaceGroups(graph, seed);
  const PlanOptions options = RandomOptions(draw);
  CostProfile profile;
  if (draw->Chance(50)) profile.copy_bytes_per_s = 1e12;  // packing pays
  // So that needs differ from the order in which launches get ready.
  for (size_t i = 0; i < graph.ops().size() && seed % 3 != 0; ++i) {
    profile.op_cost_ns.push_back(draw->Int(0, 100000));
  }
  auto plan = PlanWithLeastArena(graph, options, profile);
  if (plan.status().code() == absl::StatusCode::kInvalidArgument) return {};
  EXPECT_OK(plan);
  return {plan.ok() ? *plan : nullptr};
}

// Buffers of place groups that some op uses, less one for each group.
int TurnsTaken(const Plan& plan) {
  const Graph& graph = *plan.graph;
  std::set<uint32_t> groups;
  std::set<BufferId> buffers;
  for (const Op& op : graph.ops()) {
    for (const Access& access : op.accesses) {
      const uint32_t group = graph.buffer(access.buffer).place_group;
      if (group == 0) continue;
      groups.insert(group);
      buffers.insert(access.buffer);
    }
  }
  return static_cast<int>(buffers.size() - groups.size());
}

std::vector<WaitList*> WaitLists(Plan* plan) {
  std::vector<WaitList*> lists;
  for (ComputeNode& node : plan->nodes) lists.push_back(&node.waits);
  for (Launch& launch : plan->launches) lists.push_back(&launch.waits);
  return lists;
}

TEST(PlanOracleTest, EveryPlanIsFreeOfRacesDeadlocksAndOverruns) {
  const int cases = PropertyCases(4000);
  int shared = 0;
  int packed = 0;
  int in_place = 0;
  int taking_turns = 0;
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(DescribeSeed(seed));
    Draw draw(seed);
    const Case test = MakeCase(seed, &draw);
    ASSERT_FALSE(::testing::Test::HasFailure());
    if (test.plan == nullptr) continue;
    PlanOracle oracle(*test.plan);
    ASSERT_EQ(oracle.FindRace(), "");
    ASSERT_EQ(oracle.FindOverCap(), "");
    ASSERT_EQ(oracle.FindDeadlock(), "");
    const PlaceGroupReport& report = test.plan->place_groups;
    ASSERT_LE(report.bytes_apart, report.bytes);
    if (report.num_groups != 0) taking_turns += TurnsTaken(*test.plan);
    uint64_t placed = 0;
    for (const Placement& place : test.plan->placements) placed += place.bytes;
    if (placed > test.plan->arena_bytes) ++shared;
    for (const Launch& launch : test.plan->launches) {
      if (launch.way == Way::kPack) ++packed;
      if (launch.way == Way::kInPlace) ++in_place;
    }
  }
  std::cout << cases << " plans, " << shared << " share arena memory, "
            << packed << " packed and " << in_place << " in-place launches, "
            << taking_turns << " buffers after another in a place group\n";
  if (cases < kEnoughForCounts) return;
  EXPECT_GT(shared, cases / 20);
  EXPECT_GT(packed, cases / 20);
  EXPECT_GT(in_place, cases / 20);
  EXPECT_GT(taking_turns, cases / 20);
}

TEST(PlanOracleTest, RemovingAWaitIsRefusedWheneverItIsARaceOrAnOverrun) {
  const int cases = PropertyCases(1500);
  int removals = 0;
  int races = 0;
  int overruns = 0;
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(DescribeSeed(seed));
    Draw draw(seed);
    const Case test = MakeCase(seed, &draw);
    ASSERT_FALSE(::testing::Test::HasFailure());
    if (test.plan == nullptr) continue;
    Plan plan = *test.plan;
    const bool window = plan.options.max_launches_in_flight != 0 ||
                        plan.options.max_bytes_in_flight != 0;
    for (WaitList* list : WaitLists(&plan)) {
      for (size_t w = 0; w < list->size(); ++w) {
        const Wait wait = (*list)[w];
        list->erase(list->begin() + static_cast<ptrdiff_t>(w));
        PlanOracle oracle(plan);
        const std::string race = oracle.FindRace();
        const std::string over = oracle.FindOverCap();
        const absl::Status verdict = VerifyPlan(plan);
        ++removals;
        if (!race.empty()) ++races;
        if (!over.empty()) ++overruns;
        if (!race.empty() || !over.empty()) {
          ASSERT_FALSE(verdict.ok()) << "missed: " << race << over;
        } else if (!window) {
          ASSERT_OK(verdict);  // without a window the verifier is exact
        }
        list->insert(list->begin() + static_cast<ptrdiff_t>(w), wait);
      }
    }
  }
  std::cout << removals << " waits removed one by one: " << races << " races, "
            << overruns << " overruns\n";
  if (cases < kEnoughForCounts) return;
  EXPECT_GT(races, cases);
  EXPECT_GT(overruns, 0);
}

TEST(PlanOracleTest, AddingAWaitIsRefusedWheneverItDeadlocks) {
  const int cases = PropertyCases(1500);
  int deadlocks = 0;
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(DescribeSeed(seed));
    Draw draw(seed);
    const Case test = MakeCase(seed, &draw);
    ASSERT_FALSE(::testing::Test::HasFailure());
    if (test.plan == nullptr) continue;
    Plan plan = *test.plan;
    const auto lists = WaitLists(&plan);
    for (int attempt = 0; attempt < 10; ++attempt) {
      Wait wait;
      if (!plan.launches.empty() && draw.Chance(50)) {
        wait.producer.kind = NodeRef::Kind::kLaunch;
        wait.producer.index = static_cast<uint32_t>(
            draw.Int(0, static_cast<int>(plan.launches.size()) - 1));
      } else if (!plan.nodes.empty()) {
        wait.producer.index =
            plan.nodes[draw.Int(0, static_cast<int>(plan.nodes.size()) - 1)]
                .op.value();
      } else {
        continue;
      }
      wait.distance = draw.Int(0, 1);
      WaitList* list = lists[draw.Int(0, static_cast<int>(lists.size()) - 1)];
      list->push_back(wait);
      if (!PlanOracle(plan).FindDeadlock().empty()) {
        ++deadlocks;
        ASSERT_FALSE(VerifyPlan(plan).ok());
      }
      list->pop_back();
    }
  }
  std::cout << deadlocks << " deadlocks made\n";
  if (cases < kEnoughForCounts) return;
  EXPECT_GT(deadlocks, cases / 10);
}

TEST(PlanOracleTest, MovingABufferIsRefusedWheneverItCollides) {
  const int cases = PropertyCases(1500);
  int collisions = 0;
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(DescribeSeed(seed));
    Draw draw(seed);
    const Case test = MakeCase(seed, &draw);
    ASSERT_FALSE(::testing::Test::HasFailure());
    if (test.plan == nullptr || test.plan->placements.size() < 2) continue;
    Plan plan = *test.plan;
    for (int attempt = 0; attempt < 5; ++attempt) {
      const int last = static_cast<int>(plan.placements.size()) - 1;
      Placement& moved = plan.placements[draw.Int(0, last)];
      const uint64_t old = moved.offset;
      moved.offset = plan.placements[draw.Int(0, last)].offset;
      const std::string race = PlanOracle(plan).FindRace();
      if (!race.empty()) {
        ++collisions;
        ASSERT_FALSE(VerifyPlan(plan).ok()) << "missed: " << race;
      }
      moved.offset = old;
    }
  }
  std::cout << collisions << " collisions made\n";
  if (cases < kEnoughForCounts) return;
  EXPECT_GT(collisions, cases / 10);
}

}  // namespace
}  // namespace commsched::test
