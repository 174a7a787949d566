#include "plan/predict/phases.h"

#include <vector>

#include "gtest/gtest.h"
#include "plan/planner.h"
#include "plan/predict/cost_model.h"
#include "plan/predict/lower_bound.h"
#include "plan/predict/predict.h"

namespace commsched {
namespace {

// Two ranks on links of 1 byte/ns: a gather of c elements of f32 takes 2c ns.
CostProfile Profile() {
  CostProfile profile;
  profile.link_bytes_per_s = 1e9;
  profile.link_latency_ns = 0;
  profile.launch_ns = 0;
  return profile;
}

// A step of ZeRO's shape: OPT -> gather -> FWD -> BWD -> scatter -> OPT, with
// one bucket of `count` elements. FWD needs the gather; BWD makes the scatter.
class OneBucketStep {
 public:
  explicit OneBucketStep(uint64_t count) {
    group_ = graph_.AddGroup("dp", 2).value();
    parameter_ = AddBuffer("parameter", count);
    gradient_ = AddBuffer("gradient", count);
    Region shard;
    shard.kind = RegionKind::kShard;
    shard.group = group_;
    Compute("FWD", 100, {{parameter_, AccessMode::kRead, {}}});
    Compute("BWD", 200,
            {{parameter_, AccessMode::kRead, {}},
             {gradient_, AccessMode::kWrite, {}}});
    Collective("RS", CollectiveKind::kReduceScatter, {gradient_, {}, {}},
               {gradient_, {}, shard});
    Compute("OPT", 10,
            {{gradient_, AccessMode::kRead, shard},
             {parameter_, AccessMode::kReadWrite, shard}});
    Collective("AG", CollectiveKind::kAllGather, {parameter_, {}, shard},
               {parameter_, {}, {}});
  }

  int64_t Bound(const CostProfile& profile) const {
    return PhasesBound(*BuildPlan(graph_, {}, profile).value(), profile);
  }
  const Graph& graph() const { return graph_; }

 private:
  BufferId AddBuffer(const char* name, uint64_t count) {
    Buffer buffer;
    buffer.name = name;
    buffer.ownership = Ownership::kBound;
    buffer.count = count;
    return graph_.AddBuffer(buffer).value();
  }
  void Compute(const char* name, int64_t cost_ns,
               std::vector<Access> accesses) {
    Op op;
    op.name = name;
    op.accesses = std::move(accesses);
    op.compute.cost_ns = cost_ns;
    (void)graph_.AddOp(op).value();
  }
  void Collective(const char* name, CollectiveKind kind, Access input,
                  Access output) {
    Op op;
    op.name = name;
    op.kind = OpKind::kCollective;
    op.collective.kind = kind;
    op.collective.group = group_;
    op.collective.input = input;
    op.collective.input.mode = AccessMode::kRead;
    op.collective.output = output;
    op.collective.output.mode = AccessMode::kWrite;
    (void)graph_.AddOp(op).value();
  }

  Graph graph_;
  GroupId group_;
  BufferId parameter_, gradient_;
};

TEST(PhasesBoundTest, ComputeAloneIsTheSumOfTheLanesOps) {
  EXPECT_EQ(OneBucketStep(2).Bound(Profile()) / 10, (100 + 200 + 10 + 8) / 10);
}

// BWD cannot overlap the gather, which FWD has waited for, nor FWD and the
// gather the scatter, which BWD makes.
TEST(PhasesBoundTest, LaunchesConfinedToAPhaseAddToTheOtherPhases) {
  const int64_t link_ns = 2 * 1000;  // of the gather, and of the scatter
  EXPECT_EQ(OneBucketStep(1000).Bound(Profile()),
            /*BWD*/ 200 + link_ns + /*OPT*/ 10 + link_ns + /*FWD*/ 100);
}

TEST(PhasesBoundTest, RanksThatShareACoreComputeOneAfterTheOther) {
  CostProfile profile = Profile();
  profile.num_ranks_sharing = 4;
  profile.num_cores = 2;
  EXPECT_GE(OneBucketStep(1000).Bound(profile), 2 * 310 + 4000);
}

TEST(PhasesBoundTest, IsNeverAboveThePredictionOfAPlan) {
  for (uint64_t count : {2, 100, 1000}) {
    const CostProfile profile = Profile();
    const OneBucketStep step(count);
    const auto plan = BuildPlan(step.graph(), {}, profile).value();
    EXPECT_LE(PhasesBound(*plan, profile),
              Predict(*plan, profile).value().step_ns);
  }
}

TEST(PhasesBoundTest, IsAtLeastTheBoundsOfASinglePhase) {
  const CostProfile profile = Profile();
  const auto plan = BuildPlan(OneBucketStep(500).graph(), {}, profile).value();
  const LowerBound bound = LowerBoundOf(*plan, profile);
  EXPECT_GE(bound.phases_ns, bound.link_ns);
  EXPECT_GE(bound.step_ns, bound.phases_ns);
}

}  // namespace
}  // namespace commsched
