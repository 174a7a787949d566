// Plans of several roles against every interleaving of what they make ranks do.
#include <algorithm>
#include <iostream>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/planner.h"
#include "plan/verify/verify.h"
#include "test/plan/plan_test_support.h"
#include "test/support/admission_model.h"
#include "test/support/pipeline.h"
#include "test/support/property.h"

namespace commsched {
namespace {

using test::DescribeSeed;
using test::GraphBuilder;
using test::PropertyCases;
using test::PropertySeed;
using ::testing::HasSubstr;

constexpr auto kNotProved = absl::StatusCode::kInternal;

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

// Roles that compute, send and reduce at random, each in the order of one
// story, so that they can be run.
std::vector<Graph> RandomRoles(Draw* draw) {
  constexpr int kBuffers = 3;
  const int num_roles = draw->Int(2, 3);
  std::vector<GraphBuilder> roles(static_cast<size_t>(num_roles));
  std::vector<std::vector<BufferId>> buffers(roles.size());
  for (size_t r = 0; r < roles.size(); ++r) {
    roles[r].Group("pp", num_roles);
    roles[r].Group("all", num_roles);
    for (int b = 0; b < kBuffers; ++b) {
      buffers[r].push_back(roles[r].Buffer(absl::StrCat("b", b), 4));
    }
  }
  auto any = [&](size_t r) {
    return buffers[r][static_cast<size_t>(draw->Int(0, kBuffers - 1))];
  };
  const int num_events = draw->Int(4, 10);
  for (int e = 0; e < num_events; ++e) {
    const size_t r = static_cast<size_t>(draw->Int(0, num_roles - 1));
    const int kind = draw->Int(0, 9);
    if (kind < 4) {
      roles[r].Compute(absl::StrCat("op", e),
                       {test::Read(any(r)), test::Write(any(r))});
    } else if (kind < 6) {
      for (size_t s = 0; s < roles.size(); ++s) {
        roles[s].AllReduce(absl::StrCat("sum", e), GroupId(1), any(s));
      }
    } else {
      const int offset = draw->Int(1, num_roles - 1);
      const size_t to = (r + static_cast<size_t>(offset)) % roles.size();
      CollectiveSpec send;
      send.kind = CollectiveKind::kSend;
      send.group = GroupId(0);
      send.peer_offset = offset;
      send.input = test::Read(any(r));
      roles[r].Collective(absl::StrCat("send", e), send);
      CollectiveSpec recv;
      recv.kind = CollectiveKind::kRecv;
      recv.group = GroupId(0);
      recv.peer_offset = -offset;
      recv.output = test::Write(any(to));
      roles[to].Collective(absl::StrCat("recv", e), recv);
    }
  }
  std::vector<Graph> graphs;
  for (const GraphBuilder& role : roles) graphs.push_back(role.graph());
  return graphs;
}

// A job of several roles, whose plans can be changed.
struct Job {
  std::vector<Graph> graphs;
  std::vector<RoleSpec> roles;
  Meetings meetings;
  std::vector<Plan> plans;

  absl::Status Verdict() const {
    std::vector<const Plan*> all;
    for (const Plan& plan : plans) {
      const absl::Status status = VerifyPlan(plan);
      if (!status.ok()) return status;
      all.push_back(&plan);
    }
    return VerifyRoles(roles, all);
  }
  test::ModelResult Interleavings() const {
    std::vector<std::shared_ptr<const Plan>> all;
    for (const Plan& plan : plans) {
      all.push_back(std::make_shared<const Plan>(plan));
    }
    return test::Explore(test::ModelOf(all, meetings, 1));
  }
};

std::unique_ptr<Job> MakeJob(std::vector<Graph> graphs,
                             const PlanOptions& options) {
  auto job = std::make_unique<Job>();
  job->graphs = std::move(graphs);
  job->roles = test::RolesOf(job->graphs);
  const auto plans = BuildPlans(job->roles, options);
  EXPECT_OK(plans);
  const auto meetings = FindMeetings(job->roles);
  EXPECT_OK(meetings);
  if (!plans.ok() || !meetings.ok()) return nullptr;
  job->meetings = *meetings;
  for (const auto& plan : *plans) job->plans.push_back(*plan);
  return job;
}

std::unique_ptr<Job> RandomJob(uint64_t seed) {
  Draw draw(seed);
  PlanOptions options;
  options.priority = Priority::kOff;
  if (draw.Chance(50)) {
    options.max_launches_in_flight = static_cast<uint32_t>(draw.Int(1, 2));
  }
  if (draw.Chance(30)) options.coalesce_bytes = 64;
  if (draw.Chance(30)) options.num_comm_lanes = 2;
  if (draw.Chance(20)) options.schedule = Schedule::kSerial;
  return MakeJob(RandomRoles(&draw), options);
}

// Renumbers launches: launch k becomes to[k].
void Renumber(const std::vector<uint32_t>& to, Plan* plan) {
  auto waits = [&](WaitList* list) {
    for (Wait& wait : *list) {
      if (wait.producer.kind != NodeRef::Kind::kLaunch) continue;
      wait.producer.index = to[wait.producer.index];
    }
  };
  for (ComputeNode& node : plan->nodes) {
    waits(&node.waits);
    for (LaunchId& launch : node.needs) launch = LaunchId(to[launch.value()]);
  }
  for (Launch& launch : plan->launches) waits(&launch.waits);
  uint32_t due = 0;
  plan->due_after.clear();
  for (uint32_t k = 0; k < plan->launches.size(); ++k) {
    for (OpId op : plan->launches[k].members) {
      plan->launch_of_op[op.value()] = LaunchId(k);
    }
    for (OpId op : plan->launches[k].producers) {
      due = std::max(due, plan->node_of_op[op.value()] + 1);
    }
    plan->due_after.push_back(due);
  }
}

// Launches k and k + 1 in the other order. Places in the one order stay, so
// that what is wrong shows in what the ranks do alone.
void SwapLaunches(uint32_t k, Plan* plan) {
  std::swap(plan->launches[k], plan->launches[k + 1]);
  std::swap(plan->launches[k].key, plan->launches[k + 1].key);
  std::vector<uint32_t> to(plan->launches.size());
  for (uint32_t i = 0; i < to.size(); ++i) to[i] = i;
  std::swap(to[k], to[k + 1]);
  Renumber(to, plan);
}

// Launch k + 1 travels with launch k.
void MergeLaunches(uint32_t k, Plan* plan) {
  Launch& launch = plan->launches[k];
  const Launch& next = plan->launches[k + 1];
  launch.members.insert(launch.members.end(), next.members.begin(),
                        next.members.end());
  launch.payload_bytes += next.payload_bytes;
  launch.way = Way::kGroup;
  launch.producers.insert(launch.producers.end(), next.producers.begin(),
                          next.producers.end());
  std::sort(launch.producers.begin(), launch.producers.end());
  for (const Wait& wait : next.waits) {
    const bool on_itself = wait.producer.kind == NodeRef::Kind::kLaunch &&
                           wait.producer.index == k && wait.distance == 0;
    if (!on_itself) launch.waits.push_back(wait);
  }
  plan->launches.erase(plan->launches.begin() + k + 1);
  std::vector<uint32_t> to(plan->launches.size() + 1);
  for (uint32_t i = 0; i < to.size(); ++i) to[i] = i <= k ? i : i - 1;
  Renumber(to, plan);
}

TEST(VerifyRolesTest, EveryPlanOfSeveralRolesEndsInEveryInterleaving) {
  const int cases = PropertyCases(400);
  uint64_t states = 0;
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(DescribeSeed(seed));
    const auto job = RandomJob(seed);
    ASSERT_NE(job, nullptr);
    ASSERT_OK(job->Verdict());
    const test::ModelResult result = job->Interleavings();
    ASSERT_TRUE(result.ok()) << result.Text();
    states += result.states;
  }
  std::cout << cases << " jobs, " << states << " states\n";
}

TEST(VerifyRolesTest, TwoLaunchesSwappedInOneRoleAreRefusedIfThatDeadlocks) {
  const int cases = PropertyCases(400);
  int swaps = 0;
  int deadlocks = 0;
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(DescribeSeed(seed));
    const auto job = RandomJob(seed);
    ASSERT_NE(job, nullptr);
    for (Plan& plan : job->plans) {
      const Plan good = plan;
      for (uint32_t k = 0; k + 1 < good.launches.size(); ++k) {
        SwapLaunches(k, &plan);
        ++swaps;
        if (!job->Interleavings().deadlock.empty()) {
          ++deadlocks;
          ASSERT_FALSE(job->Verdict().ok())
              << "launches " << k << ", " << k + 1;
        }
        plan = good;
      }
    }
  }
  std::cout << swaps << " swaps, " << deadlocks << " deadlocks\n";
  if (cases < 100) return;
  EXPECT_GT(deadlocks, 0);
}

TEST(VerifyRolesTest, ATickMergedWronglyIsRefusedIfThatDeadlocks) {
  const int cases = PropertyCases(400);
  int merges = 0;
  int deadlocks = 0;
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(DescribeSeed(seed));
    const auto job = RandomJob(seed);
    ASSERT_NE(job, nullptr);
    for (Plan& plan : job->plans) {
      const Plan good = plan;
      for (uint32_t k = 0; k + 1 < good.launches.size(); ++k) {
        if (good.launches[k].kind != CollectiveKind::kSend) continue;
        if (good.launches[k + 1].kind != CollectiveKind::kSend) continue;
        MergeLaunches(k, &plan);
        ++merges;
        if (!job->Interleavings().deadlock.empty()) {
          ++deadlocks;
          ASSERT_FALSE(job->Verdict().ok()) << "launches " << k;
        }
        plan = good;
      }
    }
  }
  std::cout << merges << " merges, " << deadlocks << " deadlocks\n";
  if (cases < 100) return;
  EXPECT_GT(deadlocks, 0);
}

Launch& LaunchOf(Plan* plan, const std::string& name) {
  const OpId op = *plan->graph->FindOp(name);
  return plan->launches[plan->launch_of_op[op.value()].value()];
}

std::unique_ptr<Job> TwoStages() {
  return MakeJob(test::MakePipeline({.stages = 2, .micro_batches = 2}), {});
}

TEST(VerifyRolesTest, ADueConditionThatIsGoneIsRefused) {
  const auto job = TwoStages();
  ASSERT_NE(job, nullptr);
  ASSERT_OK(job->Verdict());
  Launch& launch = LaunchOf(&job->plans[0], "send.out.0.1");
  ASSERT_FALSE(launch.producers.empty());
  launch.producers.clear();
  EXPECT_THAT(job->Verdict(), StatusIs(kNotProved, "is due after"));
  std::vector<uint32_t> same(job->plans[0].launches.size());
  for (uint32_t i = 0; i < same.size(); ++i) same[i] = i;
  Renumber(same, &job->plans[0]);
  EXPECT_THAT(
      job->Verdict(),
      StatusIs(kNotProved, "waits for 'fwd.0.1', which comes due only after"));
}

TEST(VerifyRolesTest, KeysMustGrowAndBeEqualWhereRolesMeet) {
  auto job = TwoStages();
  ASSERT_NE(job, nullptr);
  LaunchOf(&job->plans[1], "norm").key += 1;
  EXPECT_THAT(job->Verdict(), StatusIs(kNotProved, "launch 0 on group 'all'"));
  job = TwoStages();
  job->plans[0].launches[1].key = 0;
  EXPECT_THAT(job->Verdict(), StatusIs(kNotProved, "which is not above that"));
}

TEST(VerifyRolesTest, ALaunchThatAMemberLacksIsNamed) {
  auto job = TwoStages();
  ASSERT_NE(job, nullptr);
  LaunchOf(&job->plans[1], "norm").reduce_op = ReduceOp::kMax;
  const absl::Status status = job->Verdict();
  EXPECT_THAT(status, StatusIs(kNotProved, "in role 0, but <"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("'norm'"));
}

// Both send first, in a launch of its own: fine where the next one is under way
// beside it. The planner would have one of them receive first.
TEST(VerifyRolesTest, SendsThatNeedALaterLaunchAreRefusedOnSerialLanes) {
  const auto role = [](DType first, DType second) {
    GraphBuilder builder;
    const GroupId pp = builder.Group("pp", 2);
    CollectiveSpec send;
    send.kind = CollectiveKind::kSend;
    send.group = pp;
    send.peer_offset = 1;
    send.input = test::Read(builder.Buffer({.name = "out",
                                            .dtype = first,
                                            .ownership = Ownership::kBound,
                                            .count = 4}));
    builder.Collective("send", send);
    CollectiveSpec receive;
    receive.kind = CollectiveKind::kRecv;
    receive.group = pp;
    receive.peer_offset = -1;
    receive.output = test::Write(builder.Buffer({.name = "in",
                                                 .dtype = second,
                                                 .ownership = Ownership::kBound,
                                                 .count = 4}));
    builder.Collective("receive", receive);
    return builder.graph();
  };
  const std::vector<Graph> graphs = {role(DType::kF32, DType::kI32),
                                     role(DType::kI32, DType::kF32)};
  const auto job = MakeJob(graphs, {});
  ASSERT_NE(job, nullptr);
  for (Plan& plan : job->plans) {
    ASSERT_EQ(plan.launches.size(), 2u);
    if (plan.launch_of_op[0] == LaunchId(0)) continue;
    std::swap(plan.launches[0].members, plan.launches[1].members);
    std::swap(plan.launches[0].dtype, plan.launches[1].dtype);
    std::swap(plan.launch_of_op[0], plan.launch_of_op[1]);
  }
  const std::vector<const Plan*> plans = {&job->plans[0], &job->plans[1]};
  EXPECT_OK(VerifyRoles(job->roles, plans));
  for (Plan& plan : job->plans) plan.options.backend.serial_lanes = true;
  EXPECT_THAT(VerifyRoles(job->roles, plans),
              StatusIs(kNotProved, "roles: deadlock: "));
}

// Each role's plan is good on its own, and what goes from one position to
// another is in one order.
TEST(VerifyRolesTest, ACycleThatOnlyAllRolesHaveIsNamed) {
  auto role = [](CollectiveKind a, CollectiveKind b) {
    GraphBuilder builder;
    const GroupId pp = builder.Group("pp", 2);
    for (const auto& [name, kind, dtype] :
         {std::make_tuple("a", a, DType::kF32),
          std::make_tuple("b", b, DType::kI32)}) {
      const BufferId buffer = builder.Buffer({.name = name,
                                              .dtype = dtype,
                                              .ownership = Ownership::kBound,
                                              .count = 4});
      CollectiveSpec spec;
      spec.kind = kind;
      spec.group = pp;
      spec.peer_offset = 1;
      if (kind == CollectiveKind::kSend) {
        spec.input = test::Read(buffer);
      } else {
        spec.output = test::Write(buffer);
      }
      builder.Collective(name, spec);
    }
    return builder.graph();
  };
  PlanOptions options;
  options.max_launches_in_flight = 1;
  const auto job = MakeJob({role(CollectiveKind::kSend, CollectiveKind::kRecv),
                            role(CollectiveKind::kRecv, CollectiveKind::kSend)},
                           options);
  ASSERT_NE(job, nullptr);
  Plan& plan = job->plans[1];
  ASSERT_EQ(plan.launches.size(), 2u);
  std::swap(plan.launches[0].members, plan.launches[1].members);
  std::swap(plan.launches[0].dtype, plan.launches[1].dtype);
  std::swap(plan.launch_of_op[0], plan.launch_of_op[1]);
  for (const Plan& each : job->plans) {
    EXPECT_THAT(each.launches[1].waits, ::testing::SizeIs(1));
  }
  EXPECT_THAT(job->Interleavings().deadlock, HasSubstr("stuck"));
  const absl::Status status =
      VerifyRoles(job->roles, std::vector<const Plan*>{&job->plans[0], &plan});
  EXPECT_THAT(status, StatusIs(kNotProved, "roles: deadlock"));
  for (const char* part :
       {"completion of launch 0 ('a') of role 0", "issue of launch 1 ('a')",
        "completion of launch 0 ('b') of role 1", "issue of launch 1 ('b')"}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

TEST(VerifyRolesTest, PeersMustTakeTheirMessagesInOneOrder) {
  const auto job = TwoStages();
  ASSERT_NE(job, nullptr);
  Plan& plan = job->plans[1];
  Launch& first = LaunchOf(&plan, "recv.in.0.0");
  Launch& second = LaunchOf(&plan, "recv.in.0.1");
  std::vector<const Plan*> all = {&job->plans[0], &plan};
  ASSERT_OK(VerifyRoles(job->roles, all));
  std::swap(first.members, second.members);
  EXPECT_THAT(
      VerifyRoles(job->roles, all),
      StatusIs(kNotProved,
               "send 0 from position 0 to 1 is 'send.out.0.0' of role 0, f32 "
               "count 64, declared as number 0, but is received by "
               "'recv.in.0.1' of role 1"));
}

}  // namespace
}  // namespace commsched
