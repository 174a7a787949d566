// Who is late: every backend that says so says it rightly, whatever way data
// takes.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "test/conformance/backend_fixture.h"
#include "test/support/await.h"
#include "test/support/launches.h"

namespace commsched {
namespace {

// Enough for answers to come.
constexpr int64_t kLongNs = int64_t{60} * 1000 * 1000;
// As long as hosts wait for them.
constexpr int64_t kMostAnswerNs = int64_t{1} * 1000 * 1000 * 1000;

int64_t NowNs() { return SystemClock::Get().NowNs(); }

// A launch that is large enough to go by way of ranks of other hosts.
struct LargeLaunch {
  static constexpr uint64_t kCount = 20'000;

  explicit LargeLaunch(commsched_collective_t kind = COMMSCHED_ALL_REDUCE,
                       uint64_t count = kCount)
      : data(count, 1.0f) {
    member = {data.data(), data.data(), count, nullptr, 0, 0, 0, 0};
    launch =
        LaunchOf(kind, COMMSCHED_F32, COMMSCHED_SUM, /*root=*/0, 1, 1, &member);
  }
  LargeLaunch(const LargeLaunch&) = delete;

  std::vector<float> data;
  commsched_member_t member;
  commsched_launch_t launch;
};

bool Has(const std::vector<int32_t>& ranks, int rank) {
  return std::count(ranks.begin(), ranks.end(), rank) != 0;
}

// Who is missing once all that were asked have answered; nobody before.
std::vector<int32_t> Answered(CommDriver& comm, uint32_t request = 0) {
  comm.status().IgnoreError();  // Makes progress.
  if (!comm.Silent(request).empty()) return {};
  return comm.Missing(request);
}

class LateTest : public BackendTest {
 protected:
  using Ranks = std::vector<int32_t>;

  // Makes progress, so that others get their answers, until `done`.
  template <typename Done>
  static void AnswerUntil(CommDriver* comm, const Done& done) {
    EXPECT_TRUE(test::Await([&] {
      EXPECT_OK(comm->status());
      return done();
    }));
  }

  // All others, or `only` one, are told that `late` has not issued the launch,
  // and of nobody else, before it does.
  void ExpectNamed(commsched_collective_t kind, int late, int only = -1) {
    std::atomic<int> num_launched{0};
    std::atomic<int> num_told{0};
    EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
      LargeLaunch large(kind);
      const int num_others = size() - 1;
      const int num_waiting = only >= 0 ? 1 : num_others;
      const auto all_are_told = [&] { return num_told == num_waiting; };
      if (rank == late) AnswerUntil(&comm, all_are_told);
      if (auto ok = comm.Launch(large.launch); !ok.ok()) return ok;
      if (rank != late) {
        ++num_launched;
        if (only < 0 || rank == only) {
          EXPECT_TRUE(test::Await([&] {
            const Ranks missing = Answered(comm);
            EXPECT_FALSE(Has(missing, rank));
            return num_launched == num_others && missing == Ranks{late};
          }));
          ++num_told;
        }
        AnswerUntil(&comm, all_are_told);
      }
      // That the last has come may still be on its way from another process.
      EXPECT_TRUE(test::Await([&] { return comm.Missing().empty(); }));
      if (auto done = comm.Wait(); !done.ok()) return done.status();
      EXPECT_EQ(comm.Missing(), Ranks{});  // It is not in flight any more.
      EXPECT_EQ(comm.Silent(), Ranks{});
      return absl::OkStatus();
    }));
  }
};

class LateHostsTest : public LateTest {};
class AskedLateTest : public LateTest {};
class LatePeersTest : public LateTest {};
class LateTreeTest : public LateTest {};
class LateRootTest : public LateTest {};

TEST_P(LateTest, WhoHasNotIssuedIsNamedAndNobodyElse) {
  for (int late = 0; late < size(); ++late) {
    ExpectNamed(COMMSCHED_ALL_REDUCE, late);
  }
}

// In which not all wait for all: who hands on the root's data is innocent.
TEST_P(LateTest, TheRootOfABroadcastIsNamedAndNobodyElse) {
  ExpectNamed(COMMSCHED_BROADCAST, 0);
}

TEST_P(LateTest, WhoseInputOfAReduceIsMissingIsNamedAndNobodyElse) {
  ExpectNamed(COMMSCHED_REDUCE, size() - 1, /*only=*/0);
}

// Of a host whose sums, or whose part of the data, come by way of another rank.
TEST_P(LateHostsTest, WhoIsLateSomewhereOnTheWayIsNamed) {
  ExpectNamed(COMMSCHED_REDUCE, /*late=*/2, /*only=*/1);
  ExpectNamed(COMMSCHED_BROADCAST, /*late=*/2, /*only=*/5);
}

// An answer is of when it was given: who has issued since is asked again.
TEST_P(AskedLateTest, WhoHasIssuedSinceItAnsweredIsNotNamed) {
  std::atomic<bool> both_are_named{false};
  std::atomic<bool> one_has_issued{false};
  std::atomic<bool> is_over{false};
  EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
    // Of rank 1 nothing comes before the root's data has.
    LargeLaunch large(COMMSCHED_BROADCAST);
    large.launch.root = 2;
    if (rank == 1) AnswerUntil(&comm, [&] { return both_are_named.load(); });
    if (rank == 2) AnswerUntil(&comm, [&] { return is_over.load(); });
    if (auto ok = comm.Launch(large.launch); !ok.ok()) return ok;
    if (rank == 1) {
      one_has_issued = true;
      EXPECT_TRUE(
          test::Await([&] { return is_over.load(); }));  // Stands still.
    }
    if (rank == 0) {
      EXPECT_TRUE(test::Await([&] {
        const Ranks missing = Answered(comm);
        return Has(missing, 1) && Has(missing, 2);
      }));
      both_are_named = true;
      EXPECT_TRUE(test::Await([&] { return one_has_issued.load(); }));
      comm.Ask();
      EXPECT_TRUE(Has(comm.Silent(), 1));
      EXPECT_FALSE(Has(comm.Missing(), 1));
      is_over = true;
    }
    AnswerUntil(&comm, [&] { return is_over.load(); });
    return comm.Wait().status();
  }));
}

// What it answers first is of before it has issued, and of before it was asked
// anew.
TEST_P(AskedLateTest, AnAnswerToAnEarlierQuestionNamesNobody) {
  std::atomic<bool> one_is_there{false};
  std::atomic<bool> is_asked{false};
  std::atomic<bool> one_has_issued{false};
  std::atomic<bool> is_over{false};
  EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
    // Of rank 1 nothing comes before the root's data has.
    LargeLaunch large(COMMSCHED_BROADCAST);
    large.launch.root = 2;
    if (rank == 1) {
      one_is_there = true;  // And answers nothing, as it did while it joined.
      EXPECT_TRUE(test::Await([&] { return is_asked.load(); }));
      const int64_t asked_ns = NowNs();
      AnswerUntil(&comm, [&] { return NowNs() > asked_ns + kLongNs; });
    }
    if (rank == 2) AnswerUntil(&comm, [&] { return is_over.load(); });
    if (auto ok = comm.Launch(large.launch); !ok.ok()) return ok;
    if (rank == 1) {
      one_has_issued = true;
      EXPECT_TRUE(
          test::Await([&] { return is_over.load(); }));  // Stands still.
    }
    if (rank == 0) {
      AnswerUntil(&comm, [&] { return one_is_there.load(); });
      comm.Ask();
      comm.Ask();
      is_asked = true;
      EXPECT_TRUE(test::Await([&] { return one_has_issued.load(); }));
      const int64_t issued_ns = NowNs();
      AnswerUntil(&comm, [&] { return NowNs() > issued_ns + kLongNs; });
      EXPECT_FALSE(Has(comm.Missing(), 1));
      is_over = true;
    }
    AnswerUntil(&comm, [&] { return is_over.load(); });
    return comm.Wait().status();
  }));
}

// Who has issued has to sum up, or to hand on, what others wait for.
TEST_P(AskedLateTest, WhoStandsStillAfterItHasIssuedIsSilent) {
  const int num_others = size() - 1;
  std::atomic<int> num_launched{0};
  std::atomic<int> num_told{0};
  EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
    LargeLaunch large;
    if (auto ok = comm.Launch(large.launch); !ok.ok()) return ok;
    ++num_launched;
    EXPECT_TRUE(test::Await([&] { return num_launched == size(); }));
    if (rank == 0) {
      EXPECT_TRUE(test::Await([&] { return num_told == num_others; }));
      return comm.Wait().status();
    }
    // What rank 0 has sent comes, and then nothing more.
    const int64_t launched_ns = NowNs();
    AnswerUntil(&comm, [&] { return NowNs() > launched_ns + kLongNs; });
    comm.Ask();
    AnswerUntil(&comm, [&] { return comm.Silent() == Ranks{0}; });
    EXPECT_EQ(comm.Missing(), Ranks{});
    ++num_told;
    AnswerUntil(&comm, [&] { return num_told == num_others; });
    return comm.Wait().status();
  }));
}

// Rank 1 has issued two launches, the others one, for which they wait because
// of the last rank.
TEST_P(AskedLateTest, WhoWaitsInAnEarlierLaunchIsNotNamed) {
  const int late = size() - 1;
  std::atomic<bool> is_over{false};
  EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
    LargeLaunch first, second;
    if (rank == late) AnswerUntil(&comm, [&] { return is_over.load(); });
    if (auto ok = comm.Launch(first.launch, 0); !ok.ok()) return ok;
    if (rank == 1) {
      if (auto ok = comm.Launch(second.launch, 1); !ok.ok()) return ok;
      EXPECT_TRUE(
          test::Await([&] { return Answered(comm, 1) == Ranks{late}; }));
      is_over = true;
    }
    if (auto done = comm.Wait(0); !done.ok()) return done.status();
    if (rank == 1) return comm.Wait(1).status();
    return comm.LaunchAndWait(second.launch);
  }));
}

// Of a broadcast rank 1 needs nothing of anybody but the root, which has still
// to sum up an earlier reduce, that rank 1 has done its part of.
TEST_P(LateRootTest, WhoKeepsTheRootIsNamedAndNobodyElse) {
  constexpr uint64_t kFewElements = 5;
  const int late = size() - 1;
  std::atomic<bool> is_over{false};
  EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
    LargeLaunch first(COMMSCHED_REDUCE, kFewElements);
    LargeLaunch second(COMMSCHED_BROADCAST, kFewElements);
    if (rank == late) AnswerUntil(&comm, [&] { return is_over.load(); });
    if (auto ok = comm.LaunchAndWait(first.launch); !ok.ok()) return ok;
    // Rank 2 has nothing to do with what rank 1 waits for.
    if (rank == 2) AnswerUntil(&comm, [&] { return is_over.load(); });
    if (auto ok = comm.Launch(second.launch); !ok.ok()) return ok;
    if (rank == 1) {
      EXPECT_TRUE(test::Await([&] {
        const Ranks missing = Answered(comm);
        EXPECT_FALSE(Has(missing, 2));
        return missing == Ranks{late};
      }));
      is_over = true;
    }
    return comm.Wait().status();
  }));
}

// As hosts ask: once, and whoever has to be asked then is.
TEST_P(LateRootTest, WhoMayKeepTheRootIsAskedOnceItHasAnswered) {
  constexpr uint64_t kFewElements = 5;
  const int late = size() - 1;
  std::atomic<bool> is_over{false};
  EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
    LargeLaunch first(COMMSCHED_REDUCE, kFewElements);
    LargeLaunch second(COMMSCHED_BROADCAST, kFewElements);
    if (rank == late) {
      EXPECT_TRUE(
          test::Await([&] { return is_over.load(); }));  // Stands still.
    }
    if (auto ok = comm.LaunchAndWait(first.launch); !ok.ok()) return ok;
    if (auto ok = comm.Launch(second.launch); !ok.ok()) return ok;
    if (rank == 1) {
      const int64_t launched_ns = NowNs();
      AnswerUntil(&comm, [&] { return NowNs() > launched_ns + kLongNs; });
      comm.Ask();
      EXPECT_EQ(comm.Silent(), Ranks{0});
      AnswerUntil(&comm, [&] { return comm.Silent() == Ranks{late}; });
      EXPECT_EQ(comm.Missing(), Ranks{});
      is_over = true;
    }
    return comm.Wait().status();
  }));
}

// Nobody is why rank 0 does not take what has come for the first launch.
TEST_P(AskedLateTest, WhoNobodyKeepsFromGettingOnIsNamed) {
  std::atomic<bool> is_over{false};
  EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
    LargeLaunch first, second;
    if (auto ok = comm.Launch(first.launch, 0); !ok.ok()) return ok;
    if (rank == 0) {
      AnswerUntil(&comm, [&] { return is_over.load(); });  // Polls nothing.
    }
    if (auto ok = comm.Launch(second.launch, 1); !ok.ok()) return ok;
    if (rank == 1) {
      EXPECT_TRUE(test::Await([&] { return Answered(comm, 1) == Ranks{0}; }));
      is_over = true;
    }
    for (const uint32_t request : {0, 1}) {
      if (auto done = comm.Wait(request); !done.ok()) return done.status();
    }
    return absl::OkStatus();
  }));
}

// What rank 0 has waited for comes at the same moment as the question: it had
// no time yet to get on. It is named when it has had.
TEST_P(AskedLateTest, WhoWasKeptUntilJustNowIsNotNamed) {
  constexpr uint64_t kFewElements = 5;
  constexpr int64_t kJustNs = int64_t{100} * 1000 * 1000;
  const int late = size() - 1;
  std::atomic<int> num_met{0};
  std::atomic<int64_t> freed_ns{0};  // Nothing has come for rank 0 before.
  std::atomic<bool> is_asked{false};
  std::atomic<bool> late_has_issued{false};
  std::atomic<bool> is_over{false};
  EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
    LargeLaunch met(COMMSCHED_ALL_REDUCE, kFewElements);
    LargeLaunch first(COMMSCHED_ALL_REDUCE, kFewElements);
    LargeLaunch second(COMMSCHED_ALL_REDUCE, kFewElements);
    if (auto ok = comm.LaunchAndWait(met.launch); !ok.ok()) return ok;
    ++num_met;
    AnswerUntil(&comm, [&] { return num_met == size(); });
    if (rank == late) AnswerUntil(&comm, [&] { return is_asked.load(); });
    if (auto ok = comm.Launch(first.launch, 0); !ok.ok()) return ok;
    if (rank == late) late_has_issued = true;
    if (rank == 0) {
      EXPECT_TRUE(  // Stands still.
          test::Await([&] { return is_asked && late_has_issued; }));
      freed_ns = NowNs();
      AnswerUntil(&comm, [&] { return is_over.load(); });  // Polls nothing.
    }
    if (rank == 1) {
      if (auto ok = comm.Launch(second.launch, 1); !ok.ok()) return ok;
      comm.Ask(1);
      EXPECT_TRUE(Has(comm.Silent(1), 0));
      is_asked = true;
      AnswerUntil(&comm, [&] { return !Has(comm.Silent(1), 0); });
      const bool is_named = Has(comm.Missing(1), 0);
      EXPECT_TRUE(!is_named || NowNs() >= freed_ns + kJustNs);
      EXPECT_TRUE(test::Await([&] { return Has(Answered(comm, 1), 0); }));
      is_over = true;
    }
    AnswerUntil(&comm, [&] { return is_over.load(); });
    if (auto done = comm.Wait(0); !done.ok()) return done.status();
    if (rank == 1) return comm.Wait(1).status();
    return comm.LaunchAndWait(second.launch);
  }));
}

// Who waits for the other's answer still knows of the first.
TEST_P(AskedLateTest, WhoAnswersIsNamedAsLongAsAnotherMay) {
  std::atomic<bool> both_are_named{false};
  std::atomic<bool> is_still{false};
  std::atomic<bool> is_over{false};
  EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
    LargeLaunch large;
    if (rank == 1) AnswerUntil(&comm, [&] { return is_over.load(); });
    if (rank == 2) {
      AnswerUntil(&comm, [&] { return both_are_named.load(); });
      is_still = true;
      EXPECT_TRUE(test::Await([&] { return is_over.load(); }));
    }
    if (auto ok = comm.Launch(large.launch); !ok.ok()) return ok;
    if (rank == 0) {
      EXPECT_TRUE(test::Await([&] {
        const Ranks missing = Answered(comm);
        return Has(missing, 1) && Has(missing, 2);
      }));
      both_are_named = true;
      EXPECT_TRUE(test::Await([&] { return is_still.load(); }));
      const int64_t asked_ns = NowNs();
      comm.Ask();
      AnswerUntil(&comm, [&] { return NowNs() > asked_ns + kMostAnswerNs; });
      EXPECT_EQ(comm.Silent(), Ranks{2});
      EXPECT_EQ(comm.Missing(), Ranks{1});
      is_over = true;
    }
    AnswerUntil(&comm, [&] { return is_over.load(); });
    return comm.Wait().status();
  }));
}

// A message from rank `from` to rank `to`, as one of them posts it.
struct LateMessage {
  LateMessage(int rank, int from, int to, uint64_t count) : data(count, 1.0f) {
    member.count = count;
    if (rank == from) member.input = data.data();
    if (rank == to) member.output = data.data();
    member.peer = rank == from ? to : from;
    member.direction = rank == from ? COMMSCHED_SEND : COMMSCHED_RECV;
    launch.kind = COMMSCHED_SEND;
    launch.dtype = COMMSCHED_F32;
    launch.num_members = 1;
    launch.members = &member;
  }
  LateMessage(const LateMessage&) = delete;

  std::vector<float> data;
  commsched_member_t member{};
  commsched_launch_t launch{};
};

// Its data waits on the way.
TEST_P(LateTreeTest, WhoHasLeftHasDoneItsPart) {
  constexpr uint64_t kFewElements = 5;
  std::atomic<int> num_left{0};
  std::atomic<bool> is_over{false};
  EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
    // Who has met the last rank tells it that it leaves.
    for (int from = 0; from < 2; ++from) {
      if (rank != from && rank != 3) continue;
      LateMessage message(rank, from, 3, kFewElements);
      if (auto ok = comm.LaunchAndWait(message.launch); !ok.ok()) return ok;
    }
    LargeLaunch small(COMMSCHED_BROADCAST, kFewElements);
    const auto launch_and_wait = [&] {
      return comm.LaunchAndWait(small.launch);
    };
    if (rank < 2) {
      if (auto ok = launch_and_wait(); !ok.ok()) return ok;
      comm.Destroy();
      ++num_left;
      return absl::OkStatus();
    }
    // Stands still, and hands on what rank 3 waits for.
    if (rank == 2) {
      EXPECT_TRUE(test::Await([&] { return is_over.load(); }));
      return launch_and_wait();
    }
    EXPECT_TRUE(test::Await([&] { return num_left == 2; }));
    if (auto ok = comm.Launch(small.launch); !ok.ok()) return ok;
    comm.Ask();
    const int64_t asked_ns = NowNs();
    AnswerUntil(&comm, [&] { return NowNs() > asked_ns + kLongNs; });
    EXPECT_EQ(comm.Silent(), Ranks{2});
    is_over = true;
    return comm.Wait().status();
  }));
}

// Whatever else there is between the two.
TEST_P(LatePeersTest, WhoHasPostedWhatIsStillOnItsWayIsNotNamed) {
  constexpr uint64_t kManyElements = 4 << 20;
  std::atomic<bool> has_posted{false};
  std::atomic<bool> is_over{false};
  EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
    const int last = size() - 1;
    if (rank != 0 && rank != last) {
      AnswerUntil(&comm, [&] { return is_over.load(); });
      return absl::OkStatus();
    }
    LateMessage early(rank, 0, last, 5);
    LateMessage large(rank, last, 0, kManyElements);
    LateMessage later(rank, last, 0, 5);
    const auto launch_all = [&](std::vector<LateMessage*> messages) {
      absl::Status status;
      for (uint32_t i = 0; i < messages.size() && status.ok(); ++i) {
        status = comm.Launch(messages[i]->launch, i);
      }
      return status;
    };
    if (rank == 0) {
      if (auto ok = launch_all({&early, &large, &later}); !ok.ok()) return ok;
      EXPECT_TRUE(test::Await([&] { return has_posted.load(); }));
      while (!is_over) {
        EXPECT_FALSE(Has(comm.Missing(1), last));
        const auto polled = comm.Poll(1);
        if (!polled.ok()) return polled.status();
        if (polled->done != 0) is_over = true;
      }
      for (const uint32_t request : {0, 2}) {
        if (auto done = comm.Wait(request); !done.ok()) return done.status();
      }
      return absl::OkStatus();
    }
    // It posts the others only when all is over.
    if (auto ok = launch_all({&large}); !ok.ok()) return ok;
    has_posted = true;
    AnswerUntil(&comm, [&] { return is_over.load(); });
    if (auto done = comm.Wait(0); !done.ok()) return done.status();
    if (auto ok = launch_all({&early, &later}); !ok.ok()) return ok;
    for (const uint32_t request : {0, 1}) {
      if (auto done = comm.Wait(request); !done.ok()) return done.status();
    }
    return absl::OkStatus();
  }));
}

// A process that is stopped may have issued what it is asked for.
TEST_P(LateTest, WhoDoesNotAnswerIsNotSaidToBeLate) {
  std::atomic<bool> is_still{false};
  std::atomic<int> num_told{0};
  EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
    LargeLaunch large;
    const int last = size() - 1;
    if (rank == last) {
      is_still = true;
      EXPECT_TRUE(test::Await([&] { return num_told.load() == last; }));
    }
    // It answers while it joins.
    EXPECT_TRUE(test::Await([&] { return is_still.load(); }));
    if (auto ok = comm.Launch(large.launch); !ok.ok()) return ok;
    if (rank != last) {
      // Who shares memory with it sees what it has issued.
      bool is_named = false;
      EXPECT_TRUE(test::Await([&] {
        is_named = Has(comm.Missing(), last);
        return is_named || comm.Silent() == Ranks{last};
      }));
      EXPECT_NE(is_named, GetParam().processes);
      ++num_told;
    }
    return comm.Wait().status();
  }));
}

// Whose limit is over may be told of another rank's failure at that moment.
TEST_P(LateTest, WhoIsLateIsKnownAfterAFailure) {
  const int late = size() - 1;
  std::atomic<int> num_told{0};
  std::atomic<int> num_failed{0};
  EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
    const auto answer_until = [&](const std::atomic<int>& num_others) {
      EXPECT_TRUE(test::Await([&] {
        comm.status().IgnoreError();  // Members of one process fail together.
        return num_others == late;
      }));
    };
    LargeLaunch large;
    if (rank != late) {
      if (auto ok = comm.Launch(large.launch); !ok.ok()) return ok;
      EXPECT_TRUE(test::Await([&] { return Answered(comm) == Ranks{late}; }));
      ++num_told;
      EXPECT_TRUE(test::Await([&] {
        Answered(comm);  // What it knows stays fresh.
        return num_told == late;
      }));
      comm.Abort(COMMSCHED_UNAVAILABLE, "the cable is out");
      EXPECT_TRUE(test::Await([&] { return Answered(comm) == Ranks{late}; }));
      ++num_failed;
    }
    answer_until(num_failed);
    if (rank != late) {
      EXPECT_FALSE(comm.Wait().ok());
    }
    return absl::OkStatus();
  }));
}

// When the late rank of a step issued, and the last of the others.
struct LateIssue {
  int64_t others_ns = 0;  // By then they had.
  int64_t begin_ns = 0;   // The late one did between these two.
  int64_t end_ns = 0;
};

// In each step another rank is late by some milliseconds.
TEST_P(LateTest, WhoIssuedLastIsKnownAndWhen) {
  constexpr int64_t kLateNs = int64_t{3} * 1000 * 1000;
  constexpr uint64_t kKey = 7;
  const auto num_steps = static_cast<uint64_t>(2 * size());
  std::vector<std::atomic<int>> num_launched(num_steps + 1);
  std::vector<LateIssue> issued(num_steps + 1);
  std::atomic<int> num_done{0};
  const auto late_of = [&](uint64_t step) {
    return static_cast<int>(step % static_cast<uint64_t>(size()));
  };
  const auto expect_start = [&](const commsched_launch_start_t& start) {
    ASSERT_LT(start.step, num_steps);
    const LateIssue& late = issued[start.step];
    EXPECT_EQ(start.key, kKey);
    EXPECT_GE(start.started_ns, late.begin_ns - start.error_ns);
    EXPECT_LE(start.started_ns, late.end_ns + start.error_ns);
    if (late.begin_ns - late.others_ns > 2 * start.error_ns) {
      EXPECT_EQ(start.last_rank, late_of(start.step));
    }
  };
  CommSpec spec;
  spec.asks_starts = true;
  EXPECT_OK(OnCommAll(
      [&](int rank, CommDriver& comm) -> absl::Status {
        std::vector<commsched_launch_start_t> starts;
        const auto read = [&] {
          for (const auto& start : comm.Starts()) starts.push_back(start);
        };
        uint64_t num_said = 0;
        // The last step ends the one before.
        for (uint64_t step = 0; step <= num_steps; ++step) {
          LargeLaunch large;
          large.launch.step = step;
          large.launch.key = kKey;
          const bool is_late = rank == late_of(step);
          if (is_late) {
            AnswerUntil(
                &comm, [&] { return num_launched[step].load() == size() - 1; });
            issued[step].others_ns = NowNs();
            AnswerUntil(&comm, [&] {
              return NowNs() > issued[step].others_ns + kLateNs;
            });
            issued[step].begin_ns = NowNs();
          }
          if (auto ok = comm.Launch(large.launch); !ok.ok()) return ok;
          if (is_late) issued[step].end_ns = NowNs();
          ++num_launched[step];
          const auto result = comm.Wait();
          if (!result.ok()) return result.status();
          if (result->started_ns != 0) {
            ++num_said;
            EXPECT_GE(result->started_ns, issued[step].begin_ns);
          }
          read();
        }
        if (num_said == 0) {
          AnswerUntil(&comm, [&] {
            read();
            return starts.size() >= num_steps;
          });
        }
        ++num_done;
        AnswerUntil(&comm, [&] { return num_done.load() == size(); });
        EXPECT_EQ(starts.size(), num_said == 0 ? num_steps : 0);
        for (const auto& start : starts) expect_start(start);
        return absl::OkStatus();
      },
      spec));
}

// Whether who has issued is asked, and cannot be seen.
bool IsAsked(const BackendCase& one) {
  return one.processes && IsOneProcess(one);
}

// As if two ranks each were on three hosts.
std::vector<BackendCase> ThreeHosts() {
  std::vector<BackendCase> cases = BackendsWith(
      0, 2, [](const BackendCase& one) { return one.name == "ucx_hosts_n4"; });
  for (BackendCase& one : cases) {
    one.name = "ucx_hosts_n6";
    one.size = 6;
  }
  return cases;
}

COMMSCHED_INSTANTIATE_CONFORMANCE(
    LateTest, BackendsWith(0, 2, [](const BackendCase& one) {
      return IsPolled(one) && IsOneProcess(one);
    }));
COMMSCHED_INSTANTIATE_CONFORMANCE(AskedLateTest, BackendsWith(0, 3, IsAsked));
COMMSCHED_INSTANTIATE_CONFORMANCE(LatePeersTest,
                                  BackendsWith(COMMSCHED_BACKEND_P2P, 2,
                                               IsAsked));
COMMSCHED_INSTANTIATE_CONFORMANCE(LateHostsTest, ThreeHosts());
COMMSCHED_INSTANTIATE_CONFORMANCE(LateTreeTest,
                                  BackendsWith(0, 4, [](const auto& one) {
                                    return one.name == "ucx_tree_n4";
                                  }));
// Where nobody hands on what waits for others.
COMMSCHED_INSTANTIATE_CONFORMANCE(LateRootTest,
                                  BackendsWith(0, 4, [](const auto& one) {
                                    return one.name == "ucx_n4" ||
                                           one.name == "ucx_net_n4";
                                  }));
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LateRootTest);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LateTest);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AskedLateTest);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LatePeersTest);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LateHostsTest);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LateTreeTest);

}  // namespace
}  // namespace commsched
