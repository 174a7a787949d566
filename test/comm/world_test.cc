#include "comm/world.h"

#include <atomic>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "comm/plugin/registry.h"
#include "control/server.h"
#include "gtest/gtest.h"
#include "test/exec/logged_device.h"
#include "test/support/await.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

WorldSpec SpecOf(int size, const char* backend = "inproc") {
  WorldSpec spec;
  spec.size = size;
  spec.backend = backend;
  return spec;
}

TEST(WorldTest, HasTheBackendThatWasAskedFor) {
  for (const char* name : {"inproc", "null"}) {
    ASSERT_OK_AND_ASSIGN(auto world, World::Create(SpecOf(2, name)));
    EXPECT_STREQ(world->backend()->name, name);
    EXPECT_EQ(world->backend()->abi, uint32_t{COMMSCHED_BACKEND_ABI});
    ASSERT_OK_AND_ASSIGN(BackendRank* const opened, world->Rank(0));
    EXPECT_NE(opened->handle(), nullptr);
  }
}

TEST(WorldTest, SizeMustBeInRange) {
  EXPECT_THAT(World::Create(SpecOf(0)),
              StatusIs(absl::StatusCode::kInvalidArgument, "1..4096"));
  EXPECT_THAT(World::Create(SpecOf(4097)),
              StatusIs(absl::StatusCode::kInvalidArgument, "4097"));
}

TEST(WorldTest, AnUnknownBackendIsNotFoundAndTheKnownAreListed) {
  EXPECT_THAT(World::Create(SpecOf(1, "mpi")),
              StatusIs(absl::StatusCode::kNotFound,
                       "'mpi'; there are: 'inproc', 'null'"));
}

TEST(WorldTest, ABackendRefusesAConfigurationThatItDoesNotKnow) {
  WorldSpec spec = SpecOf(2);
  spec.backend_config = "link_bytes_per_s=fast";
  EXPECT_THAT(World::Create(spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "backend 'inproc': configuration: link_bytes_per_s is "
                       "'fast'"));
  spec.backend = "null";
  EXPECT_THAT(World::Create(spec),
              StatusIs(absl::StatusCode::kInvalidArgument, "'null'"));
}

TEST(WorldTest, ARankHasOneHolderAtATime) {
  ASSERT_OK_AND_ASSIGN(auto world, World::Create(SpecOf(2)));
  EXPECT_OK(world->AcquireRank(1));
  EXPECT_THAT(world->AcquireRank(1),
              StatusIs(absl::StatusCode::kAlreadyExists, "rank 1"));
  EXPECT_OK(world->AcquireRank(0));
  world->ReleaseRank(1);
  EXPECT_OK(world->AcquireRank(1));
}

TEST(WorldTest, ARankOutsideTheWorldIsRefused) {
  ASSERT_OK_AND_ASSIGN(auto world, World::Create(SpecOf(2)));
  EXPECT_THAT(world->AcquireRank(2),
              StatusIs(absl::StatusCode::kInvalidArgument, "0..1"));
  EXPECT_THAT(world->AcquireRank(-1),
              StatusIs(absl::StatusCode::kInvalidArgument, "rank -1"));
}

// ---- Lanes of devices ----

const Stream* LaneOf(World* world, int rank) {
  const std::vector<LaneKey> keys = {{world, "dp", 0}};
  return world->BorrowLanes(rank, keys).value()[0]->stream();
}

TEST(WorldTest, WorldsOnOneDeviceHaveTheSameLanes) {
  WorldSpec spec = SpecOf(1);
  const auto device = std::make_shared<test::LoggedDevice>();
  spec.devices = {device};
  ASSERT_OK_AND_ASSIGN(auto first, World::Create(spec));
  ASSERT_OK_AND_ASSIGN(auto second, World::Create(spec));
  const Stream* const lane = LaneOf(first.get(), 0);
  EXPECT_EQ(LaneOf(second.get(), 0), lane);
  first.reset();
  EXPECT_EQ(LaneOf(second.get(), 0), lane);
  EXPECT_EQ(device->num_streams, 1);
}

// A launch of one waits for that of the other, which must not be behind it.
TEST(WorldTest, RanksOfAWorldThatShareADeviceShareNoLane) {
  WorldSpec spec = SpecOf(3);
  const auto device = std::make_shared<test::LoggedDevice>();
  spec.devices = {device, device, device};
  ASSERT_OK_AND_ASSIGN(auto world, World::Create(spec));
  const Stream* lanes[3] = {};
  for (int r = 0; r < 3; ++r) lanes[r] = LaneOf(world.get(), r);
  EXPECT_EQ(std::set(std::begin(lanes), std::end(lanes)).size(), 3u);
  // Nor does a rank of a part of the world with other ranks of the world.
  test::ExpectAllOk(RunRanks(2, [&](int r) -> absl::Status {
    ASSIGN_OR_RETURN(const auto part, world->Split(1 + r, {1, 2}, "part",
                                                   int64_t{60'000'000'000}));
    EXPECT_EQ(LaneOf(part.get(), r), lanes[1 + r]);
    return absl::OkStatus();
  }));
}

// ---- Worlds of processes ----

constexpr int64_t kMeetingNs = int64_t{60} * 1'000'000'000;

std::unique_ptr<ControlServer> Serve(int size) {
  ControlServerSpec spec;
  spec.size = size;
  return *ControlServer::Start(spec);
}

JobSpec JobOf(const ControlServer& server, int rank, int size) {
  JobSpec job;
  job.environment.rank = rank;
  job.environment.size = size;
  job.environment.server_host = "127.0.0.1";
  job.environment.server_port = server.port();
  job.environment.rank_0_serves = false;
  return job;
}

// Keeps what it is told.
class Watcher final : public FailureWatcher {
 public:
  void OnFailure(const absl::Status& why) override {
    MutexLock lock(&mu_);
    why_ = why;
  }
  absl::Status why() {
    MutexLock lock(&mu_);
    return why_;
  }

 private:
  Mutex mu_;
  absl::Status why_;
};

TEST(JoinedWorldTest, IsOneRankOfTheJob) {
  const auto server = Serve(2);
  EXPECT_OK(RunAllRanks(2, [&](int rank) -> absl::Status {
    auto world = World::Join(SpecOf(0, "null"), JobOf(*server, rank, 2));
    if (!world.ok()) return world.status();
    EXPECT_EQ((*world)->spec().size, 2);
    EXPECT_EQ((*world)->own_rank(), rank);
    EXPECT_EQ((*world)->local_size(), 1);
    EXPECT_OK((*world)->AcquireRank(rank));
    EXPECT_THAT(
        (*world)->AcquireRank(1 - rank),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 absl::StrCat("rank ", 1 - rank,
                              " is another process; this one is rank ", rank)));
    return (*world)->meeting()->AllGather("key", rank, "", kMeetingNs).status();
  }));
}

TEST(JoinedWorldTest, NeedsABackendThatConnectsProcesses) {
  const auto server = Serve(1);
  EXPECT_THAT(World::Join(SpecOf(0, "inproc"), JobOf(*server, 0, 1)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "'inproc' connects threads of one process"));
}

TEST(JoinedWorldTest, ALostRankIsToldToWatchersThatLive) {
  const auto server = Serve(2);
  ASSERT_OK_AND_ASSIGN(auto world,
                       World::Join(SpecOf(0, "null"), JobOf(*server, 0, 2)));
  auto watcher = std::make_shared<Watcher>();
  auto gone = std::make_shared<Watcher>();
  world->Watch(watcher, 0, 0);
  world->Watch(gone, 0, 0);
  gone.reset();
  {
    // A rank that joins and breaks the protocol.
    ControlClientSpec client;
    client.host = "127.0.0.1";
    client.port = server->port();
    client.rank = 1;
    client.size = 2;
    ASSERT_OK_AND_ASSIGN(const auto other, ControlClient::Connect(client));
    other->Decline({}, "key", absl::OkStatus());
    ASSERT_TRUE(test::Await([&] { return !watcher->why().ok(); }));
  }
  EXPECT_THAT(watcher->why(),
              StatusIs(absl::StatusCode::kAborted, "rank 1 is lost: "));
  const auto late = std::make_shared<Watcher>();
  world->Watch(late, 0, 0);
  EXPECT_THAT(late->why(),
              StatusIs(absl::StatusCode::kAborted, "rank 1 is lost: "));
}

TEST(JoinedWorldTest, ALostServerIsUnavailable) {
  auto server = Serve(2);
  ASSERT_OK_AND_ASSIGN(auto world,
                       World::Join(SpecOf(0, "null"), JobOf(*server, 0, 2)));
  auto watcher = std::make_shared<Watcher>();
  world->Watch(watcher, 0, 0);
  server.reset();
  ASSERT_TRUE(test::Await([&] { return !watcher->why().ok(); }));
  EXPECT_THAT(watcher->why(),
              StatusIs(absl::StatusCode::kUnavailable, "is lost: "));
}

TEST(JoinedWorldTest, ARankThatDoesNotJoinIsNamed) {
  const auto server = Serve(3);
  JobSpec job = JobOf(*server, 0, 3);
  job.timeout_ns = 50'000'000;
  ASSERT_OK_AND_ASSIGN(auto world, World::Join(SpecOf(0, "null"), job));
  EXPECT_THAT(world->Rank(0),
              StatusIs(absl::StatusCode::kAborted,
                       "ranks 1, 2 of 3 have not joined within 0.05 s"));
}

TEST(JoinedWorldTest, ThreadsOfARankWaitForTheOthersTogether) {
  const auto server = Serve(2);
  std::vector<std::shared_ptr<World>> worlds(2);
  ASSERT_OK_AND_ASSIGN(worlds[0],
                       World::Join(SpecOf(0, "null"), JobOf(*server, 0, 2)));
  std::atomic<int> num_waiting{0};
  EXPECT_OK(RunAllRanks(3, [&](int thread) -> absl::Status {
    if (thread < 2) {
      num_waiting.fetch_add(1);
      return worlds[0]->WaitForRoster().status();
    }
    EXPECT_TRUE(test::Await([&] { return num_waiting.load() == 2; }));
    ASSIGN_OR_RETURN(worlds[1],
                     World::Join(SpecOf(0, "null"), JobOf(*server, 1, 2)));
    return absl::OkStatus();
  }));
  // Who leaves waits for the other.
  EXPECT_OK(RunAllRanks(2, [&](int rank) {
    worlds[static_cast<size_t>(rank)].reset();
    return absl::OkStatus();
  }));
}

// The first failure of a scope reaches whoever else watches that scope, also if
// they come later.
TEST(WorldTest, AFailureIsToldToTheOtherRanksOfItsScope) {
  ASSERT_OK_AND_ASSIGN(auto world, World::Create(SpecOf(3, "null")));
  const auto own = std::make_shared<Watcher>();
  const auto other = std::make_shared<Watcher>();
  const auto elsewhere = std::make_shared<Watcher>();
  world->Watch(own, 0, 7);
  world->Watch(other, 1, 7);
  world->Watch(elsewhere, 1, 8);
  world->Tell(0, 7, absl::DataLossError("rank 0: first"));
  world->Tell(1, 7, absl::InternalError("rank 1: second"));
  EXPECT_OK(own->why());
  EXPECT_THAT(other->why(),
              StatusIs(absl::StatusCode::kDataLoss, "rank 0: first"));
  EXPECT_OK(elsewhere->why());
  const auto late = std::make_shared<Watcher>();
  world->Watch(late, 2, 7);
  EXPECT_THAT(late->why(),
              StatusIs(absl::StatusCode::kDataLoss, "rank 0: first"));
}

TEST(JoinedWorldTest, AFailureReachesTheOtherProcesses) {
  const auto server = Serve(2);
  EXPECT_OK(RunAllRanks(2, [&](int rank) -> absl::Status {
    auto world = World::Join(SpecOf(0, "null"), JobOf(*server, rank, 2));
    if (!world.ok()) return world.status();
    const auto watcher = std::make_shared<Watcher>();
    if (rank == 0) {
      // A message is cut, not refused.
      (*world)->Tell(0, 7, absl::DataLossError(std::string(10'000, 'x')));
    } else {
      (*world)->Watch(watcher, rank, 7);
      EXPECT_TRUE(test::Await([&] { return !watcher->why().ok(); }));
      EXPECT_THAT(watcher->why(), StatusIs(absl::StatusCode::kDataLoss,
                                           std::string(4096, 'x')));
      EXPECT_EQ(watcher->why().message().size(), 4096u);
    }
    return (*world)->meeting()->AllGather("key", rank, "", kMeetingNs).status();
  }));
}

TEST(JoinedWorldTest, RankZeroSaysWhatTheLinksAre) {
  const auto server = Serve(3);
  EXPECT_OK(RunAllRanks(3, [&](int rank) -> absl::Status {
    WorldSpec spec = SpecOf(0, "null");
    spec.links = commsched_link_profile_init();
    spec.links->host.latency_ns = 100 + rank;
    if (rank == 2) spec.links.reset();
    auto world = World::Join(spec, JobOf(*server, rank, 3));
    RETURN_IF_ERROR(world.status());
    const auto links = (*world)->Links();
    RETURN_IF_ERROR(links.status());
    EXPECT_TRUE(links->has_value());
    EXPECT_EQ((*links)->host.latency_ns, 100);
    return absl::OkStatus();
  }));
}

TEST(JoinedWorldTest, WhoSaysNothingOfLinksGetsNothing) {
  const auto server = Serve(1);
  ASSERT_OK_AND_ASSIGN(auto world,
                       World::Join(SpecOf(0, "null"), JobOf(*server, 0, 1)));
  ASSERT_OK_AND_ASSIGN(const auto links, world->Links());
  EXPECT_FALSE(links.has_value());
}

// A backend that only looks at what it is given.
struct Looking {
  commsched_instance_desc_t desc = {};
  commsched_backend_rank_desc_t rank = {};
  commsched_oob_t oob = {};
};
Looking looking;

TEST(JoinedWorldTest, ABackendExchangesValues) {
  const auto server = Serve(1);
  commsched_backend_t table = {};
  ASSERT_OK_AND_ASSIGN(const commsched_backend_t* null,
                       PluginRegistry::Process().Backend("null"));
  table = *null;
  table.instance_create = [](const commsched_instance_desc_t* desc, void** out,
                             char*, uint64_t) -> commsched_status_t {
    looking.desc = *desc;
    *out = &looking;
    return COMMSCHED_OK;
  };
  table.instance_destroy = [](void*) {};
  table.rank_open = [](void*, const commsched_backend_rank_desc_t* desc,
                       void** out, char*, uint64_t) -> commsched_status_t {
    looking.rank = *desc;
    looking.oob = *desc->oob;
    *out = &looking;
    return COMMSCHED_OK;
  };
  table.rank_close = [](void*) {};
  WorldSpec spec;
  spec.table = &table;
  spec.links = commsched_link_profile_init();
  spec.links->network.latency_ns = 77;
  ASSERT_OK_AND_ASSIGN(auto world, World::Join(spec, JobOf(*server, 0, 1)));
  EXPECT_EQ(looking.desc.world_rank, 0);
  EXPECT_EQ(looking.desc.world_size, 1);
  ASSERT_OK_AND_ASSIGN(BackendRank* const opened, world->Rank(0));
  EXPECT_EQ(opened->handle(), &looking);
  EXPECT_EQ(looking.rank.world_rank, 0);
  EXPECT_EQ(looking.rank.local_size, 1);
  EXPECT_STRNE(looking.rank.hosts[0], "");
  EXPECT_STRNE(looking.rank.networks[0], "");
  ASSERT_NE(looking.rank.links, nullptr);
  EXPECT_EQ(looking.rank.links->network.latency_ns, 77);
  EXPECT_EQ(looking.rank.device_kind, uint32_t{COMMSCHED_DEVICE_HOST});
  const commsched_oob_t& oob = looking.oob;
  char message[200] = "";
  EXPECT_EQ(oob.put(oob.user, "key", "value", 5, message, sizeof(message)),
            COMMSCHED_OK);
  EXPECT_EQ(oob.put(oob.user, "key", "other", 5, message, sizeof(message)),
            COMMSCHED_ALREADY_EXISTS);
  char value[8] = "";
  uint64_t bytes = sizeof(value);
  EXPECT_EQ(oob.get(oob.user, "key", value, &bytes, INT64_MAX, message,
                    sizeof(message)),
            COMMSCHED_OK);
  EXPECT_EQ(std::string(value, bytes), "value");
  bytes = 4;
  EXPECT_EQ(oob.get(oob.user, "key", value, &bytes, INT64_MAX, message,
                    sizeof(message)),
            COMMSCHED_OUT_OF_RANGE);
  EXPECT_EQ(bytes, 5u);
  EXPECT_EQ(std::string(message),
            "value of key 'key' has 5 bytes, room for 4 was given");
  EXPECT_EQ(
      oob.get(oob.user, "nothing", value, &bytes, 0, message, sizeof(message)),
      COMMSCHED_DEADLINE_EXCEEDED);
}

}  // namespace
}  // namespace commsched
