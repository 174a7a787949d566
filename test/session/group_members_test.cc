// Members of a group that mean different groups.
#include "session/group_members.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "plan/planner.h"
#include "session/session.h"
#include "test/recording/recording_rig.h"
#include "test/support/graph_builder.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::GraphBuilder;

constexpr auto kOtherMembers = absl::StatusCode::kFailedPrecondition;

// By rank: a list of groups, called "g0", "g1" ...
using Groups = std::vector<std::vector<GroupSpec>>;

absl::Status Check(const Groups& groups) {
  std::vector<std::string> texts;
  for (const std::vector<GroupSpec>& of_rank : groups) {
    std::vector<std::string> names;
    for (size_t g = 0; g < of_rank.size(); ++g) {
      names.push_back(absl::StrCat("g", g));
    }
    texts.push_back(ShowGroups(names, of_rank));
  }
  std::vector<absl::string_view> shown(texts.begin(), texts.end());
  return CheckGroupsAgree("test", shown);
}

GroupSpec Of(std::vector<int> ranks, const std::string& axis = "dp") {
  return {axis, std::move(ranks), 0};
}

TEST(GroupMembersTest, MembersThatMeanTheSameAgree) {
  EXPECT_OK(Check({{}, {}}));
  EXPECT_OK(Check({{Of({0, 1})}, {Of({0, 1})}}));
  EXPECT_OK(Check({{Of({1, 0})}, {Of({1, 0})}}));
  EXPECT_OK(Check({{Of({0, 2}), Of({0, 1}, "tp")},
                   {Of({1, 3}), Of({0, 1}, "tp")},
                   {Of({0, 2}), Of({2, 3}, "tp")},
                   {Of({1, 3}), Of({2, 3}, "tp")}}));
  EXPECT_OK(Check({{Of({0})}, {Of({1})}}));
}

TEST(GroupMembersTest, TheOrderOfRanksCounts) {
  EXPECT_THAT(Check({{Of({0, 1})}, {Of({1, 0})}}),
              StatusIs(kOtherMembers,
                       "test: group 'g0' differs between its members: rank 0 "
                       "has ranks [0, 1] on axis 'dp', rank 1 has ranks "
                       "[1, 0] on axis 'dp'"));
}

TEST(GroupMembersTest, TheAxisCounts) {
  EXPECT_THAT(Check({{Of({0, 1})}, {Of({0, 1}, "tp")}}),
              StatusIs(kOtherMembers,
                       "rank 0 has ranks [0, 1] on axis 'dp', rank 1 "
                       "has ranks [0, 1] on axis 'tp'"));
}

TEST(GroupMembersTest, ARingOfPairsIsFound) {
  EXPECT_THAT(Check({{Of({0, 1})}, {Of({1, 2})}, {Of({2, 0})}}),
              StatusIs(kOtherMembers,
                       "rank 0 has ranks [0, 1] on axis 'dp', rank 1 "
                       "has ranks [1, 2] on axis 'dp'"));
}

TEST(GroupMembersTest, SwappedGroupsAreFound) {
  const GroupSpec dp = Of({0, 1}, "dp");
  const GroupSpec sp = Of({0, 1}, "sp");
  EXPECT_THAT(Check({{dp, sp}, {sp, dp}}),
              StatusIs(kOtherMembers,
                       "group 'g0' differs between its members: rank "
                       "0 has ranks [0, 1] on axis 'dp', rank 1 has "
                       "ranks [0, 1] on axis 'sp'"));
}

// Only the member that is left out does not name the others.
TEST(GroupMembersTest, AMemberThatKnowsNothingOfItIsFound) {
  EXPECT_THAT(Check({{}, {Of({1})}, {Of({1, 2})}}),
              StatusIs(kOtherMembers,
                       "rank 2 has ranks [1, 2] on axis 'dp', rank 1 "
                       "has ranks [1] on axis 'dp'"));
  EXPECT_THAT(Check({{Of({0, 1})}, {}}),
              StatusIs(kOtherMembers, "rank 1 has no group of that name"));
}

TEST(GroupMembersTest, LongListsAreShownWhereTheyPart) {
  std::vector<int> ranks;
  for (int r = 0; r < 64; ++r) ranks.push_back(r);
  Groups groups(64, {Of(ranks)});
  EXPECT_OK(Check(groups));
  std::swap(ranks[40], ranks[41]);
  groups[9] = {Of(ranks)};
  EXPECT_THAT(Check(groups),
              StatusIs(kOtherMembers,
                       "rank 0 has ranks [..., 40, 41, 42, 43, ...] (64 from "
                       "position 40 on) on axis 'dp', rank 9 has ranks [..., "
                       "41, 40, 42, 43, ...] (64 from position 40 on)"));
}

TEST(GroupMembersTest, AnAxisOfAMeshIsShownInAFewBytes) {
  GroupSpec group;
  for (int r = 0; r < 4096; ++r) group.ranks.push_back(3 * r);
  EXPECT_LT(ShowGroups({"dp"}, {group}).size(), 32u);
}

// What each rank gets that creates a session of groups[rank] on its plan.
std::vector<absl::Status> Create(const std::vector<GroupSpec>& groups) {
  const int size = static_cast<int>(groups.size());
  GraphBuilder b;
  const GroupId group = b.Group("dp", static_cast<int>(groups[0].ranks.size()));
  b.AllReduce("sum", group, b.Buffer("x", 8));
  const auto plan = BuildPlan(b.graph(), {}, {}).value();
  WorldSpec world_spec;
  world_spec.size = size;
  const std::shared_ptr<World> world = World::Create(world_spec).value();
  return RunRanks(size, [&](int rank) {
    std::vector<float> x(8);
    SessionSpec spec;
    spec.world = world;
    spec.world_rank = rank;
    spec.plan = plan;
    spec.groups = {groups[static_cast<size_t>(rank)]};
    spec.bindings.push_back({BufferId(0), x.data(), 32});
    spec.launch_timeout_ns = int64_t{20} * 1000 * 1000 * 1000;
    return Session::Create(spec).status();
  });
}

TEST(GroupMembersTest, NoSessionIsMadeOfGroupsThatDiffer) {
  for (const auto& groups :
       {std::vector<GroupSpec>{{"dp", {0, 1}, 0}, {"dp", {1, 0}, 0}},
        std::vector<GroupSpec>{{"dp", {0, 1}, 0}, {"tp", {0, 1}, 1}},
        std::vector<GroupSpec>{
            {"dp", {0, 1}, 0}, {"dp", {1, 2}, 0}, {"dp", {2, 0}, 0}}}) {
    for (const absl::Status& status : Create(groups)) {
      EXPECT_THAT(status, StatusIs(kOtherMembers,
                                   "session: group 'dp' differs between its "
                                   "members: rank 0 has ranks [0, 1]"));
    }
  }
}

TEST(GroupMembersTest, NoRecordingBeginsWithGroupsThatDiffer) {
  test::ModulesSpec spec;
  spec.ranks = 2;
  spec.modules = 1;
  spec.adjust = [](RecordingSpec* recording) {
    if (recording->world_rank == 0) return;
    recording->groups[0].ranks = {1, 0};
    recording->groups[0].rank = 0;
  };
  for (const absl::Status& status : test::RunModules(
           spec, [](test::ModulesRank& rank) { return rank.Step({0}, 0); })) {
    EXPECT_THAT(status,
                StatusIs(kOtherMembers, "recording: group 'dp' differs"));
  }
}

}  // namespace
}  // namespace commsched
