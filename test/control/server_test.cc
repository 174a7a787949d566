// The server and its clients over loopback.
#include "control/server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/control/server_rig.h"
#include "test/support/await.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using absl::StatusCode;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(ControlServerTest, RanksMeet) {
  const auto server = Serve(4);
  const auto clients = JoinAll(*server, 4);
  EXPECT_OK(RunAllRanks(4, [&](int rank) -> absl::Status {
    ControlClient& me = *clients[rank];
    for (int i = 0; i < 20; ++i) {
      const std::string key = absl::StrCat("key", i);
      auto all = me.Gather({}, key, absl::StrCat("p", rank), kMinuteNs);
      if (!all.ok()) return all.status();
      EXPECT_THAT(*all, ElementsAre("p0", "p1", "p2", "p3"));
      EXPECT_OK(me.Agree({}, key, "same", kMinuteNs));
      const auto matches =
          me.Match({}, key, {Claim::Of(key, "same", 4)}, kMinuteNs);
      EXPECT_TRUE(matches.ok() && *matches);
      const auto differs = me.Match(
          {}, key, {Claim::Of(key, absl::StrCat(rank / 3))}, kMinuteNs);
      EXPECT_TRUE(differs.ok() && !*differs);
      auto root =
          me.Broadcast({2, 0, 1, 3}, key, absl::StrCat(rank), kMinuteNs);
      if (!root.ok()) return root.status();
      EXPECT_EQ(*root, "2");
    }
    if (rank < 2) {
      EXPECT_THAT(*me.Gather({1, 0}, "some", absl::StrCat(rank), kMinuteNs),
                  ElementsAre("1", "0"));
    }
    return absl::OkStatus();
  }));
}

TEST(ControlServerTest, ADisagreementIsNamedToAll) {
  const auto server = Serve(2);
  const auto clients = JoinAll(*server, 2);
  RunRanks(2, [&](int rank) -> absl::Status {
    EXPECT_THAT(
        clients[rank]->Agree({}, "zero", absl::StrCat(rank + 1), kMinuteNs),
        StatusIs(StatusCode::kFailedPrecondition,
                 "'zero': rank 0 has '1', rank 1 has '2'"));
    return absl::OkStatus();
  });
}

TEST(ControlServerTest, ValuesArePutForOthers) {
  const auto server = Serve(2);
  const auto clients = JoinAll(*server, 2);
  EXPECT_OK(RunAllRanks(2, [&](int rank) -> absl::Status {
    if (rank == 1) return clients[1]->Put("id", "value", kMinuteNs);
    const auto value = clients[0]->Get("id", kMinuteNs);
    EXPECT_EQ(value.value_or(""), "value");
    return value.status();
  }));
  EXPECT_THAT(clients[0]->Put("id", "other", kMinuteNs),
              StatusIs(StatusCode::kAlreadyExists, "'id'"));
}

TEST(ControlServerTest, AMissingRankIsNamedAtTheDeadline) {
  const auto server = Serve(3);
  const auto clients = JoinAll(*server, 2 + 1);
  EXPECT_THAT(
      clients[0]->Gather({}, "key", "", 1),
      StatusIs(StatusCode::kDeadlineExceeded, "missing of 3 ranks: 1, 2"));
  EXPECT_THAT(clients[1]->Get("nothing", 1),
              StatusIs(StatusCode::kDeadlineExceeded, "'nothing'"));
}

TEST(ControlServerTest, WhoDeclinesIsNamed) {
  const auto server = Serve(2);
  const auto clients = JoinAll(*server, 2);
  clients[1]->Decline({}, "key", absl::AbortedError("enough"));
  EXPECT_THAT(clients[0]->Gather({}, "key", "", kMinuteNs),
              StatusIs(StatusCode::kAborted, "rank 1 will not come: enough"));
}

TEST(ControlServerTest, LargePayloadsTravelAndTooLargeOnesAreRefused) {
  const auto server = Serve(1);
  const auto clients = JoinAll(*server, 1);
  const std::string large(16 << 20, 'x');
  ASSERT_OK_AND_ASSIGN(const auto all,
                       clients[0]->Gather({}, "key", large, kMinuteNs));
  EXPECT_EQ(all.front(), large);
  EXPECT_THAT(
      clients[0]->Put("key", std::string(kMaxPayloadBytes, 'x'), kMinuteNs),
      StatusIs(StatusCode::kResourceExhausted, "'key'"));
}

TEST(ControlServerTest, ARankWhoseConnectionEndsIsLostToAllAtOnce) {
  for (const bool reset : {false, true}) {
    Losses seen;
    ControlServerSpec spec;
    spec.size = 3;
    spec.on_lost = seen.Recorder();
    const auto server = Serve(std::move(spec));
    Losses losses[2];
    const auto clients = [&] {
      std::vector<std::unique_ptr<ControlClient>> some;
      for (int rank = 0; rank < 2; ++rank) {
        ControlClientSpec client = SpecOf(*server, rank, 3);
        client.on_lost = losses[rank].Recorder();
        some.push_back(ControlClient::Connect(std::move(client)).value());
      }
      return some;
    }();
    Stranger third(server->port());
    ASSERT_TRUE(third.Join(2, 3));
    std::thread waiting([&] {
      EXPECT_THAT(clients[0]->Gather({}, "key", "", kMinuteNs),
                  StatusIs(StatusCode::kAborted,
                           "'key': rank 2 will not come: rank 2 is lost: its "
                           "connection was closed"));
    });
    if (reset) {
      third.Reset();
    } else {
      third.Close();
    }
    waiting.join();
    for (Losses* rank : {&losses[0], &losses[1], &seen}) {
      ASSERT_TRUE(test::Await([&] { return !rank->all().empty(); }));
      EXPECT_THAT(rank->all(),
                  ElementsAre(testing::Pair(
                      2, "rank 2 is lost: its connection was closed")));
    }
    EXPECT_THAT(clients[1]->Gather({}, "next", "", kMinuteNs),
                StatusIs(StatusCode::kAborted, "rank 2"));
    EXPECT_OK(clients[1]->Put("still", "works", kMinuteNs));
  }
}

TEST(ControlServerTest, ARankThatLeavesIsNotLost) {
  std::atomic<int> present = 2;
  Losses seen;
  ControlServerSpec spec;
  spec.size = 2;
  spec.on_lost = seen.Recorder();
  spec.on_departed = [&](int now, int joined) {
    EXPECT_EQ(joined, 2);
    present = now;
  };
  const auto server = Serve(std::move(spec));
  auto clients = JoinAll(*server, 2);
  clients[1].reset();
  EXPECT_THAT(clients[0]->Gather({}, "key", "", kMinuteNs),
              StatusIs(StatusCode::kFailedPrecondition, "it has left"));
  EXPECT_EQ(present, 1);
  clients[0].reset();
  EXPECT_TRUE(test::Await([&] { return present == 0; }));
  EXPECT_THAT(seen.all(), testing::IsEmpty());
}

TEST(ControlServerTest, WhoLeavesCanWaitForTheOthers) {
  Losses losses[2];
  const auto server = Serve(2);
  const auto clients = JoinAll(*server, 2, losses);
  clients[0]->Leave(1);  // Not long enough.
  EXPECT_THAT(clients[0]->Put("key", "", kMinuteNs),
              StatusIs(StatusCode::kFailedPrecondition, "rank 0 has left"));
  EXPECT_OK(clients[1]->Put("key", "", kMinuteNs));
  std::thread other([&] { clients[1]->Leave(kMinuteNs); });
  clients[0]->Leave(kMinuteNs);
  other.join();
  for (Losses& lost : losses) EXPECT_THAT(lost.all(), testing::IsEmpty());
}

TEST(ControlServerTest, WhoLeavesDoesNotWaitForALostRank) {
  const auto server = Serve(2);
  const auto client = ControlClient::Connect(SpecOf(*server, 0, 2)).value();
  Stranger other(server->port());
  ASSERT_TRUE(other.Join(1, 2));
  std::thread leaving([&] { client->Leave(kMinuteNs); });
  other.Close();
  leaving.join();
}

TEST(ControlServerTest, ASilentRankIsLost) {
  Losses losses;
  ControlServerSpec spec;
  spec.size = 2;
  spec.beat_ns = 20 * kMs;
  spec.silence_ns = 400 * kMs;
  const auto server = Serve(std::move(spec));
  ControlClientSpec client_spec = SpecOf(*server, 0, 2);
  client_spec.on_lost = losses.Recorder();
  ASSERT_OK_AND_ASSIGN(const auto client,
                       ControlClient::Connect(std::move(client_spec)));
  Stranger silent(server->port());
  ASSERT_TRUE(silent.Join(1, 2));
  EXPECT_THAT(client->Gather({}, "key", "", kMinuteNs),
              StatusIs(StatusCode::kAborted, "it has been silent for"));
  ASSERT_TRUE(test::Await([&] { return !losses.all().empty(); }));
  EXPECT_THAT(losses.all(),
              ElementsAre(testing::Pair(1, HasSubstr("the limit is 400"))));
  EXPECT_OK(client->Put("still", "here", kMinuteNs));
}

// Where it goes on, it is not to take the server for lost.
TEST(ControlServerTest, ARankThatWasGivenUpIsToldSo) {
  ControlServerSpec spec;
  spec.size = 2;
  spec.beat_ns = 20 * kMs;
  spec.silence_ns = 200 * kMs;
  const auto server = Serve(std::move(spec));
  Stranger frozen(server->port());
  ASSERT_TRUE(frozen.Join(1, 2));
  std::string last;
  FrameKind kind = FrameKind::kBeat;
  while (kind == FrameKind::kBeat) last = frozen.Receive(&kind);
  ASSERT_EQ(kind, FrameKind::kLost);
  ASSERT_OK_AND_ASSIGN(const auto lost, Decode<LostMessage>(last));
  EXPECT_EQ(lost.rank, 1);
  EXPECT_THAT(lost.why, HasSubstr("rank 1 is lost: it has been silent for"));
  EXPECT_TRUE(frozen.SeesTheEnd());
}

TEST(ControlServerTest, AnExitThatIsReportedIsALoss) {
  Losses seen;
  ControlServerSpec spec;
  spec.size = 3;
  spec.on_lost = seen.Recorder();
  std::atomic<int> joined = 0;
  spec.on_departed = [&](int, int all) { joined = all; };
  const auto server = Serve(std::move(spec));
  Losses losses;
  ControlClientSpec client_spec = SpecOf(*server, 0, 3);
  client_spec.on_lost = losses.Recorder();
  ASSERT_OK_AND_ASSIGN(const auto client,
                       ControlClient::Connect(std::move(client_spec)));
  EXPECT_THAT(server->ReportExit(3, "x"),
              StatusIs(StatusCode::kInvalidArgument, "rank 3 is not in 0..2"));
  // One that has not joined.
  std::thread waiting([&] {
    EXPECT_THAT(client->Gather({}, "key", "", kMinuteNs),
                StatusIs(StatusCode::kAborted,
                         "rank 1 is lost: process 7 exited with code 3 before "
                         "it joined"));
  });
  ASSERT_OK(server->ReportExit(1, "process 7 exited with code 3"));
  waiting.join();
  ASSERT_TRUE(test::Await([&] { return joined == 2; }));
  // One whose connection a child has kept.
  Stranger kept(server->port());
  ASSERT_TRUE(kept.Join(2, 3));
  ASSERT_OK(server->ReportExit(2, "process 8 was killed"));
  EXPECT_TRUE(kept.SeesTheEnd());
  ASSERT_TRUE(test::Await([&] { return losses.all().size() == 2; }));
  EXPECT_THAT(losses.all()[1],
              testing::Pair(2, "rank 2 is lost: process 8 was killed"));
  EXPECT_THAT(seen.all(), testing::IsEmpty());
  EXPECT_OK(client->Put("still", "here", kMinuteNs));
}

TEST(ControlServerTest, WhoHasLeftMayEnd) {
  const auto server = Serve(2);
  auto clients = JoinAll(*server, 2);
  clients[1].reset();
  ASSERT_OK(server->ReportExit(1, "process 7 exited with code 0"));
  EXPECT_THAT(clients[0]->Gather({}, "key", "", kMinuteNs),
              StatusIs(StatusCode::kFailedPrecondition, "it has left"));
}

TEST(ControlServerTest, RanksThatDoNotJoinAreNamedToThoseWhoWait) {
  Losses seen;
  ControlServerSpec spec;
  spec.size = 4;
  spec.on_lost = seen.Recorder();
  const auto server = Serve(std::move(spec));
  ControlClientSpec client = SpecOf(*server, 1, 4);
  client.join_timeout_ns = 50 * kMs;
  ASSERT_OK_AND_ASSIGN(const auto first, ControlClient::Connect(client));
  constexpr char kWhy[] = "ranks 0, 2, 3 of 4 have not joined within 0.05 s";
  EXPECT_THAT(first->WaitForRoster(kMinuteNs),
              StatusIs(StatusCode::kAborted, kWhy));
  EXPECT_THAT(first->Gather({}, "key", "", kMinuteNs),
              StatusIs(StatusCode::kAborted, kWhy));
  EXPECT_THAT(seen.all(), ElementsAre(testing::Pair(0, kWhy)));
  client.rank = 2;
  EXPECT_THAT(ControlClient::Connect(client),
              StatusIs(StatusCode::kAborted, "rank 2 comes too late"));
}

TEST(ControlServerTest, AnotherJobIsRefusedByName) {
  ControlServerSpec spec;
  spec.size = 2;
  spec.job = "torchrun, port 29500";
  const auto server = Serve(std::move(spec));
  ControlClientSpec client = SpecOf(*server, 1, 2);
  client.job = "torchrun, port 29501";
  EXPECT_THAT(ControlClient::Connect(client),
              StatusIs(StatusCode::kFailedPrecondition,
                       "rank 1 is of job 'torchrun, port 29501', the server of "
                       "job 'torchrun, port 29500'"));
  client.job = "torchrun, port 29500";
  EXPECT_OK(ControlClient::Connect(client));
}

// A child that this process starts has none of its connections: it would hide
// that the process has ended.
TEST(ControlServerTest, NoDescriptorSurvivesAnExec) {
  const auto all = [] {
    std::set<int> open;
    for (int fd = 0; fd < 1024; ++fd) {
      if (fcntl(fd, F_GETFD) >= 0) open.insert(fd);
    }
    return open;
  };
  const std::set<int> before = all();
  const auto server = Serve(2);
  const auto clients = JoinAll(*server, 2);
  ControlClientSpec named = SpecOf(*server, 0, 2);
  named.host = "localhost";
  EXPECT_THAT(ControlClient::Connect(named),
              StatusIs(StatusCode::kAlreadyExists, "rank 0"));
  int num_new = 0;
  for (const int fd : all()) {
    if (before.contains(fd)) continue;
    ++num_new;
    EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0) << fd;
  }
  EXPECT_GE(num_new, 5);
}

// Nor do those that are forked and go on by themselves, as loaders of data do.
TEST(ControlServerTest, AForkedChildHasNoConnection) {
  std::set<int> sockets;
  const auto server = Serve(2);
  const auto clients = JoinAll(*server, 2);
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in address = {};
    socklen_t bytes = sizeof(address);
    const bool is_tcp =
        getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0 &&
        address.sin_family == AF_INET;
    if (is_tcp) sockets.insert(fd);
  }
  EXPECT_GE(sockets.size(), 5u);
  const pid_t child = fork();
  if (child == 0) {
    int num_open = 0;
    for (const int fd : sockets) num_open += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    _exit(num_open);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_OK(clients[0]->Put("still", "connected", kMinuteNs));
}

TEST(ControlServerTest, RanksWhoseOrdersDifferAreTold) {
  const auto server = Serve(2);
  std::atomic<int> num_told{0};
  std::vector<std::unique_ptr<ControlClient>> clients;
  for (int rank = 0; rank < 2; ++rank) {
    ControlClientSpec spec = SpecOf(*server, rank, 2);
    spec.on_orders_differ = [&](const OrderDifference& difference) {
      EXPECT_EQ(difference.topic, "a and b");
      EXPECT_EQ(difference.a_number, 7u);
      EXPECT_EQ(difference.b_number, 4u);
      EXPECT_EQ(difference.a_first, 0);
      EXPECT_EQ(difference.b_first, 1);
      ++num_told;
    };
    ASSERT_OK_AND_ASSIGN(auto client, ControlClient::Connect(std::move(spec)));
    clients.push_back(std::move(client));
  }
  OrderSlice slice = {
      .topic = "a and b", .first = 7, .base = 3, .before = {0}, .then = 3};
  clients[0]->SayOrder(slice);
  slice.base = 5;
  slice.then = 5;
  clients[1]->SayOrder(slice);
  EXPECT_TRUE(test::Await([&] { return num_told == 2; }));
  // Of no use any more.
  clients[0]->Leave(/*timeout_ns=*/0);
  clients[0]->SayOrder(slice);
  EXPECT_OK(clients[1]->Put("still", "connected", kMinuteNs));
}

// Rank 1 of a server whose port comes by `pipe`. Fails while its control thread
// is busy, and exits at once.
[[noreturn]] void FailAndExit(int pipe) {
  ControlClientSpec spec;
  if (read(pipe, &spec.port, sizeof(spec.port)) != sizeof(spec.port)) _exit(2);
  spec.host = "127.0.0.1";
  spec.rank = 1;
  spec.size = 2;
  std::atomic<bool> is_busy{false};
  spec.on_failed = [&](int, uint64_t, const absl::Status&) {
    is_busy = true;
    (void)poll(nullptr, 0, /*timeout=*/50);
  };
  const auto client = ControlClient::Connect(std::move(spec));
  if (!client.ok()) _exit(3);
  while (!is_busy) std::this_thread::yield();
  (*client)->Fail(/*scope=*/2, absl::InternalError("rank 1: no memory"));
  std::exit(1);
}

// As a program does that a call has failed.
TEST(ControlServerTest, WhoExitsAtOnceHasSaidWhatFailed) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t child = fork();  // There are no other threads yet.
  if (child == 0) FailAndExit(pipe[0]);
  const auto server = Serve(2);
  const uint16_t port = server->port();
  ASSERT_EQ(write(pipe[1], &port, sizeof(port)), sizeof(port));
  std::atomic<bool> is_lost{false};
  std::atomic<bool> has_said{false};
  ControlClientSpec spec = SpecOf(*server, 0, 2);
  spec.on_lost = [&](int, const std::string&) { is_lost = true; };
  spec.on_failed = [&](int rank, uint64_t scope, const absl::Status& why) {
    has_said = rank == 1 && scope == 2 && why.message() == "rank 1: no memory";
  };
  const auto client = ControlClient::Connect(std::move(spec));
  ASSERT_OK(client);
  (*client)->Fail(/*scope=*/1, absl::InternalError("something"));
  EXPECT_TRUE(test::Await([&] { return is_lost.load(); }));
  EXPECT_TRUE(has_said);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 1);
  close(pipe[0]);
  close(pipe[1]);
}

// What exit() calls before and after it has looked at clients, in a child that
// was forked.
std::atomic<int64_t> exit_began_ns{0};
void SayWhenItExits() { exit_began_ns = SystemClock::Get().NowNs(); }
void EndWithWhetherItWaited() {
  const int64_t waited_ns = SystemClock::Get().NowNs() - exit_began_ns;
  _exit(waited_ns < int64_t{900} * 1000 * 1000 ? 0 : 1);
}

// Joins, says something, and forks a child that exits before that has been
// heard: the control thread, which would hear it, is not there in the child.
// Exits as the child does.
[[noreturn]] void FailAndExitInAChild() {
  if (std::atexit(&EndWithWhetherItWaited) != 0) _exit(2);
  const auto server = Serve(1);
  const auto client = ControlClient::Connect(SpecOf(*server, 0, 1));
  if (!client.ok()) _exit(3);
  (*client)->Fail(/*scope=*/1, absl::InternalError("something"));
  if (std::atexit(&SayWhenItExits) != 0) _exit(4);
  const pid_t child = fork();
  if (child == 0) std::exit(0);
  int status = -1;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) _exit(5);
  _exit(WEXITSTATUS(status));
}

TEST(ControlServerTest, AForkedChildExitsAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(FailAndExitInAChild(), testing::ExitedWithCode(0), "");
}

TEST(ControlServerTest, WhereRank0ServesItsEndNamesIt) {
  auto server = Serve(2);
  Losses losses;
  ControlClientSpec spec = SpecOf(*server, 1, 2);
  spec.rank_0_serves = true;
  spec.on_lost = losses.Recorder();
  ASSERT_OK_AND_ASSIGN(const auto client, ControlClient::Connect(spec));
  server.reset();
  EXPECT_THAT(client->Gather({}, "key", "", kMinuteNs),
              StatusIs(StatusCode::kAborted,
                       "rank 0, which serves the job, is lost: its connection "
                       "was closed"));
  ASSERT_TRUE(test::Await([&] { return !losses.all().empty(); }));
  EXPECT_EQ(losses.all().front().first, 0);
}

TEST(ControlServerTest, ALostServerEndsEveryCall) {
  auto server = Serve(2);
  Losses losses[2];
  const auto clients = JoinAll(*server, 2, losses);
  std::thread waiting([&] {
    EXPECT_THAT(clients[0]->Gather({}, "key", "", kMinuteNs),
                StatusIs(StatusCode::kUnavailable, "is lost: "));
  });
  server.reset();
  waiting.join();
  ASSERT_TRUE(test::Await([&] { return !losses[1].all().empty(); }));
  EXPECT_THAT(losses[1].all(), ElementsAre(testing::Pair(
                                   ControlClientSpec::kServer,
                                   HasSubstr("control server 127.0.0.1:"))));
  EXPECT_THAT(clients[1]->Put("key", "", kMinuteNs),
              StatusIs(StatusCode::kUnavailable, "is lost"));
}

TEST(ControlServerTest, ASilentServerIsLost) {
  // A listener that goes through the handshake and says no more.
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  Losses losses;
  int fd = -1;
  std::thread silent([&] {
    fd = accept(listener, nullptr, nullptr);
    const auto say = [&](const std::string& frame) {
      ASSERT_EQ(send(fd, frame.data(), frame.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(frame.size()));
    };
    ChallengeMessage challenge;
    challenge.nonce.assign(kNonceBytes, 's');
    say(Encode(challenge));
    std::string bytes(Encode(ProofMessage{}).size() + kNonceBytes + kProofBytes,
                      '\0');
    ASSERT_EQ(recv(fd, bytes.data(), bytes.size(), MSG_WAITALL),
              static_cast<ssize_t>(bytes.size()));
    const auto proof = Decode<ProofMessage>(
        absl::string_view(bytes).substr(kFrameHeaderBytes));
    ASSERT_OK(proof);
    ProvedMessage proved;
    proved.proof = Prove("", Prover::kServer, challenge.nonce, proof->nonce);
    say(Encode(proved));
    JoinedMessage joined;
    joined.beat_ns = 10 * kMs;
    joined.silence_ns = 200 * kMs;
    say(Encode(joined));
  });
  ControlClientSpec spec;
  spec.host = "127.0.0.1";
  spec.port = ntohs(address.sin_port);
  spec.size = 1;
  spec.on_lost = losses.Recorder();
  ASSERT_OK_AND_ASSIGN(const auto client, ControlClient::Connect(spec));
  silent.join();
  EXPECT_THAT(client->Gather({}, "key", "", kMinuteNs),
              StatusIs(StatusCode::kUnavailable, "it has been silent for"));
  ASSERT_TRUE(test::Await([&] { return !losses.all().empty(); }));
  close(fd);
  close(listener);
}

TEST(ControlServerTest, OtherTokensWorldsEpochsAndRanksAreRefused) {
  ControlServerSpec spec;
  spec.size = 2;
  spec.epoch = 3;
  spec.token = "secret";
  const auto server = Serve(std::move(spec));
  ControlClientSpec good = SpecOf(*server, 1, 2);
  good.token = "secret";
  good.epoch = 3;

  ControlClientSpec bad = good;
  bad.token = "guess";
  EXPECT_THAT(ControlClient::Connect(bad),
              StatusIs(StatusCode::kUnauthenticated,
                       "refused rank 1: the job token is not the server's"));
  bad = good;
  bad.size = 3;
  EXPECT_THAT(ControlClient::Connect(bad),
              StatusIs(StatusCode::kInvalidArgument,
                       "rank 1 has a world of 3 ranks, the server one of 2"));
  bad = good;
  bad.epoch = 2;
  EXPECT_THAT(ControlClient::Connect(bad),
              StatusIs(StatusCode::kFailedPrecondition,
                       "rank 1 is of epoch 2, the job is in epoch 3"));
  ASSERT_OK_AND_ASSIGN(const auto client, ControlClient::Connect(good));
  EXPECT_THAT(
      ControlClient::Connect(good),
      StatusIs(StatusCode::kAlreadyExists, "rank 1 has already joined"));
  bad = good;
  bad.rank = 2;
  EXPECT_THAT(ControlClient::Connect(bad),
              StatusIs(StatusCode::kInvalidArgument,
                       "rank 2 is not in a world of 2 ranks"));
}

TEST(ControlServerTest, AServerThatCannotBeIsRefused) {
  ControlServerSpec spec;
  EXPECT_THAT(ControlServer::Start(spec),
              StatusIs(StatusCode::kInvalidArgument, "size is 0"));
  spec.size = 1;
  spec.address = "0.0.0.0";
  EXPECT_THAT(ControlServer::Start(spec),
              StatusIs(StatusCode::kInvalidArgument,
                       "0.0.0.0 is not loopback, and there is no token"));
  spec.address = "localhost";
  EXPECT_THAT(ControlServer::Start(spec),
              StatusIs(StatusCode::kInvalidArgument, "'localhost'"));
  spec.address = "127.0.0.1";
  const auto first = Serve(1);
  spec.port = first->port();
  EXPECT_THAT(ControlServer::Start(spec),
              StatusIs(StatusCode::kUnavailable,
                       absl::StrCat("127.0.0.1:", spec.port)));
}

TEST(ControlServerTest, NobodyListeningIsADeadlineThatSaysWhy) {
  ControlClientSpec spec;
  {
    const auto server = Serve(1);
    spec = SpecOf(*server, 0, 1);
  }
  spec.connect_timeout_ns = 50 * kMs;
  EXPECT_THAT(ControlClient::Connect(spec),
              StatusIs(StatusCode::kDeadlineExceeded, "Connection refused"));
  spec.host = "no-such-host.invalid";
  EXPECT_THAT(ControlClient::Connect(spec),
              StatusIs(StatusCode::kDeadlineExceeded, "no-such-host.invalid"));
}

TEST(ControlServerTest, ARankWaitsForAServerThatStartsLate) {
  uint16_t port = 0;
  {
    const auto server = Serve(1);
    port = server->port();
  }
  std::atomic<bool> trying = false;
  std::thread rank([&] {
    ControlClientSpec spec;
    spec.host = "127.0.0.1";
    spec.port = port;
    spec.size = 1;
    trying = true;
    EXPECT_OK(ControlClient::Connect(spec));
  });
  ASSERT_TRUE(test::Await([&] { return trying.load(); }));
  ControlServerSpec spec;
  spec.size = 1;
  spec.port = port;
  const auto server = Serve(std::move(spec));
  rank.join();
}

}  // namespace
}  // namespace commsched
