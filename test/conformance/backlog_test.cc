// More messages than fit where they wait to be taken: who sends them and who is
// to take them may both wait elsewhere, and nobody waits for ever.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "test/conformance/backend_fixture.h"
#include "test/support/await.h"
#include "test/support/launches.h"

namespace commsched {
namespace {

constexpr int64_t kMeetingNs = int64_t{60} * 1000 * 1000 * 1000;

class BacklogTest : public BackendTest {
 protected:
  static constexpr uint32_t kMessages = 2000;

  // Many small messages from rank 0 to rank 1.
  struct Backlog {
    explicit Backlog(int rank) : values(kMessages), members(kMessages) {
      for (uint32_t i = 0; i < kMessages; ++i) {
        values[i] = rank == 0 ? static_cast<int32_t>(i) : -1;
        members[i].input = members[i].output = &values[i];
        members[i].count = 1;
        members[i].peer = 1 - rank;
        members[i].direction = rank == 0 ? COMMSCHED_SEND : COMMSCHED_RECV;
      }
      launch.kind = COMMSCHED_SEND;
      launch.dtype = COMMSCHED_I32;
      launch.num_members = kMessages;
      launch.members = members.data();
    }
    bool HasCome() const {
      for (uint32_t i = 0; i < kMessages; ++i) {
        if (values[i] != static_cast<int32_t>(i)) return false;
      }
      return true;
    }

    std::vector<int32_t> values;
    std::vector<commsched_member_t> members;
    commsched_launch_t launch = {};
  };

  static CommSpec Pair(const std::string& id) {
    return {.id = id, .ranks = {0, 1}, .max_members = kMessages};
  }

  // Waits for what rank 0 or 1 has launched, but not for ever.
  static absl::Status AwaitDone(CommDriver* comm) {
    absl::Status failure;
    const bool done = test::Await([&] {
      const absl::StatusOr<commsched_launch_result_t> polled = comm->Poll();
      failure = polled.status();
      return !polled.ok() || polled->done == 1;
    });
    return done ? failure : absl::DeadlineExceededError("nobody takes it");
  }

  absl::Status Meet(const std::string& key, int rank) {
    return WorldOf(rank)
        ->meeting()
        ->AllGather(key, rank, "here", kMeetingNs)
        .status();
  }
};

// One thread is both ranks, so that each gets on when the test says so.
class ReadyBacklogTest : public BacklogTest {};

// From then on it may wait in a meeting, or compute, and make no progress.
TEST_P(ReadyBacklogTest, WhoIsReadyHasToldTheOthers) {
  CommDriver first[2], second[2];
  const auto look = [](CommDriver& comm) {
    const absl::StatusOr<bool> ready = comm.LookReady();
    EXPECT_OK(ready);
    return ready.ok() && *ready;
  };
  const auto both_ready = [&](CommDriver* comms) {
    const bool one = look(comms[0]);
    return look(comms[1]) && one;
  };
  for (const int rank : {0, 1}) {
    ASSERT_OK(first[rank].Create(WorldOf(rank), Pair("first"), rank));
  }
  ASSERT_TRUE(test::Await([&] { return both_ready(first); }));
  for (const int rank : {0, 1}) {
    ASSERT_OK(second[rank].Create(WorldOf(rank), Pair("second"), rank));
  }
  EXPECT_FALSE(look(second[1]));  // Has said that it has joined.
  Backlog sent(0), received(1);
  ASSERT_OK(first[0].Launch(sent.launch));
  if (look(second[0])) {
    // Then rank 1 needs nothing more of it.
    bool is_ready = false;
    for (int i = 0; i < 10'000 && !is_ready; ++i) is_ready = look(second[1]);
    EXPECT_TRUE(is_ready);
  }
  ASSERT_TRUE(test::Await([&] { return both_ready(second); }));
  ASSERT_OK(first[1].Launch(received.launch));
  ASSERT_OK(AwaitDone(&first[1]));
  ASSERT_OK(AwaitDone(&first[0]));
  EXPECT_TRUE(received.HasCome());
}

TEST_P(BacklogTest, WhoWaitsInAMeetingTakesWhatItIsSent) {
  for (const absl::Status& status : OnRanks([&](int rank) -> absl::Status {
         if (rank > 1) return Meet("taken", rank);
         CommDriver comm;
         Backlog backlog(rank);
         absl::Status status = comm.Create(WorldOf(rank), Pair("taken"), rank);
         if (status.ok()) status = comm.Launch(backlog.launch);
         // Rank 0 comes when all is gone.
         if (status.ok() && rank == 0) status = AwaitDone(&comm);
         const absl::Status met = Meet("taken", rank);
         if (!status.ok() || !met.ok()) return status.ok() ? met : status;
         return rank == 0 ? status : AwaitDone(&comm);
       })) {
    EXPECT_OK(status);
  }
}

TEST_P(BacklogTest, WhatARankHasSentGoesOutWhileItWaitsInAMeeting) {
  for (const absl::Status& status : OnRanks([&](int rank) -> absl::Status {
         if (rank > 1) return Meet("sent", rank);
         CommDriver comm;
         Backlog backlog(rank);
         absl::Status status = comm.Create(WorldOf(rank), Pair("sent"), rank);
         if (status.ok()) status = comm.Launch(backlog.launch);
         // Rank 1 comes when all has arrived.
         if (status.ok() && rank == 1) status = AwaitDone(&comm);
         const absl::Status met = Meet("sent", rank);
         if (!status.ok() || !met.ok()) return status.ok() ? met : status;
         EXPECT_TRUE(backlog.HasCome());
         return rank == 1 ? status : AwaitDone(&comm);
       })) {
    EXPECT_OK(status);
  }
}

bool IsProcesses(const BackendCase& one) { return one.processes; }
bool IsThreadsAsProcesses(const BackendCase& one) {
  return one.processes && !one.own_process;
}

COMMSCHED_INSTANTIATE_CONFORMANCE(BacklogTest,
                                  BackendsWith(COMMSCHED_BACKEND_P2P, 2,
                                               IsProcesses));
COMMSCHED_INSTANTIATE_CONFORMANCE(ReadyBacklogTest,
                                  BackendsWith(COMMSCHED_BACKEND_P2P, 2,
                                               IsThreadsAsProcesses));
// Without UCX there is none such.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BacklogTest);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ReadyBacklogTest);

}  // namespace
}  // namespace commsched
