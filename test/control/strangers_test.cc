// What strangers send to the server, and how many ranks it takes.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/running_clock.h"
#include "control/sockets.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/control/server_rig.h"
#include "test/support/await.h"
#include "test/support/property.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using absl::StatusCode;
using testing::ElementsAre;
using testing::HasSubstr;

// That the server still does its work.
void ExpectAlive(const ControlServer& server) {
  const auto clients = JoinAll(server, 2);
  std::thread other(
      [&] { EXPECT_OK(clients[1]->Agree({}, "key", "same", kMinuteNs)); });
  EXPECT_OK(clients[0]->Agree({}, "key", "same", kMinuteNs));
  other.join();
}

TEST(StrangersTest, GarbageEndsItsOwnConnectionOnly) {
  const auto server = Serve(2);
  std::mt19937_64 random(test::PropertySeed());
  for (int i = 0; i < 200; ++i) {
    Stranger stranger(server->port());
    std::string bytes(random() % 600 + kFrameHeaderBytes, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    // Half of them begin like one of ours.
    if (i % 2 == 0) {
      bytes.replace(0, kFrameHeaderBytes,
                    EncodeFrame(FrameKind::kProof, std::string(100, 'x'))
                        .substr(0, kFrameHeaderBytes));
    }
    stranger.Send(bytes);
    if (bytes.size() >= kFrameHeaderBytes + 100 || i % 2 == 1) {
      EXPECT_TRUE(stranger.SeesTheEnd()) << i;
    }
  }
  ExpectAlive(*server);
}

TEST(StrangersTest, NothingLargeIsTakenBeforeAProof) {
  const auto server = Serve(2);
  Stranger stranger(server->port());
  stranger.Send(
      EncodeFrame(FrameKind::kProof, std::string(kMaxHandshakeBytes + 1, 'x')));
  EXPECT_TRUE(stranger.SeesTheEnd());
  Stranger early(server->port());
  early.Receive();
  early.Send(Encode(PutMessage{}));
  FrameKind kind = FrameKind::kBeat;
  const std::string payload = early.Receive(&kind);
  EXPECT_EQ(kind, FrameKind::kRefused);
  EXPECT_THAT(payload, HasSubstr("a proof of the token comes first"));
  EXPECT_TRUE(early.SeesTheEnd());
  ExpectAlive(*server);
}

TEST(StrangersTest, AnEarlierProofIsWorthNothing) {
  ControlServerSpec spec;
  spec.size = 1;
  spec.token = "secret";
  const auto server = Serve(std::move(spec));
  Stranger first(server->port());
  const auto challenge = Decode<ChallengeMessage>(first.Receive());
  ASSERT_OK(challenge);
  ProofMessage proof;
  proof.nonce.assign(kNonceBytes, 'n');
  proof.proof = Prove("secret", Prover::kClient, challenge->nonce, proof.nonce);
  first.Send(Encode(proof));
  EXPECT_OK(Decode<ProvedMessage>(first.Receive()));
  Stranger second(server->port());
  second.Receive();
  second.Send(Encode(proof));
  FrameKind kind = FrameKind::kBeat;
  second.Receive(&kind);
  EXPECT_EQ(kind, FrameKind::kRefused);
}

TEST(StrangersTest, AConnectionThatDoesNotJoinIsDropped) {
  ControlServerSpec spec;
  spec.size = 2;
  spec.handshake_ns = 100 * kMs;
  const auto server = Serve(std::move(spec));
  Stranger mute(server->port());
  Stranger slow(server->port());
  slow.Send("cm");
  EXPECT_TRUE(mute.SeesTheEnd());
  EXPECT_TRUE(slow.SeesTheEnd());
  ExpectAlive(*server);
}

TEST(StrangersTest, AFloodDropsTheOldestAndLetsRanksIn) {
  ControlServerSpec spec;
  spec.size = 2;
  spec.max_handshakes = 16;
  spec.handshake_ns = kMinuteNs;
  const auto server = Serve(std::move(spec));
  std::vector<Stranger> flood;
  for (int i = 0; i < 200; ++i) flood.emplace_back(server->port());
  for (int i = 0; i < 200 - 16; ++i) {
    ASSERT_TRUE(flood[i].connected());
    EXPECT_TRUE(flood[i].SeesTheEnd()) << i;
  }
  std::atomic<bool> stop = false;
  std::thread more([&] {
    while (!stop) {
      Stranger stranger(server->port());
      stranger.Send("GET / HTTP/1.1\r\n\r\n");
    }
  });
  ExpectAlive(*server);
  stop = true;
  more.join();
}

TEST(StrangersTest, ARankThatBreaksTheProtocolIsLost) {
  Losses losses;
  const auto server = Serve(2);
  ControlClientSpec spec = SpecOf(*server, 0, 2);
  spec.on_lost = losses.Recorder();
  ASSERT_OK_AND_ASSIGN(const auto client, ControlClient::Connect(spec));
  Stranger other(server->port());
  ASSERT_TRUE(other.Join(1, 2));
  other.Send(EncodeFrame(FrameKind::kMeet, "short"));
  EXPECT_TRUE(other.SeesTheEnd());
  ASSERT_TRUE(test::Await([&] { return !losses.all().empty(); }));
  EXPECT_THAT(losses.all(), ElementsAre(testing::Pair(
                                1, "rank 1 is lost: message is too short")));
}

absl::StatusOr<Descriptor> ListenOnLoopback() {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return ListenAt(reinterpret_cast<const sockaddr*>(&address), sizeof(address));
}

// Says `greeting` to the next who connects, and waits until they are gone.
void Greet(int listener, const std::string& greeting) {
  Descriptor fd;
  ASSERT_TRUE(test::Await([&] {
    fd = AcceptAt(listener);
    return fd.valid();
  }));
  ASSERT_EQ(send(fd.get(), greeting.data(), greeting.size(), 0),
            static_cast<ssize_t>(greeting.size()));
  char byte = 0;
  ASSERT_TRUE(test::Await([&] { return recv(fd.get(), &byte, 1, 0) == 0; }));
}

// Another program listens where the server should: it is named at once, not
// when the time to join is over.
TEST(StrangersTest, AProgramThatIsNoServerIsNamed) {
  for (const std::string& greeting :
       {std::string("220 mail.example ESMTP\r\n"), std::string()}) {
    ASSERT_OK_AND_ASSIGN(const Descriptor listener, ListenOnLoopback());
    std::thread program([&] { Greet(listener.get(), greeting); });
    ControlClientSpec spec;
    spec.host = "127.0.0.1";
    spec.port = PortOf(listener.get());
    spec.size = 1;
    if (greeting.empty()) spec.speak_ns = 50 * kMs;
    EXPECT_THAT(ControlClient::Connect(spec),
                StatusIs(StatusCode::kUnavailable,
                         absl::StrCat("what listens at 127.0.0.1:", spec.port,
                                      " is no control server of commsched: ",
                                      greeting.empty()
                                          ? "it says nothing for 50"
                                          : "received bytes are not a frame")));
    program.join();
  }
}

// A job of an older and a newer library.
TEST(StrangersTest, AServerOfAnotherVersionIsNamedAtOnce) {
  ASSERT_OK_AND_ASSIGN(const Descriptor listener, ListenOnLoopback());
  ChallengeMessage older;
  older.version = kControlVersion - 1;
  older.nonce.assign(kNonceBytes, 'n');
  std::thread server([&] { Greet(listener.get(), Encode(older)); });
  ControlClientSpec spec;
  spec.host = "127.0.0.1";
  spec.port = PortOf(listener.get());
  spec.size = 1;
  EXPECT_THAT(ControlClient::Connect(spec),
              StatusIs(StatusCode::kFailedPrecondition,
                       absl::StrCat("control server 127.0.0.1:", spec.port,
                                    " speaks version ", kControlVersion - 1,
                                    " of the control protocol, this rank ",
                                    kControlVersion)));
  server.join();
}

TEST(StrangersTest, ARankOfAnotherVersionIsToldBoth) {
  const auto server = Serve(2);
  Stranger older(server->port());
  older.Receive();
  ProofMessage proof;
  proof.version = kControlVersion - 1;
  proof.nonce.assign(kNonceBytes, 'n');
  older.Send(Encode(proof));
  FrameKind kind = FrameKind::kBeat;
  const std::string payload = older.Receive(&kind);
  EXPECT_EQ(kind, FrameKind::kRefused);
  EXPECT_THAT(payload, HasSubstr(absl::StrCat(
                           "the rank speaks version ", kControlVersion - 1,
                           ", the server ", kControlVersion)));
  ExpectAlive(*server);
}

TEST(StrangersTest, AThousandRanksMeet) {
  constexpr int kRanks = 1024;
  ControlServerSpec server_spec;
  server_spec.size = kRanks;
  const auto server = Serve(std::move(server_spec));
  // Ranks by hand: a thread for each would measure threads.
  std::vector<Stranger> ranks;
  const int64_t begin_ns = RunningClock::Get().NowNs();
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back(server->port());
    ASSERT_TRUE(ranks.back().Join(rank, kRanks)) << rank;
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    MeetMessage meet;
    meet.number = 1;
    meet.kind = static_cast<uint32_t>(MeetingKind::kAgree);
    meet.key = "barrier";
    meet.timeout_ns = kMinuteNs;
    ranks[rank].Send(Encode(meet));
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    FrameKind kind = FrameKind::kBeat;
    std::string payload;
    while (kind == FrameKind::kBeat) payload = ranks[rank].Receive(&kind);
    ASSERT_EQ(kind, FrameKind::kReply) << rank;
    ASSERT_EQ(Decode<ReplyMessage>(payload)->code, 0u) << rank;
  }
  EXPECT_LT(RunningClock::Get().NowNs() - begin_ns, 10'000 * kMs);
}

}  // namespace
}  // namespace commsched
