// Sends and receives: what is sent from one rank to another arrives, in order,
// whatever the order of lists and whoever comes first.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "test/conformance/backend_fixture.h"
#include "test/support/await.h"
#include "test/support/launches.h"
#include "test/support/property.h"

namespace commsched {
namespace {

// The memory and the launch of one rank: a list that is built message by
// message.
class Tick {
 public:
  explicit Tick(commsched_dtype_t dtype = COMMSCHED_I32) {
    launch_.kind = COMMSCHED_SEND;
    launch_.dtype = dtype;
  }
  Tick(const Tick&) = delete;

  void Send(int peer, std::vector<int32_t> values) {
    Add(COMMSCHED_SEND, peer, std::move(values));
  }
  // Must become `values`.
  void Receive(int peer, std::vector<int32_t> values) {
    std::vector<int32_t> unset(values.size() + 1, kUnset);
    Add(COMMSCHED_RECV, peer, std::move(unset));
    memory_.back().expected = std::move(values);
    members_.back().count = memory_.back().expected.size();
  }

  size_t size() const { return members_.size(); }

  // Valid until the next Send() or Receive().
  const commsched_launch_t& launch() {
    launch_.num_members = static_cast<uint32_t>(members_.size());
    launch_.members = members_.data();
    return launch_;
  }
  std::vector<commsched_member_t>& members() { return members_; }

  absl::Status Check() const {
    for (size_t m = 0; m < members_.size(); ++m) {
      const Memory& memory = memory_[m];
      if (members_[m].direction == COMMSCHED_SEND) continue;
      if (memory.values.back() != kUnset) {
        return absl::InternalError(absl::StrCat("message ", m, " is too long"));
      }
      const bool right =
          std::equal(memory.expected.begin(), memory.expected.end(),
                     memory.values.begin());
      if (right) continue;
      return absl::InternalError(absl::StrCat("message ", m, " is wrong"));
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int32_t kUnset = -77;
  struct Memory {
    std::vector<int32_t> values;
    std::vector<int32_t> expected;
  };

  void Add(commsched_collective_t direction, int peer,
           std::vector<int32_t> values) {
    memory_.push_back({std::move(values), {}});
    commsched_member_t member{};
    std::vector<int32_t>& held = memory_.back().values;
    member.count = held.size();
    if (direction == COMMSCHED_SEND) member.input = held.data();
    if (direction == COMMSCHED_RECV) member.output = held.data();
    member.peer = peer;
    member.direction = direction;
    members_.push_back(member);
  }

  std::vector<Memory> memory_;
  std::vector<commsched_member_t> members_;
  commsched_launch_t launch_{};
};

std::vector<int32_t> Values(int from, int to, int number, uint64_t count) {
  std::vector<int32_t> values(count);
  std::iota(values.begin(), values.end(),
            (from * 100 + to * 10 + number) * 1000);
  return values;
}

class PeersTest : public BackendTest {
 protected:
  absl::Status RunTick(CommDriver& comm, Tick& tick) {
    if (auto done = comm.LaunchAndWait(tick.launch()); !done.ok()) return done;
    return tick.Check();
  }

  int Next(int rank) const { return (rank + 1) % size(); }
  int Before(int rank) const { return (rank + size() - 1) % size(); }

  // Every rank sends to the next and receives from the one before.
  void RunRing(uint64_t count, int num_rounds) {
    EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
      for (int round = 0; round < num_rounds; ++round) {
        YieldSometimes(static_cast<uint64_t>(round * 100 + rank));
        Tick tick;
        tick.Send(Next(rank), Values(rank, Next(rank), round % 10, count));
        tick.Receive(Before(rank),
                     Values(Before(rank), rank, round % 10, count));
        if (auto right = RunTick(comm, tick); !right.ok()) return right;
      }
      return absl::OkStatus();
    }));
  }

  // Random messages, in up to `most_launches` lists of each rank.
  void RunRandomLists(size_t most_launches);

  // The last rank receives what `change` makes of the right receive. Both sides
  // must get INVALID_ARGUMENT with `text`.
  void ExpectMismatch(const std::function<void(Tick&)>& change,
                      commsched_dtype_t dtype, const std::string& text) {
    const auto statuses = OnComm([&](int rank, CommDriver& comm) {
      const int last = size() - 1;
      Tick tick(rank == last ? dtype : commsched_dtype_t{COMMSCHED_I32});
      if (rank == 0) tick.Send(last, Values(0, last, 0, 64));
      if (rank == last) {
        tick.Receive(0, Values(0, last, 0, 64));
        change(tick);
      }
      if (tick.size() == 0) return absl::OkStatus();
      return comm.LaunchAndWait(tick.launch());
    });
    for (const int rank : {0, size() - 1}) {
      EXPECT_THAT(statuses[rank],
                  StatusIs(absl::StatusCode::kInvalidArgument, text));
      EXPECT_THAT(statuses[rank],
                  StatusIs(absl::StatusCode::kInvalidArgument, "axis 'dp'"));
    }
  }
};

// Lists that meet launch by launch, as those on a stream have to.
class TickPeersTest : public PeersTest {};
class OneProcessPeersTest : public PeersTest {};
class ThreePeersTest : public PeersTest {};
class MismatchedPeersTest : public PeersTest {};
class DistantPeersTest : public PeersTest {};

TEST_P(TickPeersTest, ARingOfSmallMessagesGoesRound) { RunRing(10, 50); }

TEST_P(TickPeersTest, ARingOfLargeMessagesGoesRound) { RunRing(300'000, 4); }

TEST_P(TickPeersTest, ZeroElementsAreAMessageLikeAnyOther) { RunRing(0, 3); }

// A receive may come before its send, and the other way round.
TEST_P(OneProcessPeersTest, EitherSideMayComeFirst) {
  for (const int late : {0, 1}) {
    std::atomic<bool> first_is_there{false};
    EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
      if (rank > 1) return absl::OkStatus();
      Tick tick;
      if (rank == 0) tick.Send(1, Values(0, 1, 0, 1000));
      if (rank == 1) tick.Receive(0, Values(0, 1, 0, 1000));
      if (rank == late) {
        EXPECT_TRUE(test::Await([&] { return first_is_there.load(); }));
      }
      if (auto ok = comm.Launch(tick.launch()); !ok.ok()) return ok;
      first_is_there = true;
      if (auto done = comm.Wait(); !done.ok()) return done.status();
      return tick.Check();
    }));
  }
}

// One message of the random exchange below.
struct Message {
  int from, to, number;
  uint64_t count;
};

// What `rank` posts: its messages, shuffled but for the order of each pair and
// direction, in up to `most` launches that are all in flight at once.
std::vector<std::unique_ptr<Tick>> TicksOf(const std::vector<Message>& messages,
                                           int rank, size_t most,
                                           std::mt19937_64& random) {
  std::vector<std::vector<const Message*>> streams;  // by direction and peer
  for (const Message& message : messages) {
    if (message.from != rank && message.to != rank) continue;
    const auto known =
        std::find_if(streams.begin(), streams.end(), [&](const auto& stream) {
          return stream[0]->from == message.from && stream[0]->to == message.to;
        });
    if (known != streams.end()) {
      known->push_back(&message);
    } else {
      streams.push_back({&message});
    }
  }
  std::vector<std::unique_ptr<Tick>> ticks;
  std::vector<size_t> taken(streams.size(), 0);
  while (true) {
    std::vector<size_t> open;
    for (size_t s = 0; s < streams.size(); ++s) {
      if (taken[s] < streams[s].size()) open.push_back(s);
    }
    if (open.empty()) return ticks;
    const bool may_end = ticks.size() < most && !ticks.empty();
    if (ticks.empty() || (may_end && random() % 4 == 0) ||
        ticks.back()->size() == 16) {
      ticks.push_back(std::make_unique<Tick>());
    }
    const size_t s = open[random() % open.size()];
    const Message& m = *streams[s][taken[s]++];
    const auto values = Values(m.from, m.to, m.number, m.count);
    if (m.from == rank) {
      ticks.back()->Send(m.to, values);
    } else {
      ticks.back()->Receive(m.from, values);
    }
  }
}

void PeersTest::RunRandomLists(size_t most_launches) {
  const uint64_t seed = test::PropertySeed();
  SCOPED_TRACE(test::DescribeSeed(seed));
  const int num_rounds = test::PropertyCases(100);
  using Ticks = std::vector<std::unique_ptr<Tick>>;
  std::vector<std::vector<Ticks>> rounds(num_rounds);  // round, rank
  for (int round = 0; round < num_rounds; ++round) {
    std::mt19937_64 random(seed + static_cast<uint64_t>(round));
    std::vector<Message> messages(1 + random() % 16);
    for (size_t m = 0; m < messages.size(); ++m) {
      const int from = static_cast<int>(random() % size());
      const int to =
          static_cast<int>((from + 1 + random() % (size() - 1)) % size());
      // Of one size between two ranks: only the values tell whether the order
      // is right.
      const uint64_t count = round % 8 == 0 && from == 0 ? 50'000 : 100;
      messages[m] = {from, to, static_cast<int>(m), count};
    }
    for (int rank = 0; rank < size(); ++rank) {
      rounds[round].push_back(TicksOf(messages, rank, most_launches, random));
    }
  }
  EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
    for (int round = 0; round < num_rounds; ++round) {
      Ticks& ticks = rounds[round][rank];
      YieldSometimes(static_cast<uint64_t>(round * 100 + rank));
      for (uint32_t t = 0; t < ticks.size(); ++t) {
        auto launched = comm.Launch(ticks[t]->launch(), t);
        if (!launched.ok()) return launched;
      }
      for (uint32_t t = 0; t < ticks.size(); ++t) {
        if (auto done = comm.Wait(t); !done.ok()) return done.status();
        if (auto right = ticks[t]->Check(); !right.ok()) {
          return absl::InternalError(absl::StrCat("round ", round, ", launch ",
                                                  t, ": ", right.message()));
        }
      }
    }
    return absl::OkStatus();
  }));
}

TEST_P(PeersTest, RandomListsMeetInTheOrderOfEachPair) { RunRandomLists(4); }

TEST_P(TickPeersTest, RandomListsOfOneLaunchMeetInTheOrderOfEachPair) {
  RunRandomLists(1);
}

// Rank 1 has its message although rank 0, in the same launch, waits for rank 2.
TEST_P(ThreePeersTest, EachPairGetsOnByItself) {
  std::atomic<bool> arrived{false};
  EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
    Tick tick;
    if (rank == 0) {
      tick.Receive(2, Values(2, 0, 0, 100));
      tick.Send(1, Values(0, 1, 0, 200'000));
    } else if (rank == 1) {
      tick.Receive(0, Values(0, 1, 0, 200'000));
    } else if (rank == 2) {
      EXPECT_TRUE(test::Await([&] { return arrived.load(); }));
      tick.Send(0, Values(2, 0, 0, 100));
    } else {
      return absl::OkStatus();
    }
    const absl::Status right = RunTick(comm, tick);
    if (rank == 1) arrived = true;
    return right;
  }));
}

TEST_P(TickPeersTest, CollectivesOfTheSameCommunicatorGoOn) {
  EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
    for (int round = 0; round < 20; ++round) {
      float value = 1, sum = 0;
      const commsched_member_t member{&value, &sum, 1, nullptr, 0, 0, 0, 0};
      const commsched_launch_t reduce = LaunchOf(
          COMMSCHED_ALL_REDUCE, COMMSCHED_F32, COMMSCHED_SUM, 0, 1, 1, &member);
      Tick tick;
      if (rank == 0) tick.Send(1, Values(0, 1, round % 10, 100));
      if (rank == 1) tick.Receive(0, Values(0, 1, round % 10, 100));
      // Ranks have had different numbers of launches; collectives still meet.
      const bool peers_first = round % 2 == 0;
      for (const bool peers : {peers_first, !peers_first}) {
        if (peers && tick.size() == 0) continue;
        auto launched = comm.Launch(peers ? tick.launch() : reduce, peers);
        if (!launched.ok()) return launched;
      }
      for (const bool peers : {peers_first, !peers_first}) {
        if (peers && tick.size() == 0) continue;
        if (auto done = comm.Wait(peers); !done.ok()) return done.status();
      }
      EXPECT_EQ(sum, static_cast<float>(size()));
      if (auto right = tick.Check(); !right.ok()) return right;
    }
    return absl::OkStatus();
  }));
}

// Peers are ranks of the group, whatever ranks of the world those are.
TEST_P(TickPeersTest, PeersAreRanksOfTheGroup) {
  std::vector<int32_t> ranks(size());
  std::iota(ranks.rbegin(), ranks.rend(), 0);
  if (size() > 2) ranks.pop_back();
  const int group_size = static_cast<int>(ranks.size());
  EXPECT_OK(OnRanksAll([&](int world_rank) -> absl::Status {
    const auto at = std::find(ranks.begin(), ranks.end(), world_rank);
    if (at == ranks.end()) return absl::OkStatus();
    const int rank = static_cast<int>(at - ranks.begin());
    CommDriver comm;
    auto created =
        comm.Create(WorldOf(world_rank), {.ranks = ranks}, world_rank);
    if (!created.ok()) return created;
    Tick tick;
    for (int peer = 0; peer < group_size; ++peer) {
      if (peer == rank) continue;
      tick.Receive(peer, Values(peer, rank, 0, 30));
      tick.Send(peer, Values(rank, peer, 0, 30));
    }
    return RunTick(comm, tick);
  }));
}

TEST_P(MismatchedPeersTest, DifferentSizesAreNamed) {
  ExpectMismatch([](Tick& tick) { tick.members()[0].count = 63; },
                 COMMSCHED_I32,
                 absl::StrCat("rank 0 sends 64 x i32 to rank ", size() - 1,
                              " in its launch #0, rank ", size() - 1,
                              " receives 63 x i32"));
}

// Where only bytes arrive, their number is compared, by who receives.
TEST_P(DistantPeersTest, DifferentSizesAreNamed) {
  for (const auto& [count, text] : {std::pair(63, " sent more than 252 bytes"),
                                    std::pair(65, " sent 256 bytes")}) {
    const auto statuses = OnComm([&](int rank, CommDriver& comm) {
      const int last = size() - 1;
      Tick tick;
      if (rank == 0) tick.Send(last, Values(0, last, 0, 64));
      if (rank == last) {
        tick.Receive(0, Values(0, last, 0, 65));
        tick.members()[0].count = static_cast<uint64_t>(count);
      }
      if (tick.size() == 0) return absl::OkStatus();
      return comm.LaunchAndWait(tick.launch());
    });
    EXPECT_THAT(statuses.back(), StatusIs(absl::StatusCode::kInvalidArgument,
                                          absl::StrCat("rank 0", text)));
    EXPECT_THAT(statuses.back(),
                StatusIs(absl::StatusCode::kInvalidArgument, "axis 'dp'"));
  }
}

TEST_P(MismatchedPeersTest, DifferentTypesAreNamed) {
  ExpectMismatch([](Tick&) {}, COMMSCHED_F32, "receives 64 x f32");
}

TEST_P(OneProcessPeersTest, ThePeerThatHasNotComeIsNamed) {
  std::atomic<bool> asked{false};
  EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
    if (rank > 1) return absl::OkStatus();
    Tick tick;
    if (rank == 0) tick.Receive(1, Values(1, 0, 0, 5));
    if (rank == 1) tick.Send(0, Values(1, 0, 0, 5));
    if (rank == 1) {
      EXPECT_TRUE(test::Await([&] {
        EXPECT_OK(comm.status());  // Answers.
        return asked.load();
      }));
    }
    if (auto ok = comm.Launch(tick.launch()); !ok.ok()) return ok;
    if (rank == 0) {
      EXPECT_TRUE(test::Await(
          [&] { return comm.Missing() == std::vector<int32_t>{1}; }));
    } else {
      // That the other has come may still be on its way from another process.
      EXPECT_TRUE(test::Await([&] { return comm.Missing().empty(); }));
    }
    asked = true;
    if (auto done = comm.Wait(); !done.ok()) return done.status();
    return tick.Check();
  }));
}

TEST_P(OneProcessPeersTest, AnAbortReachesWhoWaitsForAPeer) {
  std::atomic<int> num_waiting{0};
  const auto statuses = OnComm([&](int rank, CommDriver& comm) {
    Tick tick;
    tick.Receive(Before(rank), Values(0, 0, 0, 300'000));
    if (rank != 0) {
      const absl::Status launched = comm.Launch(tick.launch());
      num_waiting.fetch_add(1);
      return launched.ok() ? comm.Wait().status() : launched;
    }
    EXPECT_TRUE(test::Await([&] { return num_waiting.load() == size() - 1; }));
    comm.Abort(COMMSCHED_UNAVAILABLE, "the cable is out");
    return comm.LaunchAndWait(tick.launch());
  });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kUnavailable, "the cable is out"));
  }
}

// Members' memory goes away as soon as they see the failure; the address and
// thread sanitizers watch whether anyone still works on it.
TEST_P(PeersTest, MemoryIsNotTouchedOnceAMemberHasSeenTheFailure) {
  constexpr uint64_t kCount = 40'000;  // more than a block
  for (int round = 0; round < 20; ++round) {
    const auto statuses = OnComm([&](int rank, CommDriver& comm) {
      absl::Status status;
      for (int i = 0; status.ok(); ++i) {
        Tick tick;
        tick.Send(Next(rank), Values(0, 0, 0, kCount));
        tick.Receive(Before(rank), Values(0, 0, 0, kCount));
        status = comm.Launch(tick.launch());
        if (rank == round % size() && i == round / 4) {
          YieldSometimes(static_cast<uint64_t>(round));
          comm.Abort(COMMSCHED_CANCELLED, "enough");
        }
        if (status.ok()) status = comm.Wait().status();
      }
      return status;
    });
    if (round > 0 && AnyWorldHasEnded(statuses)) return;
    for (const absl::Status& status : statuses) {
      EXPECT_TRUE(absl::IsCancelled(status) ||
                  (round > 0 && absl::IsUnavailable(status)))
          << status;
    }
  }
}

TEST_P(PeersTest, APeerThatLeavesIsNamed) {
  const auto statuses = OnComm([&](int rank, CommDriver& comm) {
    if (rank == 1) return absl::OkStatus();
    Tick tick;
    if (rank == 0) tick.Receive(1, Values(1, 0, 0, 5));
    return rank == 0 ? comm.LaunchAndWait(tick.launch()) : absl::OkStatus();
  });
  EXPECT_THAT(statuses[0],
              StatusIs(absl::StatusCode::kAborted, "rank 1 left axis 'dp'"));
}

// The two have had nothing to do with each other until then. Who has left makes
// progress while it waits for others.
TEST_P(DistantPeersTest, WhoHasLeftIsNamedByWhoNeedsItLater) {
  const int last = size() - 1;
  const auto statuses = OnComm([&](int rank, CommDriver& comm) {
    const auto meet = [&](const char* key) {
      constexpr int64_t kMeetingNs = int64_t{60} * 1000 * 1000 * 1000;
      EXPECT_OK(
          WorldOf(rank)->meeting()->AllGather(key, rank, "here", kMeetingNs));
    };
    if (rank == last) comm.Destroy();
    meet("left");
    absl::Status status;
    Tick tick;
    if (rank == last - 1) {
      tick.Receive(last, Values(last, rank, 0, 5));
      status = comm.LaunchAndWait(tick.launch());
    }
    meet("named");
    return status;
  });
  EXPECT_THAT(statuses[last - 1],
              StatusIs(absl::StatusCode::kAborted,
                       absl::StrCat("rank ", last, " left axis 'dp'")));
}

TEST_P(PeersTest, APeerOutsideTheGroupIsRefused) {
  for (const int peer : {-1, size(), 0}) {
    const auto statuses = OnComm([&](int rank, CommDriver& comm) {
      Tick tick;
      tick.Send(peer, {1, 2, 3});
      return rank == 0 ? comm.LaunchAndWait(tick.launch()) : absl::OkStatus();
    });
    EXPECT_THAT(statuses[0],
                StatusIs(absl::StatusCode::kInvalidArgument,
                         absl::StrCat("its peer ", peer, " is not another")));
  }
}

TEST_P(PeersTest, AMemberThatNeitherSendsNorReceivesIsRefused) {
  const auto statuses = OnComm([&](int rank, CommDriver& comm) {
    Tick tick;
    tick.Send(1, {1, 2, 3});
    tick.members()[0].direction = 0;
    return rank == 0 ? comm.LaunchAndWait(tick.launch()) : absl::OkStatus();
  });
  EXPECT_THAT(statuses[0],
              StatusIs(absl::StatusCode::kInvalidArgument, "its direction"));
}

bool IsOneAndPolled(const BackendCase& one) {
  return IsOneProcess(one) && IsPolled(one);
}

COMMSCHED_INSTANTIATE_CONFORMANCE(TickPeersTest,
                                  BackendsWith(COMMSCHED_BACKEND_P2P, 2,
                                               [](const BackendCase&) {
                                                 return true;
                                               }));
// Not those on a stream, where a list ends before the next one begins, and what
// does not meet hangs.
COMMSCHED_INSTANTIATE_CONFORMANCE(PeersTest, BackendsWith(COMMSCHED_BACKEND_P2P,
                                                          2, IsPolled));
COMMSCHED_INSTANTIATE_CONFORMANCE(OneProcessPeersTest,
                                  BackendsWith(COMMSCHED_BACKEND_P2P, 2,
                                               IsOneAndPolled));
COMMSCHED_INSTANTIATE_CONFORMANCE(ThreePeersTest,
                                  BackendsWith(COMMSCHED_BACKEND_P2P, 3,
                                               IsOneAndPolled));
COMMSCHED_INSTANTIATE_CONFORMANCE(MismatchedPeersTest,
                                  BackendsWith(COMMSCHED_BACKEND_P2P, 2,
                                               [](const BackendCase& one) {
                                                 return one.checks_launches;
                                               }));
COMMSCHED_INSTANTIATE_CONFORMANCE(DistantPeersTest,
                                  BackendsWith(COMMSCHED_BACKEND_P2P, 2,
                                               [](const BackendCase& one) {
                                                 return one.processes;
                                               }));
// Without UCX there is none such.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DistantPeersTest);

}  // namespace
}  // namespace commsched
