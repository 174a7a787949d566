// Backends that break the rules of their table are named, with the call.
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "base/status_macros.h"
#include "comm/plugin/registry.h"
#include "device/host_device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "session/session.h"
#include "test/recording/recording_rig.h"
#include "test/session/bucket_graph.h"
#include "test/support/await.h"
#include "test/support/graph_builder.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::BucketGraph;
using test::MakeBuckets;
using test::ModulesRank;
using test::ModulesSpec;
using test::RunStep;
using test::SessionRig;
using testing::EndsWith;
using testing::HasSubstr;

constexpr commsched_status_t kNoStatus = 999;

// The table of a built-in backend: a test replaces some of its functions.
commsched_backend_t TableOf(const char* backend) {
  return *PluginRegistry::Process().Backend(backend).value();
}

// What a step of one rank ends with.
absl::Status StepOn(const commsched_backend_t& table) {
  const BucketGraph made = MakeBuckets(1, 1, 8);
  WorldSpec world = test::Ranks(1);
  world.table = &table;
  SessionRig rig(world, made.graph, {});
  ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                   Session::Create(rig.Spec(0)));
  absl::Status status = RunStep(*session, rig, made, 0);
  return status.ok() ? session->Drain() : status;
}

// The same of a step that is recorded.
absl::Status RecordOn(const commsched_backend_t& table) {
  ModulesSpec spec;
  spec.ranks = 1;
  spec.modules = 1;
  WorldSpec world_spec = test::Ranks(1);
  world_spec.table = &table;
  std::shared_ptr<World> world = World::Create(world_spec).value();
  std::atomic<uint64_t> instances{0};
  ASSIGN_OR_RETURN(std::unique_ptr<ModulesRank> made,
                   ModulesRank::Create(spec, world, &instances, 0));
  return made->Step({0}, 0);
}

template <commsched_status_t kCode>
commsched_status_t LaunchSays(void*, const commsched_launch_t*, uint32_t,
                              commsched_stream_t, char*, uint64_t) {
  return kCode;
}
template <commsched_status_t kCode>
commsched_status_t PollSays(void*, uint32_t, commsched_launch_result_t*, char*,
                            uint64_t) {
  return kCode;
}
template <commsched_status_t kCode>
commsched_status_t StatusSays(void*, char*, uint64_t) {
  return kCode;
}

commsched_status_t PollFillsTheMessage(void*, uint32_t,
                                       commsched_launch_result_t*,
                                       char* message, uint64_t message_size) {
  std::memset(message, 'x', message_size);
  return COMMSCHED_UNAVAILABLE;
}

commsched_status_t PollSaysTwo(void*, uint32_t,
                               commsched_launch_result_t* result, char*,
                               uint64_t) {
  result->done = 2;
  return COMMSCHED_OK;
}

TEST(CarelessBackendTest, AFailureWithoutAReasonSaysWhoGaveNone) {
  commsched_backend_t table = TableOf("inproc");
  table.poll = &PollSays<COMMSCHED_UNAVAILABLE>;
  for (const absl::Status& status : {StepOn(table), RecordOn(table)}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                                 "backend 'inproc' gave no reason why poll "
                                 "failed"));
  }
  table = TableOf("inproc");
  table.launch = &LaunchSays<COMMSCHED_UNAVAILABLE>;
  for (const absl::Status& status : {StepOn(table), RecordOn(table)}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                                 ": backend 'inproc' gave no reason why launch "
                                 "failed"));
  }
}

TEST(CarelessBackendTest, AnInlineLaunchWithoutAReasonSaysWhoGaveNone) {
  commsched_backend_t table = TableOf("null");
  table.launch = &LaunchSays<COMMSCHED_UNAVAILABLE>;
  EXPECT_THAT(StepOn(table),
              StatusIs(absl::StatusCode::kUnavailable,
                       "launch #0 all_reduce 'AR0' on axis dp of step 0: "
                       "backend 'null' gave no reason why launch failed"));
}

TEST(CarelessBackendTest, AStatusThatIsNoneIsNamedWithItsCall) {
  commsched_backend_t table = TableOf("inproc");
  table.poll = &PollSays<kNoStatus>;
  for (const absl::Status& status : {StepOn(table), RecordOn(table)}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal,
                                 "backend 'inproc': poll() returned 999, which "
                                 "is not a status code"));
  }
  table = TableOf("null");
  table.launch = &LaunchSays<-1>;
  EXPECT_THAT(StepOn(table), StatusIs(absl::StatusCode::kInternal,
                                      "backend 'null': launch() returned -1, "
                                      "which is not a status code"));
}

// Found with nothing in flight, by the lane thread.
TEST(CarelessBackendTest, ABrokenCommunicatorWithoutAReasonSaysWhoGaveNone) {
  commsched_backend_t table = TableOf("inproc");
  table.comm_status = &StatusSays<COMMSCHED_DATA_LOSS>;
  const BucketGraph made = MakeBuckets(1, 1, 8);
  WorldSpec world = test::Ranks(1);
  world.table = &table;
  SessionRig rig(world, made.graph, {});
  const std::unique_ptr<Session> session = Session::Create(rig.Spec(0)).value();
  ASSERT_TRUE(test::Await([&] { return !session->status().ok(); }));
  EXPECT_THAT(session->status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       "backend 'inproc' gave no reason why comm_status "
                       "failed"));
}

TEST(CarelessBackendTest, AReasonWithoutAnEndIsCutWhereItsRoomEnds) {
  commsched_backend_t table = TableOf("inproc");
  table.poll = &PollFillsTheMessage;
  for (const absl::Status& status : {StepOn(table), RecordOn(table)}) {
    EXPECT_THAT(std::string(status.message()),
                EndsWith(": " + std::string(512, 'x')));
  }
}

TEST(CarelessBackendTest, ALaunchIsDoneOrItIsNot) {
  commsched_backend_t table = TableOf("inproc");
  table.poll = &PollSaysTwo;
  for (const absl::Status& status : {StepOn(table), RecordOn(table)}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal,
                                 "backend 'inproc' set done to 2, which is "
                                 "neither 0 nor 1, in poll"));
  }
}

TEST(CarelessBackendTest, ACommunicatorIsReadyOrItIsNot) {
  commsched_backend_t table = TableOf("inproc");
  table.comm_ready = [](void*, uint32_t* out_ready, char*,
                        uint64_t) -> commsched_status_t {
    *out_ready = 2;
    return COMMSCHED_OK;
  };
  for (const absl::Status& status : {StepOn(table), RecordOn(table)}) {
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kInternal,
                         "axis dp: backend 'inproc' set out_ready to 2, which "
                         "is neither 0 nor 1, in comm_ready"));
  }
}

TEST(CarelessBackendTest, WhatCannotBeMadeSaysWhoGaveNoReason) {
  commsched_backend_t table = TableOf("inproc");
  table.comm_create = [](void*, const commsched_comm_desc_t*, void**, char*,
                         uint64_t) { return kNoStatus; };
  EXPECT_THAT(
      StepOn(table),
      StatusIs(absl::StatusCode::kInternal,
               "communicator of axis dp: backend 'inproc': comm_create() "
               "returned 999, which is not a status code"));
  table = TableOf("inproc");
  table.instance_create = [](const commsched_instance_desc_t*, void**, char*,
                             uint64_t) {
    return commsched_status_t{COMMSCHED_UNAVAILABLE};
  };
  WorldSpec world = test::Ranks(1);
  world.table = &table;
  EXPECT_THAT(World::Create(world).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       "backend 'inproc': it gave no reason why "
                       "instance_create failed"));
}

// ---- What a backend tells of its launches ----

commsched_status_t EstimateSaysLevels(void*, const commsched_launch_t* launch,
                                      commsched_launch_estimate_t* estimate,
                                      char*, uint64_t) {
  estimate->algorithm = "levels";
  estimate->predicted_ns = static_cast<int64_t>(launch->members[0].count);
  estimate->pieces = launch->num_members;
  return COMMSCHED_OK;
}
template <commsched_status_t kCode>
commsched_status_t EstimateSays(void*, const commsched_launch_t*,
                                commsched_launch_estimate_t*, char* message,
                                uint64_t message_size) {
  std::strncpy(message, "too large", message_size);
  return kCode;
}

absl::StatusOr<commsched_launch_estimate_t> EstimateOn(
    const commsched_backend_t& table, uint64_t launch) {
  const BucketGraph made = MakeBuckets(1, 2, 8);
  WorldSpec world = test::Ranks(1);
  world.table = &table;
  SessionRig rig(world, made.graph, {});
  ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                   Session::Create(rig.Spec(0)));
  return session->EstimateOf(launch);
}

TEST(EstimateTest, IsWhatTheBackendTellsOfTheLaunchAsItIsBound) {
  commsched_backend_t table = TableOf("null");
  table.comm_estimate = &EstimateSaysLevels;
  ASSERT_OK_AND_ASSIGN(const auto estimate, EstimateOn(table, 1));
  EXPECT_STREQ(estimate.algorithm, "levels");
  EXPECT_EQ(estimate.predicted_ns, 8);
  EXPECT_EQ(estimate.pieces, 1u);
  EXPECT_THAT(
      EstimateOn(table, 2).status(),
      StatusIs(absl::StatusCode::kOutOfRange, "launch is 2, the plan has 2"));
}

TEST(EstimateTest, WhatIsBoundLateHasNone) {
  test::GraphBuilder builder;
  const BufferId late = builder.Buffer("late", 8, Ownership::kLateBound);
  builder.Compute("make", {test::Write(late)});
  builder.AllReduce("sum", builder.Group("dp", 1), late);
  builder.Compute("use", {test::Read(late)});
  commsched_backend_t table = TableOf("null");
  table.comm_estimate = &EstimateSaysLevels;
  WorldSpec world = test::Ranks(1);
  world.table = &table;
  SessionRig rig(world, builder.graph(), {});
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Session> session,
                       Session::Create(rig.Spec(0)));
  EXPECT_THAT(session->EstimateOf(0).status(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       "each step tells the size of launch #0"));
}

TEST(EstimateTest, WhatABackendDoesNotTellIsNoFailureOfIts) {
  EXPECT_THAT(EstimateOn(TableOf("null"), 0).status(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       "backend 'null' does not tell"));
  commsched_backend_t table = TableOf("null");
  table.comm_estimate = &EstimateSays<COMMSCHED_INVALID_ARGUMENT>;
  EXPECT_THAT(EstimateOn(table, 0).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "too large"));
  table.comm_estimate = &EstimateSays<kNoStatus>;
  EXPECT_THAT(EstimateOn(table, 0).status(),
              StatusIs(absl::StatusCode::kInternal, "comm_estimate"));
}

}  // namespace
}  // namespace commsched
