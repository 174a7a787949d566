#include "session/agreement.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/host_links.h"
#include "plan/planner.h"
#include "test/session/bucket_graph.h"
#include "test/support/graph_builder.h"
#include "test/support/pipeline.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::GraphBuilder;
using test::Ranks;
using Plans = std::vector<std::shared_ptr<const Plan>>;

constexpr auto kDiffer = absl::StatusCode::kFailedPrecondition;

Plans PlansOf(const std::vector<Graph>& graphs,
              const PlanOptions& options = {}) {
  auto plans = BuildPlans(test::RolesOf(graphs), options);
  EXPECT_OK(plans);
  return plans.ok() ? *plans : Plans();
}

// What each rank gets that runs plans[rank] in a world of its own; every group
// is of all ranks.
std::vector<absl::Status> Agree(const Plans& plans) {
  auto world = World::Create(Ranks(static_cast<int>(plans.size())));
  EXPECT_OK(world);
  return RunRanks(static_cast<int>(plans.size()), [&](int rank) {
    SessionSpec spec;
    spec.world = *world;
    spec.world_rank = rank;
    spec.plan = plans[static_cast<size_t>(rank)];
    for (const Group& group : spec.plan->graph->groups()) {
      GroupSpec members;
      members.axis = group.name;
      for (int r = 0; r < static_cast<int>(plans.size()); ++r) {
        members.ranks.push_back(r);
      }
      members.rank = rank;
      spec.groups.push_back(members);
    }
    spec.launch_timeout_ns = 20'000'000'000;
    return AgreeOnPlan(spec, absl::OkStatus());
  });
}

void ExpectAll(const std::vector<absl::Status>& results,
               const std::string& text) {
  for (const absl::Status& result : results) {
    EXPECT_THAT(result, StatusIs(kDiffer, text));
  }
}

TEST(AgreementTest, RolesOfOneJobAgree) {
  for (const absl::Status& result : Agree(PlansOf(test::MakePipeline()))) {
    EXPECT_OK(result);
  }
}

TEST(AgreementTest, RanksOfOneRoleMustHaveOnePlan) {
  const Graph graph = test::ZeroStep({.ranks = 3, .count = 3072});
  PlanOptions merging;
  merging.coalesce_bytes = 40000;
  const auto a = PlansOf({graph})[0];
  const auto b = PlansOf({graph}, merging)[0];
  const auto results = Agree({a, a, b});
  ExpectAll(results, "first difference at line 0: rank 0 has <options");
  ExpectAll(results, "coalesce 0 arena");
  ExpectAll(results, "rank 2 has <options");
  ExpectAll(results, "coalesce 40000 arena");
}

TEST(AgreementTest, APlanThatEndsEarlierDiffersThere) {
  auto plan = [](bool longer) {
    GraphBuilder b;
    b.Compute("one", {});
    if (longer) b.Compute("two", {});
    return PlansOf({b.graph()})[0];
  };
  ExpectAll(Agree({plan(false), plan(true)}), "rank 1 has <op 1 #1 'two'");
}

TEST(AgreementTest, ACollectiveThatIsLossyOnOneRankOnlyIsNamed) {
  auto plan = [](bool lossy) {
    GraphBuilder b;
    const GroupId dp = b.Group("dp", 2);
    const BufferId x = b.Buffer("x", 8);
    CollectiveSpec spec =
        test::Spec(CollectiveKind::kAllGather, dp,
                   test::Read(x, test::Shard(dp)), test::Write(x));
    spec.lossy = lossy;
    b.Collective("gather", spec);
    return PlansOf({b.graph()})[0];
  };
  const auto results = Agree({plan(false), plan(true)});
  ExpectAll(results,
            "rank 0 has <collective #0 'gather' all_gather accesses "
            "[r 'x'/'dp', w 'x']>, rank 1 has <collective #0 'gather'"
            " all_gather accesses [r 'x'/'dp', w 'x'] lossy>");
}

TEST(AgreementTest, ACollectiveThatIsEncodedOnOneRankOnlyIsNamed) {
  auto plan = [](const std::vector<int32_t>& hosts) {
    GraphBuilder b;
    const GroupId dp = b.Group("dp", 2);
    CollectiveSpec spec = test::Spec(CollectiveKind::kReduceScatter, dp,
                                     test::Read(b.Buffer("x", 512)),
                                     test::Write(b.Buffer("y", 256)));
    spec.lossy = true;
    b.Collective("scatter", spec);
    PlanOptions options;
    options.codec = {"same", 256, 1024, UINT32_MAX};
    options.backend.host_sums = true;
    options.hosts = HostLinksOf(hosts);
    return PlansOf({b.graph()}, options)[0];
  };
  const auto results = Agree({plan({}), plan({0, 1})});
  ExpectAll(results, "rank 0 has <launch 0 reduce_scatter");
  ExpectAll(results, " coded lane ");
}

// Rank 0 runs the same ops in both jobs; only other stages send more.
TEST(AgreementTest, WhatOnlyOtherStagesSendIsNamed) {
  auto plan = [](uint64_t count) {
    std::vector<Graph> graphs;
    for (int role = 0; role < 3; ++role) {
      GraphBuilder b;
      CollectiveSpec spec;
      spec.group = b.Group("pp", 3);
      if (role > 0) {
        spec.kind = CollectiveKind::kRecv;
        spec.peer_offset = -1;
        spec.output = test::Write(b.Buffer("x", role == 1 ? 8 : count));
        b.Collective("in", spec);
      }
      if (role < 2) {
        spec.kind = CollectiveKind::kSend;
        spec.peer_offset = 1;
        spec.output = {};
        spec.input = test::Read(b.Buffer("y", role == 0 ? 8 : count));
        b.Collective(role == 0 ? "out" : "more", spec);
      }
      graphs.push_back(b.graph());
    }
    return PlansOf(graphs)[0];
  };
  const auto results = Agree({plan(4), plan(4), plan(6)});
  ExpectAll(results,
            "rank 0 has <send 'more' f32 count 4 on 'pp' from position 1 to "
            "+1>, rank 2 has <send 'more' f32 count 6 on 'pp' from position 1 "
            "to +1>");
}

// The ranks are of different roles, so that only the group tells.
TEST(AgreementTest, MembersOfAGroupMustAgreeWhateverTheirRoles) {
  test::PipelineSpec spec;
  spec.stages = 2;
  spec.micro_batches = 2;
  const Plans good = PlansOf(test::MakePipeline(spec));
  spec.count = 32;
  const Plans other = PlansOf(test::MakePipeline(spec));
  const auto results = Agree({good[0], other[1]});
  ExpectAll(results, "on a group they share");
  ExpectAll(results,
            "rank 0 has <send 'send.out.0.0' f32 count 64 on 'fwd' from "
            "position 0 to +1>, rank 1 has <send 'send.out.0.0' f32 count 32 "
            "on 'fwd' from position 0 to +1>");
}

TEST(AgreementTest, ACollectiveOfAGroupIsNamedWithBothRanksValues) {
  auto plans = [](uint64_t count) {
    std::vector<Graph> graphs;
    for (int role = 0; role < 2; ++role) {
      GraphBuilder b;
      b.AllReduce("norm", b.Group("all", 2), b.Buffer("x", count));
      graphs.push_back(b.graph());
    }
    return PlansOf(graphs);
  };
  const auto results = Agree({plans(8)[0], plans(16)[1]});
  ExpectAll(results,
            "rank 0 has <all_reduce f32 sum key 0 of ['norm' count 8]>");
  ExpectAll(results,
            "rank 1 has <all_reduce f32 sum key 0 of ['norm' count 16]>");
}

TEST(AgreementTest, ARankThatCannotBindIsNamedToTheOthers) {
  auto world = World::Create(Ranks(2));
  ASSERT_OK(world);
  const auto plan = PlansOf({test::ZeroStep({.ranks = 2})})[0];
  const auto results = RunRanks(2, [&](int rank) {
    SessionSpec spec;
    spec.world = *world;
    spec.world_rank = rank;
    spec.plan = plan;
    if (rank == 0) spec.groups.push_back({"dp", {0, 1}, 0});
    spec.launch_timeout_ns = 20'000'000'000;
    return AgreeOnPlan(spec, rank == 0
                                 ? absl::OkStatus()
                                 : absl::InvalidArgumentError("no buffer"));
  });
  EXPECT_THAT(results[0], StatusIs(kDiffer, "rank 1 cannot bind: no buffer"));
  EXPECT_THAT(results[1],
              StatusIs(absl::StatusCode::kInvalidArgument, "no buffer"));
}

}  // namespace
}  // namespace commsched
