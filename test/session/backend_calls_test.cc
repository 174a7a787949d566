// What a session asks of a backend's table around its launches.
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/mutex.h"
#include "comm/plugin/registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "session/session.h"
#include "test/session/bucket_graph.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"
#include "trace/recorder.h"

namespace commsched {
namespace {

using test::BucketGraph;
using test::MakeBuckets;
using test::RunStep;
using test::SessionRig;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kCallers = 2;
constexpr int kCalledBuckets = 3;

// What the backend below was asked. Of the test that runs.
struct BackendCalls {
  Mutex mu;
  std::vector<commsched_launch_t> expected ABSL_GUARDED_BY(mu);
  std::vector<commsched_launch_t> launched ABSL_GUARDED_BY(mu);
  std::atomic<int> registered{0}, unregistered{0};
  std::atomic<int> looks_left{0};  // Until a communicator is ready.
  std::atomic<int> asking{0};      // Members created with asks_starts.
  std::atomic<bool> ends_in_time{true};
  // Not 0: what is expected takes so many looks to connect.
  std::atomic<int> looks_at_expect{0};
};
BackendCalls* calls = nullptr;
commsched_backend_t below;

commsched_status_t CreateBelow(void* rank, const commsched_comm_desc_t* desc,
                               void** out_comm, char* message,
                               uint64_t message_size) {
  calls->asking += static_cast<int>(desc->asks_starts);
  return below.comm_create(rank, desc, out_comm, message, message_size);
}

uint32_t NoStarts(void*, commsched_launch_start_t*, uint32_t) { return 0; }

commsched_status_t ExpectBelow(void* comm, const commsched_launch_t* launches,
                               uint32_t num_launches, char* message,
                               uint64_t message_size) {
  {
    MutexLock lock(&calls->mu);
    calls->expected.insert(calls->expected.end(), launches,
                           launches + num_launches);
  }
  if (calls->looks_at_expect != 0) {
    calls->looks_left = calls->looks_at_expect.load();
  }
  return below.comm_expect(comm, launches, num_launches, message, message_size);
}

commsched_status_t LaunchBelow(void* comm, const commsched_launch_t* launch,
                               uint32_t request, commsched_stream_t stream,
                               char* message, uint64_t message_size) {
  {
    MutexLock lock(&calls->mu);
    calls->launched.push_back(*launch);
  }
  return below.launch(comm, launch, request, stream, message, message_size);
}

commsched_status_t Register(void*, void* const*, uint32_t, void*, uint64_t,
                            void** out_handle, char*, uint64_t) {
  calls->registered.fetch_add(1);
  *out_handle = calls;
  return COMMSCHED_OK;
}

void Unregister(void*, void* handle) {
  EXPECT_EQ(handle, calls);
  calls->unregistered.fetch_add(1);
}

commsched_status_t Ready(void*, uint32_t* out_ready, char* message,
                         uint64_t message_size) {
  *out_ready = calls->looks_left.fetch_sub(1) <= 1 ? 1 : 0;
  if (*out_ready == 0) {
    std::strncpy(message, "rank 7 has no card", message_size);
  }
  return COMMSCHED_OK;
}

commsched_status_t Destroy(void* comm, int64_t deadline_ns, char* message,
                           uint64_t message_size) {
  const commsched_status_t code =
      below.comm_destroy(comm, deadline_ns, message, message_size);
  if (calls->ends_in_time) return code;
  std::strncpy(message, "the card is stuck", message_size);
  return COMMSCHED_DEADLINE_EXCEEDED;
}

// What is logged while it lives.
class LogText {
 public:
  LogText() {
    SetLogSink({[](void* self, LogLevel, absl::string_view line) {
                  auto* const to = static_cast<LogText*>(self);
                  MutexLock lock(&to->mu_);
                  to->text_.append(line.data(), line.size());
                },
                this});
  }
  ~LogText() { SetLogSink({nullptr, nullptr}); }
  std::string Get() const {
    MutexLock lock(&mu_);
    return text_;
  }

 private:
  mutable Mutex mu_;
  std::string text_ ABSL_GUARDED_BY(mu_);
};

class BackendCallsTest : public testing::Test {
 protected:
  BackendCallsTest() : made_(MakeBuckets(kCallers, kCalledBuckets, 8)) {
    calls = &calls_;
    below = *PluginRegistry::Process().Backend("inproc").value();
    table_ = below;
    table_.comm_create = &CreateBelow;
    table_.launch = &LaunchBelow;
    table_.comm_destroy = &Destroy;
    table_.comm_ready = &Ready;
    table_.comm_expect = &ExpectBelow;
    table_.mem_register = &Register;
    table_.mem_unregister = &Unregister;
  }

  SessionRig& rig() {
    if (rig_ == nullptr) {
      WorldSpec world = test::Ranks(kCallers);
      world.table = &table_;
      rig_ = std::make_unique<SessionRig>(world, made_.graph, PlanOptions{});
    }
    return *rig_;
  }

  // Two steps on every rank.
  void Run() {
    for (const absl::Status& status :
         rig().RunSessions([&](Session&session, int rank) {
           const absl::Status first = RunStep(session, rig(), made_, rank);
           return first.ok() ? RunStep(session, rig(), made_, rank) : first;
         })) {
      EXPECT_OK(status);
    }
  }

  // Sessions, traced or not, of ranks that do nothing.
  void Create(bool traced) {
    for (const absl::Status& status :
         rig().RunRanks([&](int rank) -> absl::Status {
           Recorder recorder(1024);
           SessionSpec spec = rig().Spec(rank);
           if (traced) spec.recorder = &recorder;
           return Session::Create(spec).status();
         })) {
      EXPECT_OK(status);
    }
  }

  BackendCalls calls_;
  commsched_backend_t table_;
  const BucketGraph made_;
  std::unique_ptr<SessionRig> rig_;
};

TEST_F(BackendCallsTest, LaunchesAreThoseThatWereAnnounced) {
  Run();
  MutexLock lock(&calls_.mu);
  const size_t per_step = rig().plan()->launches.size();
  ASSERT_EQ(calls_.expected.size(), kCallers * per_step);
  ASSERT_EQ(calls_.launched.size(), 2 * kCallers * per_step);
  std::vector<uint64_t> num_of_step(2);
  for (const commsched_launch_t& launch : calls_.launched) {
    EXPECT_EQ(launch.struct_size, sizeof(launch));
    ASSERT_LT(launch.step, 2u);
    ++num_of_step[launch.step];
    // Members are those of the rank: one of the two lists has them.
    ASSERT_LT(launch.slot, per_step);
    bool found = false;
    for (size_t rank = 0; rank < kCallers; ++rank) {
      const commsched_launch_t& expected =
          calls_.expected[rank * per_step + launch.slot];
      EXPECT_EQ(launch.key, expected.key);
      EXPECT_EQ(launch.kind, expected.kind);
      found |= launch.members == expected.members;
    }
    EXPECT_TRUE(found);
  }
  EXPECT_THAT(num_of_step,
              ElementsAre(kCallers * per_step, kCallers * per_step));
}

// A backend may have to connect what it is told to expect.
TEST_F(BackendCallsTest, AfterTheLaunchesItIsAskedAgainWhetherItIsReady) {
  calls_.looks_at_expect = 10;
  Create(/*traced=*/false);
  EXPECT_LE(calls_.looks_left, 0);
}

TEST_F(BackendCallsTest, MemoryIsRegisteredOnceAndGivenBack) {
  Run();
  EXPECT_EQ(calls_.registered, kCallers * kCalledBuckets);
  EXPECT_EQ(calls_.unregistered, calls_.registered);
}

TEST_F(BackendCallsTest, WhoTracesAsksWhenLaunchesStartedIfThatIsToBeHad) {
  Create(/*traced=*/true);
  EXPECT_EQ(calls_.asking, 0);
  table_.comm_starts = &NoStarts;
  Create(/*traced=*/false);
  EXPECT_EQ(calls_.asking, 0);
  Create(/*traced=*/true);
  EXPECT_EQ(calls_.asking, kCallers);
}

TEST_F(BackendCallsTest, ACommunicatorIsLookedAtUntilItIsReady) {
  calls_.looks_left = 10;
  Run();
  EXPECT_LE(calls_.looks_left, 0);
}

TEST_F(BackendCallsTest, ACommunicatorThatIsNeverReadyIsAnErrorOfAllRanks) {
  const LogText log;  // Each warns after half of the time.
  calls_.looks_left = 1 << 30;
  const std::vector<absl::Status> statuses =
      rig().RunRanks([&](int rank) -> absl::Status {
        SessionSpec spec = rig().Spec(rank);
        spec.launch_timeout_ns = 300'000'000;
        return Session::Create(spec).status();
      });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("communicator of axis dp: backend 'inproc': rank "));
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr(" is not connected after 300 ms: rank 7 has no card"));
  }
  for (int rank = 0; rank < kCallers; ++rank) {
    EXPECT_THAT(log.Get(), HasSubstr(absl::StrCat("session: rank ", rank,
                                                  " has waited ")));
  }
  EXPECT_THAT(log.Get(), HasSubstr(" of 300 ms for the communicator of axis "
                                   "dp: rank 7 has no card; it looked "));
}

// They would look for that rank until their deadline.
TEST_F(BackendCallsTest, WhoWaitsToConnectLearnsThatARankCannotBeOpened) {
  const LogText log;
  calls_.looks_left = 1 << 30;
  table_.rank_open = [](void* instance,
                        const commsched_backend_rank_desc_t* desc, void** out,
                        char* message, uint64_t size) -> commsched_status_t {
    if (desc->world_rank == 0) {
      return below.rank_open(instance, desc, out, message, size);
    }
    std::strncpy(message, "no card", size);
    return COMMSCHED_UNAVAILABLE;
  };
  table_.comm_ready = [](void* comm, uint32_t* out_ready, char* message,
                         uint64_t size) -> commsched_status_t {
    const commsched_status_t failed = below.comm_status(comm, message, size);
    return failed != COMMSCHED_OK ? failed
                                  : Ready(comm, out_ready, message, size);
  };
  const std::vector<absl::Status> statuses = rig().RunRanks(
      [&](int rank) { return Session::Create(rig().Spec(rank)).status(); });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kUnavailable, "rank 1: no card"));
  }
  EXPECT_THAT(log.Get(), HasSubstr("session: rank 0 ends its wait for "
                                   "communicators as another rank has failed"));
}

TEST_F(BackendCallsTest, ARankThatCannotBeOpenedIsAnErrorOfAllRanks) {
  table_.rank_open = [](void* instance,
                        const commsched_backend_rank_desc_t* desc, void** out,
                        char* message, uint64_t size) -> commsched_status_t {
    if (desc->world_rank == 0) {
      return below.rank_open(instance, desc, out, message, size);
    }
    std::strncpy(message, "no card", size);
    return COMMSCHED_UNAVAILABLE;
  };
  const std::vector<absl::Status> statuses = rig().RunRanks(
      [&](int rank) { return Session::Create(rig().Spec(rank)).status(); });
  EXPECT_THAT(statuses[1],
              StatusIs(absl::StatusCode::kUnavailable, "rank 1: no card"));
  EXPECT_THAT(statuses[0], StatusIs(absl::StatusCode::kFailedPrecondition,
                                    "rank 1: no card"));
}

// What may still be written to is not given to somebody else, and who owns it
// learns which it is.
TEST_F(BackendCallsTest, MemoryThatIsStillInUseIsKeptAndNamed) {
  const LogText log;
  calls_.ends_in_time = false;
  Run();
  EXPECT_THAT(log.Get(),
              HasSubstr("launches may still be under way: the card is stuck"));
  EXPECT_THAT(log.Get(), HasSubstr("these buffers must not be: 'grad0'"));
}

}  // namespace
}  // namespace commsched
