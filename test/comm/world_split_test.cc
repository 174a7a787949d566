// Worlds of some ranks of a world.
#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "comm/hosts.h"
#include "comm/meeting/memory_meeting.h"
#include "comm/plugin/registry.h"
#include "comm/world.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/exec/logged_device.h"
#include "test/support/await.h"
#include "test/support/joined_ranks.h"
#include "test/support/process_use.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using testing::ElementsAre;

constexpr int64_t kLongNs = int64_t{60} * 1'000'000'000;
constexpr int64_t kSoonNs = int64_t{50} * 1'000'000;

// Keeps the first failure that it is told of.
class SplitWatcher final : public FailureWatcher {
 public:
  void OnFailure(const absl::Status& why) override {
    MutexLock lock(&mu_);
    if (why_.ok()) why_ = why;
  }
  absl::Status why() {
    MutexLock lock(&mu_);
    return why_;
  }

 private:
  Mutex mu_;
  absl::Status why_;
};

// Ranks that are threads of one world, and such as have one each.
class WorldSplitTest : public testing::TestWithParam<bool> {
 protected:
  static constexpr int kSize = 4;

  WorldSplitTest() {
    WorldSpec spec;
    spec.size = kSize;
    spec.backend = "null";
    spec.links = commsched_link_profile_init();
    spec.links->host.latency_ns = 123;
    if (joined()) {
      EXPECT_OK(ranks_.Join(spec, kSize));
    } else {
      spec.links.reset();
      threads_ = World::Create(spec).value();
    }
  }

  static bool joined() { return GetParam(); }
  const std::shared_ptr<World>& WorldOf(int rank) {
    return joined() ? ranks_.WorldOf(rank) : threads_;
  }
  absl::StatusOr<std::shared_ptr<World>> Split(int rank,
                                               const std::vector<int>& members,
                                               const std::string& name = "tp",
                                               int64_t timeout_ns = kLongNs) {
    return WorldOf(rank)->Split(rank, members, name, timeout_ns);
  }
  // On some ranks at once; by place in `ranks`.
  std::vector<absl::Status> OnRanks(
      const std::vector<int>& ranks,
      const std::function<absl::Status(int rank)>& body) {
    return RunRanks(static_cast<int>(ranks.size()),
                    [&](int i) { return body(ranks[static_cast<size_t>(i)]); });
  }

  JoinedRanks ranks_;
  std::shared_ptr<World> threads_;
};

INSTANTIATE_TEST_SUITE_P(All, WorldSplitTest, testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "Processes" : "Threads";
                         });

TEST_P(WorldSplitTest, NumbersItsMembersInTheirOrder) {
  const std::vector<int> members = {3, 1};
  for (const absl::Status& status :
       OnRanks(members, [&](int rank) -> absl::Status {
         ASSIGN_OR_RETURN(const auto part, Split(rank, members));
         const int own = rank == 3 ? 0 : 1;
         EXPECT_EQ(part->spec().size, 2);
         EXPECT_EQ(part->name(), "tp");
         EXPECT_EQ(part->own_rank(), joined() ? own : World::kAllRanks);
         EXPECT_EQ(part->local_size(), 2);
         EXPECT_STREQ(part->backend()->name, "null");
         EXPECT_OK(part->AcquireRank(own));
         ASSIGN_OR_RETURN(BackendRank* const opened, part->Rank(own));
         EXPECT_EQ(opened->world_rank(), own);
         ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          part->meeting()->AllGather(
                              "key", own, absl::StrCat(rank), kLongNs));
         EXPECT_THAT(all, ElementsAre("3", "1"));
         return absl::OkStatus();
       })) {
    EXPECT_OK(status);
  }
}

TEST_P(WorldSplitTest, HasHostsAndLinksOfTheWorldThatItIsAPartOf) {
  const std::vector<int> members = {2, 3};
  for (const absl::Status& status :
       OnRanks(members, [&](int rank) -> absl::Status {
         ASSIGN_OR_RETURN(const auto part, Split(rank, members));
         ASSIGN_OR_RETURN(const auto hosts, HostsOf(part.get()));
         EXPECT_THAT(hosts, ElementsAre(0, 0));
         ASSIGN_OR_RETURN(const auto links, part->Links());
         EXPECT_EQ(links.has_value(), joined());
         if (joined()) {
           EXPECT_EQ(links->host.latency_ns, 123);
         }
         EXPECT_EQ(part->join_timeout_ns(), WorldOf(rank)->join_timeout_ns());
         return absl::OkStatus();
       })) {
    EXPECT_OK(status);
  }
}

// Ranks 0 and 1 are ranks of three worlds each, of which two have one name.
TEST_P(WorldSplitTest, ARankIsInSeveralWorldsWithMeetingsOfTheirOwn) {
  EXPECT_OK(RunAllRanks(kSize, [&](int rank) -> absl::Status {
    const std::vector<int> pair =
        rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3};
    std::vector<std::shared_ptr<World>> parts;
    for (const char* name : {"tp", "tp", "pp"}) {
      ASSIGN_OR_RETURN(parts.emplace_back(), Split(rank, pair, name));
    }
    ASSIGN_OR_RETURN(parts.emplace_back(), Split(rank, {3, 2, 1, 0}, "all"));
    for (size_t i = 0; i < parts.size(); ++i) {
      const int own = i == 3 ? 3 - rank : rank % 2;
      ASSIGN_OR_RETURN(const auto all,
                       parts[i]->meeting()->AllGather(
                           "key", own, absl::StrCat(i, "-", rank), kLongNs));
      EXPECT_EQ(all[static_cast<size_t>(own)], absl::StrCat(i, "-", rank));
      EXPECT_EQ(all.size(), i == 3 ? 4u : 2u);
    }
    // Ranks end them in other orders, and nobody waits for anybody.
    if (rank % 2 == 0) std::swap(parts[0], parts[3]);
    for (auto& part : parts) part.reset();
    return absl::OkStatus();
  }));
}

// By ranks of the world that both were split from.
TEST_P(WorldSplitTest, OrdersOnALaneAreComparedBetweenParts) {
  constexpr char kOrder[] =
      "rank 1 has launch 1 of 'g' of session 0 of world 'one' before launch 1 "
      "of 'g' of session 0 of world 'two'";
  for (const absl::Status& status :
       OnRanks({1, 3}, [&](int rank) -> absl::Status {
         ASSIGN_OR_RETURN(const auto one, Split(rank, {3, 1}, "one"));
         ASSIGN_OR_RETURN(const auto two, Split(rank, {1, 3}, "two"));
         const auto device = std::make_shared<test::LoggedDevice>();
         ASSIGN_OR_RETURN(auto stream, device->CreateSideStream());
         DeviceLane lane(/*number=*/3, /*share=*/1, /*num_lanes=*/1, device,
                         std::move(stream));
         const int own = rank == 1 ? 0 : 1;
         const std::string what = "'g' of session 0";
         const auto first =
             one->AddQueue(&lane, 1 - own, what, {0, 1}, one.get());
         const auto second = two->AddQueue(&lane, own, what, {0, 1}, two.get());
         (rank == 1 ? first : second)->Note();
         int64_t now_ns = 0;
         EXPECT_TRUE(test::Await([&] {
           lane.order()->Look(++now_ns, /*every_ns=*/1);
           return !lane.order()->Difference().empty();
         }));
         EXPECT_THAT(lane.order()->Difference(), testing::HasSubstr(kOrder));
         return absl::OkStatus();
       })) {
    EXPECT_OK(status);
  }
}

// Neither threads nor descriptors, nor what its ranks have met for.
TEST_P(WorldSplitTest, NothingIsLeftOfAPartThatHasEnded) {
  const std::vector<int> members = {3, 1, 0};
  const test::ProcessUse before;
  for (int i = 0; i < 5; ++i) {
    for (const absl::Status& status :
         OnRanks(members, [&](int rank) -> absl::Status {
           ASSIGN_OR_RETURN(const auto part, Split(rank, members));
           const int own = rank == 3 ? 0 : rank == 1 ? 1 : 2;
           return part->Rank(own).status();
         })) {
      EXPECT_OK(status);
    }
  }
  EXPECT_TRUE(test::Await([&] { return test::ProcessUse() == before; }))
      << test::ProcessUse() << ", before: " << before;
  if (joined()) return;
  EXPECT_EQ(static_cast<MemoryMeeting*>(threads_->meeting())->NumOpen(), 0);
}

TEST_P(WorldSplitTest, APartIsSplitLikeAnyWorld) {
  const std::vector<int> members = {3, 2, 0};
  for (const absl::Status& status :
       OnRanks(members, [&](int rank) -> absl::Status {
         ASSIGN_OR_RETURN(auto part, Split(rank, members, "outer"));
         const int own = rank == 3 ? 0 : rank == 2 ? 1 : 2;
         if (own == 1) return absl::OkStatus();
         ASSIGN_OR_RETURN(const auto inner,
                          part->Split(own, {2, 0}, "inner", kLongNs));
         part.reset();  // The inner one does not need it.
         ASSIGN_OR_RETURN(const auto all, inner->meeting()->AllGather(
                                              "key", own == 2 ? 0 : 1,
                                              absl::StrCat(rank), kLongNs));
         EXPECT_THAT(all, ElementsAre("0", "3"));
         return absl::OkStatus();
       })) {
    EXPECT_OK(status);
  }
}

// ---- What is refused ----

TEST_P(WorldSplitTest, MembersAreRanksOfTheWorldOnceEachAndTheCaller) {
  EXPECT_THAT(Split(0, {0, 4}),
              StatusIs(absl::StatusCode::kOutOfRange,
                       "split 'tp': rank 4 is outside the world, 0..3"));
  EXPECT_THAT(Split(0, {0, -1}),
              StatusIs(absl::StatusCode::kOutOfRange, "rank -1"));
  EXPECT_THAT(Split(0, {0, 1, 0}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "split 'tp': rank 0 is named twice"));
  EXPECT_THAT(Split(0, {2, 1}),
              StatusIs(absl::StatusCode::kNotFound,
                       "split 'tp': rank 0, which calls, is not among its "
                       "members: 2, 1"));
  EXPECT_THAT(Split(0, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "no members"));
  EXPECT_THAT(Split(0, {0}, ""),
              StatusIs(absl::StatusCode::kInvalidArgument, "0 bytes"));
  EXPECT_THAT(Split(0, {0}, std::string(64, 'x')),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "64 bytes; it must have 1..63"));
  EXPECT_THAT(Split(0, {0}, "a\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, "printable"));
  // Nothing of that counts.
  EXPECT_OK(Split(0, {0}));
}

TEST_P(WorldSplitTest, RanksThatGiveAnotherNameAreBothNamed) {
  for (const absl::Status& status : OnRanks({0, 1}, [&](int rank) {
         return Split(rank, {0, 1}, rank == 0 ? "tp" : "dp").status();
       })) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 "splits the world into 'tp' of ranks 0, 1"));
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 "splits the world into 'dp' of ranks 0, 1"));
  }
  // Either has been called once, and fails where it is called for the first
  // time; then they begin anew.
  EXPECT_THAT(Split(0, {0, 1}, "dp"),
              StatusIs(absl::StatusCode::kFailedPrecondition, "each waits"));
  for (const absl::Status& status : OnRanks({0, 1}, [&](int rank) {
         return Split(rank, {0, 1}, "dp").status();
       })) {
    EXPECT_OK(status);
  }
}

TEST_P(WorldSplitTest, RanksThatGiveOtherMembersAreBothNamed) {
  for (const absl::Status& status :
       OnRanks({0, 1, 2}, [&](int rank) -> absl::Status {
         const std::vector<int> members =
             rank == 0 ? std::vector<int>{0, 1} : std::vector<int>{0, 1, 2};
         return Split(rank, members).status();
       })) {
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         "rank 0 splits the world into 'tp' of ranks 0, 1"));
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 "'tp' of ranks 0, 1, 2"));
  }
}

TEST_P(WorldSplitTest, AMemberThatDoesNotCallIsNamed) {
  const absl::Status late = Split(1, {2, 1}, "tp", kSoonNs).status();
  EXPECT_THAT(late, StatusIs(absl::StatusCode::kDeadlineExceeded,
                             "meeting 'split into tp': rank 1 waited "));
  EXPECT_THAT(late, StatusIs(absl::StatusCode::kDeadlineExceeded,
                             "missing of 2 ranks: 2"));
  // Nobody goes on alone.
  EXPECT_EQ(Split(2, {2, 1}).status(), late);
  for (const absl::Status& status : OnRanks({1, 2}, [&](int rank) {
         return Split(rank, {2, 1}).status();
       })) {
    EXPECT_OK(status);
  }
}

TEST_P(WorldSplitTest, ARankSplitsAWorldOnceAtATime) {
  const auto statuses = RunRanks(2, [&](int thread) -> absl::Status {
    absl::Status status;
    if (thread == 0) {
      EXPECT_TRUE(test::Await([&] {
        status = Split(0, {0, 1}).status();
        return status.code() != absl::StatusCode::kFailedPrecondition;
      }));
      return status;
    }
    // Until the other thread waits.
    EXPECT_TRUE(test::Await([&] {
      status = Split(0, {0, 2}, "dp", kSoonNs).status();
      return status.code() == absl::StatusCode::kFailedPrecondition;
    }));
    EXPECT_OK(Split(1, {0, 1}));
    return status;
  });
  EXPECT_OK(statuses[0]);
  EXPECT_THAT(statuses[1],
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "split 'dp': another thread of rank 0 splits the same "
                       "world; one after the other"));
}

TEST_P(WorldSplitTest, AMemberThatCannotMakeItsPartFailsAll) {
  static commsched_backend_t table;
  static std::atomic<int> num_left;
  table = **PluginRegistry::Process().Backend("null");
  table.instance_create = [](const commsched_instance_desc_t* desc, void** out,
                             char* message,
                             uint64_t message_size) -> commsched_status_t {
    static int instance;
    if (desc->world_size == 2 && num_left.fetch_sub(1) <= 0) {
      snprintf(message, message_size, "no room");
      return COMMSCHED_RESOURCE_EXHAUSTED;
    }
    *out = &instance;
    return COMMSCHED_OK;
  };
  table.instance_destroy = [](void*) {};
  WorldSpec spec;
  spec.size = 3;
  spec.table = &table;
  JoinedRanks joined_ranks;
  std::shared_ptr<World> threads;
  if (joined()) {
    ASSERT_OK(joined_ranks.Join(spec, 3));
  } else {
    ASSERT_OK_AND_ASSIGN(threads, World::Create(spec));
  }
  num_left = joined() ? 1 : 0;
  const auto statuses = RunRanks(2, [&](int rank) {
    World* const world =
        joined() ? joined_ranks.WorldOf(rank).get() : threads.get();
    return world->Split(rank, {0, 1}, "tp", kLongNs).status();
  });
  int num_exhausted = 0;
  for (const absl::Status& status : statuses) {
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find("no room"), std::string::npos) << status;
    if (status.code() == absl::StatusCode::kResourceExhausted) ++num_exhausted;
  }
  EXPECT_EQ(num_exhausted, joined() ? 1 : 2);
}

// ---- Failures ----

TEST_P(WorldSplitTest, AFailureOfOneWorldIsNotThatOfAnother) {
  EXPECT_OK(RunAllRanks(kSize, [&](int rank) -> absl::Status {
    const std::vector<int> pair =
        rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3};
    ASSIGN_OR_RETURN(const auto tp, Split(rank, pair, "tp"));
    ASSIGN_OR_RETURN(const auto dp, Split(rank, pair, "dp"));
    const int own = rank % 2;
    const auto in_tp = std::make_shared<SplitWatcher>();
    const auto in_dp = std::make_shared<SplitWatcher>();
    const auto in_all = std::make_shared<SplitWatcher>();
    tp->Watch(in_tp, own, 0);
    dp->Watch(in_dp, own, 0);
    WorldOf(rank)->Watch(in_all, rank, 0);
    RETURN_IF_ERROR(
        WorldOf(rank)->meeting()->AllGather("a", rank, "", kLongNs).status());
    if (rank == 3) tp->Tell(1, 0, absl::DataLossError("rank 1: no more"));
    if (rank == 2) {
      EXPECT_TRUE(test::Await([&] { return !in_tp->why().ok(); }));
      EXPECT_THAT(in_tp->why(), StatusIs(absl::StatusCode::kDataLoss,
                                         "world 'tp': rank 1: no more"));
    }
    RETURN_IF_ERROR(
        WorldOf(rank)->meeting()->AllGather("b", rank, "", kLongNs).status());
    if (rank != 2) {
      EXPECT_OK(in_tp->why());
    }
    EXPECT_OK(in_dp->why());
    EXPECT_OK(in_all->why());
    return dp->meeting()->AllGather("c", own, "", kLongNs).status();
  }));
}

// ---- Processes ----

// Breaks the protocol, so that the server ends its connection.
void LoseRank(int rank, const JoinedRanks& ranks) {
  ranks.WorldOf(rank)->meeting()->Decline("key", rank, absl::OkStatus());
}

TEST(JoinedWorldSplitTest, ALostRankConcernsItsWorldsOnly) {
  WorldSpec spec;
  spec.backend = "null";
  JoinedRanks ranks;
  ASSERT_OK(ranks.Join(spec, 4));
  std::vector<std::shared_ptr<World>> parts(4);
  ASSERT_OK(RunAllRanks(4, [&](int rank) -> absl::Status {
    const std::vector<int> pair =
        rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{3, 2};
    ASSIGN_OR_RETURN(parts[static_cast<size_t>(rank)],
                     ranks.WorldOf(rank)->Split(rank, pair, "tp", kLongNs));
    return absl::OkStatus();
  }));
  const auto in_first = std::make_shared<SplitWatcher>();
  const auto in_second = std::make_shared<SplitWatcher>();
  const auto in_all = std::make_shared<SplitWatcher>();
  parts[0]->Watch(in_first, 0, 0);
  parts[2]->Watch(in_second, 1, 0);
  ranks.WorldOf(0)->Watch(in_all, 0, 0);
  LoseRank(3, ranks);
  ASSERT_TRUE(test::Await(
      [&] { return !in_second->why().ok() && !in_all->why().ok(); }));
  EXPECT_THAT(in_second->why(),
              StatusIs(absl::StatusCode::kAborted,
                       "world 'tp': rank 0 is gone: in the job, rank 3 is "
                       "lost: "));
  EXPECT_OK(in_first->why());
  // Ranks 0 and 1 go on meeting, exchanging values and splitting.
  EXPECT_OK(RunAllRanks(2, [&](int rank) -> absl::Status {
    World& part = *parts[static_cast<size_t>(rank)];
    RETURN_IF_ERROR(
        part.meeting()->AllGather("key", rank, "", kLongNs).status());
    RETURN_IF_ERROR(part.Rank(rank).status());
    return ranks.WorldOf(rank)->Split(rank, {1, 0}, "new", kLongNs).status();
  }));
  EXPECT_THAT(parts[2]->meeting()->AllGather("key", 1, "", kLongNs),
              StatusIs(absl::StatusCode::kAborted,
                       "world 'tp': meeting 'key': rank 0 will not come: in "
                       "the job, rank 3 is lost: "));
  EXPECT_THAT(ranks.WorldOf(2)->Split(2, {2, 3}, "tp", kLongNs),
              StatusIs(absl::StatusCode::kAborted, "rank 3 will not come"));
}

TEST(JoinedWorldSplitTest, TheLossOfTheServerConcernsAllWorlds) {
  WorldSpec spec;
  spec.backend = "null";
  ControlServerSpec served;
  served.size = 1;
  auto server = *ControlServer::Start(served);
  JobSpec job;
  job.environment.size = 1;
  job.environment.server_host = "127.0.0.1";
  job.environment.server_port = server->port();
  job.environment.rank_0_serves = false;
  ASSERT_OK_AND_ASSIGN(auto world, World::Join(spec, job));
  ASSERT_OK_AND_ASSIGN(const auto part, world->Split(0, {0}, "one", kLongNs));
  const auto watcher = std::make_shared<SplitWatcher>();
  part->Watch(watcher, 0, 0);
  server.reset();
  ASSERT_TRUE(test::Await([&] { return !watcher->why().ok(); }));
  EXPECT_THAT(watcher->why(),
              StatusIs(absl::StatusCode::kUnavailable, "world 'one': "));
}

// The part keeps the job, which ends with it.
TEST(JoinedWorldSplitTest, OutlivesTheHandleOfTheWorldThatItIsAPartOf) {
  WorldSpec spec;
  spec.backend = "null";
  JoinedRanks ranks;
  ASSERT_OK(ranks.Join(spec, 2));
  std::vector<std::shared_ptr<World>> parts(2);
  EXPECT_OK(RunAllRanks(2, [&](int rank) -> absl::Status {
    ASSIGN_OR_RETURN(parts[static_cast<size_t>(rank)],
                     ranks.WorldOf(rank)->Split(rank, {1, 0}, "tp", kLongNs));
    return absl::OkStatus();
  }));
  ranks.ForgetWorlds();
  EXPECT_OK(RunAllRanks(2, [&](int rank) -> absl::Status {
    auto& part = parts[static_cast<size_t>(rank)];
    RETURN_IF_ERROR(
        part->meeting()->AllGather("key", 1 - rank, "", kLongNs).status());
    part.reset();
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace commsched
