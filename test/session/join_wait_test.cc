// What ranks log that wait for each other until they can be used.
#include "session/join_wait.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/mutex.h"
#include "comm/plugin/registry.h"
#include "commsched/plugin.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "session/communicators.h"
#include "test/support/joined_ranks.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kJoinLimitNs = int64_t{60} * 1000 * 1000 * 1000;

// Lines of the log while it lives.
class LogLines {
 public:
  LogLines() {
    SetLogSink({[](void* self, LogLevel level, absl::string_view line) {
                  EXPECT_EQ(level, LogLevel::kWarning);
                  auto* const to = static_cast<LogLines*>(self);
                  MutexLock lock(&to->mu_);
                  to->lines_.emplace_back(line);
                },
                this});
  }
  ~LogLines() { SetLogSink({nullptr, nullptr}); }
  std::vector<std::string> Get() {
    MutexLock lock(&mu_);
    return lines_;
  }

 private:
  Mutex mu_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mu_);
};

TEST(JoinWaitTest, WhoWaitsForHalfOfItsTimeSaysOnceForWhat) {
  LogLines lines;
  JoinWait wait(/*rank=*/2, /*limit_ns=*/0);  // Half of it is over.
  wait.OnMissing("dp", "rank 3 has not come");
  wait.OnMissing("dp", "rank 3 has not come");
  EXPECT_TRUE(wait.IsOver());
  EXPECT_THAT(lines.Get(),
              ElementsAre(AllOf(
                  HasSubstr("session: rank 2 has waited "),
                  HasSubstr(" of 0 ms for the communicator of axis dp: rank 3 "
                            "has not come; it looked 1 times"))));
}

TEST(JoinWaitTest, WhoHasTimeSaysNothing) {
  LogLines lines;
  JoinWait wait(/*rank=*/2, kJoinLimitNs);
  wait.OnMissing("dp", "rank 3 has not come");
  EXPECT_FALSE(wait.IsOver());
  EXPECT_THAT(lines.Get(), IsEmpty());
}

TEST(JoinWaitTest, WhoFailsAsAnotherHasSaysWhatItLackedLast) {
  LogLines lines;
  JoinWait wait(/*rank=*/2, kJoinLimitNs);
  wait.OnMissing("tp", "rank 1 has not come");
  wait.OnMissing("dp", "rank 3 has not come");
  wait.OnOtherFailed();
  EXPECT_THAT(
      lines.Get(),
      ElementsAre(
          AllOf(HasSubstr("session: rank 2 ends its wait for communicators as "
                          "another rank has failed, after "),
                HasSubstr(" of 60000 ms; it waited for axis dp: rank 3 has not "
                          "come; it looked 3 times, the longest after "))));
}

TEST(JoinWaitTest, WhoHasNotLookedYetSaysSo) {
  LogLines lines;
  JoinWait wait(/*rank=*/2, kJoinLimitNs);
  wait.OnOtherFailed();
  EXPECT_THAT(lines.Get(),
              ElementsAre(HasSubstr(" of 60000 ms; it looked 1 times")));
}

#ifdef COMMSCHED_TEST_UCX
constexpr int kJoining = 4;
constexpr int kAbsent = 3;

// Of the test that runs.
struct Looks {
  commsched_backend_t below = {};
  Mutex mu;
  // By rank: its communicator, and what that has said it waits for.
  std::array<void*, kJoining> comms ABSL_GUARDED_BY(mu) = {};
  std::array<std::string, kJoining> lacks ABSL_GUARDED_BY(mu);
};
Looks* looks = nullptr;

commsched_status_t CreateJoining(void* rank, const commsched_comm_desc_t* desc,
                                 void** out_comm, char* message,
                                 uint64_t message_size) {
  const commsched_status_t code =
      looks->below.comm_create(rank, desc, out_comm, message, message_size);
  MutexLock lock(&looks->mu);
  if (code == COMMSCHED_OK) {
    looks->comms[static_cast<size_t>(desc->rank)] = *out_comm;
  }
  return code;
}

// What the others lack that have got as far as they can without rank kAbsent.
constexpr std::array<const char*, kAbsent> kLastLacks = {
    "rank 2, or one of the 1 that it speaks for, has not said that it has "
    "joined (connected by shared memory)",
    "rank 0 has not said that all have joined (connected by shared memory)",
    "rank 3 has not handed over its shared memory"};

// Rank kAbsent does nothing until all others wait for it, and fails then.
commsched_status_t ReadyBut3(void* comm, uint32_t* out_ready, char* message,
                             uint64_t message_size) {
  size_t rank = 0;
  {
    MutexLock lock(&looks->mu);
    while (looks->comms[rank] != comm) ++rank;
    if (rank == kAbsent) {
      *out_ready = 0;
      if (!std::equal(kLastLacks.begin(), kLastLacks.end(),
                      looks->lacks.begin())) {
        return COMMSCHED_OK;
      }
      std::strncpy(message, "rank 3 gives up", message_size);
      return COMMSCHED_UNAVAILABLE;
    }
  }
  const commsched_status_t code =
      looks->below.comm_ready(comm, out_ready, message, message_size);
  MutexLock lock(&looks->mu);
  if (code == COMMSCHED_OK && *out_ready == 0) looks->lacks[rank] = message;
  return code;
}

// The error is of all; the logs say how far each of them has got.
TEST(JoinWaitTest, RanksThatFailToJoinLogWhatEachOfThemLacks) {
  ASSERT_OK(PluginRegistry::Process().Load(COMMSCHED_TEST_UCX));
  Looks own_looks;
  looks = &own_looks;
  looks->below = *PluginRegistry::Process().Backend("ucx").value();
  commsched_backend_t table = looks->below;
  table.comm_create = &CreateJoining;
  table.comm_ready = &ReadyBut3;
  WorldSpec world;
  world.table = &table;
  JoinedRanks ranks;
  ASSERT_OK(ranks.Join(world, kJoining));
  LogLines lines;
  RunRanks(kJoining, [&](int rank) -> absl::Status {
    SessionSpec spec;
    spec.world = ranks.WorldOf(rank);
    spec.world_rank = rank;
    spec.launch_timeout_ns = kJoinLimitNs;
    spec.groups = {{.axis = "dp", .ranks = {0, 1, 2, 3}, .rank = rank}};
    Communicators communicators(spec.world);
    const absl::Status status =
        communicators.Create(spec, /*requests=*/1, /*reads_starts=*/false);
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kUnavailable, "rank 3 gives up"));
    return status;
  });
  const std::vector<std::string> logged = lines.Get();
  EXPECT_EQ(logged.size(), kLastLacks.size());
  for (int rank = 0; rank < kAbsent; ++rank) {
    EXPECT_THAT(
        logged,
        Contains(AllOf(
            HasSubstr(absl::StrCat("session: rank ", rank, " ends its wait ")),
            HasSubstr(absl::StrCat("it waited for axis dp: ",
                                   kLastLacks[static_cast<size_t>(rank)],
                                   ";")))));
  }
  ranks.Leave();
}
#endif  // COMMSCHED_TEST_UCX

}  // namespace
}  // namespace commsched
