#include "plan/roles.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/explain/explain.h"
#include "plan/identity/fingerprint.h"
#include "plan/verify/verify.h"
#include "test/plan/plan_test_support.h"
#include "test/support/pipeline.h"
#include "test/support/random_step.h"

namespace commsched {
namespace {

using absl::StatusCode;
using test::GraphBuilder;
using test::LaunchNames;
using test::Read;
using test::Write;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Plans = std::vector<std::shared_ptr<const Plan>>;

constexpr absl::StatusCode kInvalid = StatusCode::kInvalidArgument;

Plans MakePlans(const std::vector<Graph>& graphs,
                const PlanOptions& options = {}) {
  auto plans = BuildPlans(test::RolesOf(graphs), options);
  EXPECT_OK(plans);
  return plans.ok() ? *plans : Plans();
}

absl::Status Refusal(const std::vector<Graph>& graphs) {
  return BuildPlans(test::RolesOf(graphs), {}).status();
}

// One side of conversations between two roles on group "pp".
class Side {
 public:
  Side() { pp_ = b_.Group("pp", 2); }
  Side& Peer(CollectiveKind kind, const std::string& name, uint64_t count = 8,
             DType dtype = DType::kF32) {
    CollectiveSpec spec;
    spec.kind = kind;
    spec.group = pp_;
    spec.peer_offset = 1;
    const BufferId buffer = b_.Buffer({.name = name,
                                       .dtype = dtype,
                                       .ownership = Ownership::kBound,
                                       .count = count});
    if (kind == CollectiveKind::kSend) {
      spec.input = Read(buffer);
    } else {
      spec.output = Write(buffer);
    }
    b_.Collective(name, spec);
    return *this;
  }
  Side& Send(const std::string& name, uint64_t count = 8,
             DType dtype = DType::kF32) {
    return Peer(CollectiveKind::kSend, name, count, dtype);
  }
  Side& Recv(const std::string& name, uint64_t count = 8,
             DType dtype = DType::kF32) {
    return Peer(CollectiveKind::kRecv, name, count, dtype);
  }
  Side& Reduce(const std::string& name, uint64_t count = 8) {
    b_.AllReduce(name, pp_, b_.Buffer(name, count));
    return *this;
  }
  // A compute op that touches these; all of them must exist.
  Side& Touch(const std::string& name,
              const std::vector<std::string>& buffers) {
    std::vector<Access> accesses;
    for (const std::string& buffer : buffers) {
      accesses.push_back(test::ReadWrite(*b_.graph().FindBuffer(buffer)));
    }
    b_.Compute(name, accesses);
    return *this;
  }
  const Graph& graph() const { return b_.graph(); }
  GraphBuilder& builder() { return b_; }

 private:
  GraphBuilder b_;
  GroupId pp_;
};

TEST(RolesTest, OneRoleIsPlannedAsEver) {
  const Graph graph = test::ZeroStep();
  const Plans plans = MakePlans({graph});
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_EQ(plans[0]->fingerprint, test::MakePlan(graph)->fingerprint);
  EXPECT_EQ(plans[0]->num_roles, 1u);
}

TEST(RolesTest, WhatMeetsHasOneKeyInAllRoles) {
  const auto graphs = test::MakePipeline();
  const Plans plans = MakePlans(graphs);
  ASSERT_EQ(plans.size(), 4u);
  auto key = [&](size_t role, const std::string& name) {
    const Plan& plan = *plans[role];
    const OpId op = *plan.graph->FindOp(name);
    return plan.launches[plan.launch_of_op[op.value()].value()].key;
  };
  for (size_t role = 0; role < 4; ++role) {
    EXPECT_EQ(plans[role]->role, role);
    EXPECT_EQ(key(role, "norm"), key(0, "norm"));
  }
  EXPECT_EQ(key(0, "send.out.0.0"), key(1, "recv.in.0.0"));
}

TEST(RolesTest, PointToPointHasALaneOfItsOwn) {
  PlanOptions options;
  options.num_comm_lanes = 2;
  const Plans plans = MakePlans(test::MakePipeline(), options);
  ASSERT_FALSE(plans.empty());
  EXPECT_EQ(plans[0]->num_comm_lanes, 3u);
  for (const Launch& launch : plans[0]->launches) {
    EXPECT_EQ(launch.lane == 2, launch.kind == CollectiveKind::kSend);
  }
}

// The activation goes out while the gradient of an earlier one comes in.
TEST(RolesTest, SendsAndReceivesOfATickAreOneLaunch) {
  Side a, b;
  a.Send("a.out").Recv("a.in").Touch("a.use", {"a.in"});
  b.Send("b.out").Recv("b.in").Touch("b.use", {"b.in"});
  const Plans tick = MakePlans({a.graph(), b.graph()});
  ASSERT_EQ(tick.size(), 2u);
  EXPECT_THAT(LaunchNames(*tick[0]), ElementsAre("a.out+a.in"));
  EXPECT_EQ(tick[0]->launches[0].way, Way::kGroup);
  EXPECT_EQ(tick[0]->launches[0].kind, CollectiveKind::kSend);
  EXPECT_THAT(ExplainText(*tick[0]),
              HasSubstr("sends and receives of one pipeline tick"));
  // On the other side the send would keep the op that wants "b.in" waiting.
  EXPECT_THAT(LaunchNames(*tick[1]), ElementsAre("b.in", "b.out"));
}

TEST(RolesTest, AReceiveThatIsNeededLaterStartsATickOfItsOwn) {
  Side a, b;
  a.Send("one").Send("two");
  b.Recv("first")
      .Recv("second")
      .Touch("use.1", {"first"})
      .Touch("use.2", {"second"});
  const Plans plans = MakePlans({a.graph(), b.graph()});
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_THAT(LaunchNames(*plans[0]), ElementsAre("one+two"));
  EXPECT_THAT(LaunchNames(*plans[1]), ElementsAre("first", "second"));
  EXPECT_THAT(ExplainText(*plans[1]), HasSubstr("'second' is needed later"));
}

// Position p sends to p + 1 and receives from p - 1, all with one graph.
Graph Ring(int size, int rounds) {
  GraphBuilder b;
  const GroupId sp = b.Group("sp", size);
  BufferId held = b.Buffer("kv.0", 8);
  for (int i = 0; i < rounds; ++i) {
    const BufferId next = b.Buffer(absl::StrCat("kv.", i + 1), 8);
    CollectiveSpec send;
    send.kind = CollectiveKind::kSend;
    send.group = sp;
    send.peer_offset = 1;
    send.input = Read(held);
    CollectiveSpec recv;
    recv.kind = CollectiveKind::kRecv;
    recv.group = sp;
    recv.peer_offset = -1;
    recv.output = Write(next);
    b.Collective(absl::StrCat("send.", i), send);
    b.Collective(absl::StrCat("recv.", i), recv);
    b.Compute(absl::StrCat("attend.", i), {Read(held)});
    held = next;
  }
  b.Compute("last", {Read(held)});
  return b.graph();
}

TEST(RolesTest, ARingInOneRoleSendsAndReceivesAtOnce) {
  for (int size : {2, 3, 5}) {
    const Graph ring = Ring(size, 2);
    const auto plan = test::MakePlan(ring);
    ASSERT_NE(plan, nullptr);
    EXPECT_THAT(LaunchNames(*plan),
                ElementsAre("send.0+recv.0", "send.1+recv.1"));
    EXPECT_EQ(plan->launches[0].payload_bytes, 64u);
    // The window does not part what cannot complete alone.
    PlanOptions tight;
    tight.max_launches_in_flight = 1;
    tight.max_bytes_in_flight = 1;
    EXPECT_NE(test::MakePlan(ring, tight), nullptr);
  }
}

TEST(RolesTest, ARingThatReceivesBeforeItSendsIsACycle) {
  GraphBuilder b;
  const GroupId sp = b.Group("sp", 2);
  const BufferId x = b.Buffer("x", 8);
  CollectiveSpec recv;
  recv.kind = CollectiveKind::kRecv;
  recv.group = sp;
  recv.peer_offset = -1;
  recv.output = Write(x);
  b.Collective("recv", recv);
  b.Compute("change", {test::ReadWrite(x)});
  CollectiveSpec send;
  send.kind = CollectiveKind::kSend;
  send.group = sp;
  send.peer_offset = 1;
  send.input = Read(x);
  b.Collective("send", send);
  EXPECT_THAT(BuildPlan(b.graph(), {}, {}).status(),
              StatusIs(kInvalid, "role 0: 'recv' -> 'change' -> 'send'"));
}

TEST(RolesTest, ACycleIsNamedRoleByRole) {
  Side a, b;
  a.Recv("a.in").Touch("a.make", {"a.in"});
  a.builder().Edge(*a.graph().FindOp("a.make"), *a.graph().FindOp("a.make"), 1);
  a.Send("a.out");
  a.builder().Edge(*a.graph().FindOp("a.make"), *a.graph().FindOp("a.out"), 0);
  b.Recv("b.in").Touch("b.make", {"b.in"}).Send("b.out");
  b.builder().Edge(*b.graph().FindOp("b.make"), *b.graph().FindOp("b.out"), 0);
  const absl::Status status = Refusal({a.graph(), b.graph()});
  EXPECT_THAT(status, StatusIs(kInvalid, "deadlock"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("role 0: 'a.in' -> 'a.make' -> 'a.out'"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("role 1: 'b.in' -> 'b.make' -> 'b.out'"));
}

TEST(RolesTest, ACollectiveThatARoleLacksIsNamed) {
  Side a, b;
  a.Reduce("norm");
  EXPECT_THAT(Refusal({a.graph(), b.graph()}),
              StatusIs(kInvalid,
                       "all_reduce 'norm' of role 0 on group 'pp' is missing "
                       "in role 1"));
}

TEST(RolesTest, ACollectiveOfOtherCountsIsNamed) {
  Side a, b;
  a.Reduce("norm", 8);
  b.Reduce("norm", 16);
  EXPECT_THAT(
      Refusal({a.graph(), b.graph()}),
      StatusIs(kInvalid,
               "collective 'norm' on group 'pp' is all_reduce f32 sum count 8 "
               "in role 0, but all_reduce f32 sum count 16 in role 1"));
}

TEST(RolesTest, ASendThatNobodyReceivesIsNamed) {
  Side a, b;
  a.Send("one").Send("two");
  b.Recv("only");
  EXPECT_THAT(Refusal({a.graph(), b.graph()}),
              StatusIs(kInvalid,
                       "send 1 'two' of role 0 at position 0 of group 'pp' has "
                       "no recv at position 1: role 1 has 1 such, role 0 has "
                       "2"));
  EXPECT_THAT(Refusal({b.graph(), a.graph()}),
              StatusIs(kInvalid, "send 1 'two' of role 1"));
}

TEST(RolesTest, AReceiveThatNobodySendsIsNamed) {
  Side a, b;
  a.Recv("lonely");
  EXPECT_THAT(Refusal({a.graph(), b.graph()}),
              StatusIs(kInvalid, "recv 0 'lonely' of role 0 at position 0"));
}

TEST(RolesTest, APairOfTwoSizesOrTypesIsNamed) {
  Side a, b, c;
  a.Send("out", 8);
  b.Recv("in", 4);
  c.Recv("in", 8, DType::kBF16);
  EXPECT_THAT(Refusal({a.graph(), b.graph()}),
              StatusIs(kInvalid,
                       "send 'out' of role 0 on group 'pp' is f32 count 8, but "
                       "recv 'in' of role 1, which meets it, is f32 count 4"));
  EXPECT_THAT(Refusal({a.graph(), c.graph()}),
              StatusIs(kInvalid, "is bf16 count 8"));
}

TEST(RolesTest, GroupsMustBeTheSameForAllTheirRoles) {
  Side a, b;
  const Graph ga = a.graph();
  const Graph gb = b.graph();
  std::vector<RoleSpec> roles = test::RolesOf({ga, gb});
  roles[0].graph = &ga;
  roles[1].graph = &gb;
  roles[1].role_of_member = {{1, 0}};
  EXPECT_THAT(BuildPlans(roles, {}).status(),
              StatusIs(kInvalid,
                       "group 'pp' consists of the roles [0 1] for role 0, but "
                       "of [1 0] for role 1"));
  roles[1].role_of_member = {{1, 2}};
  EXPECT_THAT(BuildPlans(roles, {}).status(),
              StatusIs(kInvalid, "has a member of role 2; there are 2 roles"));
  roles[1].role_of_member = {{0, 0}};
  EXPECT_THAT(BuildPlans(roles, {}).status(),
              StatusIs(kInvalid, "role 1 is not among the roles [0 0]"));
  roles[1].role_of_member = {{0, 1, 1}};
  EXPECT_THAT(BuildPlans(roles, {}).status(),
              StatusIs(kInvalid, "3 members of group 'pp' of size 2"));
}

// What coalesces in one role must coalesce in all.
TEST(RolesTest, ASharedCollectiveJoinsOnlyWhereAllRolesLetIt) {
  auto make = [](bool early_need) {
    GraphBuilder b;
    const GroupId all = b.Group("all", 2);
    const BufferId x = b.Buffer("x", 8);
    const BufferId y = b.Buffer("y", 8);
    const BufferId z = b.Buffer("z", 8);
    b.Compute("make.x", {Write(x)});
    b.AllReduce("x", all, x);
    if (early_need) b.Compute("use.x", {Read(x), Write(z)});
    b.Compute("make.y", {Write(y)});
    b.AllReduce("y", all, y);
    return b.graph();
  };
  PlanOptions options;
  options.coalesce_bytes = 1 << 20;
  const Plans merged = MakePlans({make(false), make(false)}, options);
  const Plans apart = MakePlans({make(false), make(true)}, options);
  ASSERT_EQ(merged.size(), 2u);
  ASSERT_EQ(apart.size(), 2u);
  for (int role : {0, 1}) {
    EXPECT_THAT(LaunchNames(*merged[role]), ElementsAre("x+y"));
    EXPECT_THAT(LaunchNames(*apart[role]), ElementsAre("x", "y"));
  }
  EXPECT_THAT(ExplainText(*apart[0]), HasSubstr("another role keeps"));
}

// In place needs one range in all roles.
TEST(RolesTest, RolesAgreeOnTheWayOfASharedLaunch) {
  auto make = [](bool one_range) {
    GraphBuilder b;
    const GroupId all = b.Group("all", 2);
    const BufferId flat = b.Buffer("flat", 16);
    const BufferId x = b.Buffer("x", 8);
    b.AllReduce("one", all, flat, test::Range(8, 8));
    if (one_range) {
      b.AllReduce("two", all, flat, test::Range(0, 8));
    } else {
      b.AllReduce("two", all, x);
    }
    return b.graph();
  };
  PlanOptions options;
  options.coalesce_bytes = 1 << 20;
  const Plans same = MakePlans({make(true), make(true)}, options);
  const Plans differ = MakePlans({make(true), make(false)}, options);
  ASSERT_EQ(same.size(), 2u);
  ASSERT_EQ(differ.size(), 2u);
  for (int role : {0, 1}) {
    EXPECT_THAT(LaunchNames(*same[role]), ElementsAre("two+one"));
    EXPECT_EQ(same[role]->launches[0].way, Way::kInPlace);
    EXPECT_THAT(LaunchNames(*differ[role]), ElementsAre("one+two"));
    EXPECT_EQ(differ[role]->launches[0].way, differ[0]->launches[0].way);
    EXPECT_NE(differ[role]->launches[0].way, Way::kInPlace);
  }
}

TEST(RolesTest, PipelinesOfAnyShapeArePlanned) {
  for (int stages : {2, 3, 4, 7}) {
    for (int chunks : {1, 2, 3}) {
      for (bool interleave : {false, true}) {
        for (uint32_t window : {0u, 1u, 2u}) {
          PlanOptions options;
          options.max_launches_in_flight = window;
          const Plans plans = MakePlans(
              test::MakePipeline({.stages = stages,
                                  .micro_batches = 2 * stages,
                                  .chunks = chunks,
                                  .one_forward_one_backward = interleave}),
              options);
          ASSERT_EQ(plans.size(), static_cast<size_t>(stages))
              << stages << " stages, " << chunks << " chunks";
        }
      }
    }
  }
}

TEST(RolesTest, EqualInputsGiveEqualPlans) {
  const auto graphs = test::MakePipeline();
  const Plans a = MakePlans(graphs);
  const Plans b = MakePlans(graphs);
  for (size_t role = 0; role < a.size(); ++role) {
    EXPECT_EQ(CanonicalLines(*a[role]), CanonicalLines(*b[role]));
    EXPECT_EQ(a[role]->fingerprint, b[role]->fingerprint);
  }
}

TEST(RolesTest, MembersOfAGroupHaveItsFingerprintInCommon) {
  test::PipelineSpec spec;
  const Plans plans = MakePlans(test::MakePipeline(spec));
  spec.count = 32;
  const Plans other = MakePlans(test::MakePipeline(spec));
  for (size_t role = 0; role < plans.size(); ++role) {
    EXPECT_EQ(plans[role]->group_fingerprints, plans[0]->group_fingerprints);
    for (uint32_t g = 0; g < 3; ++g) {
      EXPECT_EQ(GroupLines(*plans[role], GroupId(g)),
                GroupLines(*plans[0], GroupId(g)));
      // Of "all" only the norm counts, which is as large as before.
      EXPECT_EQ(plans[role]->group_fingerprints[g] ==
                    other[role]->group_fingerprints[g],
                g == 2);
    }
  }
  EXPECT_NE(plans[0]->fingerprint, plans[1]->fingerprint);
  EXPECT_THAT(GroupLines(*plans[0], GroupId(0)),
              Contains("send 'send.out.0.3' f32 count 64 on 'fwd' from "
                       "position 1 to +1"));
}

}  // namespace
}  // namespace commsched
