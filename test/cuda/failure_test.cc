// What goes wrong on a device, or in NCCL, is an error of all ranks and a hang
// of none.
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/cuda/gpu_rig.h"
#include "test/cuda/reduction_step.h"
#include "test/fakes/gpu/fake_gpu.h"
#include "test/support/await.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::GpuRig;
using test::ReductionStep;

constexpr int kRanks = 3;
constexpr int kInvalidValue = 1;
constexpr int kIllegalAddress = 700;  // Sticks.
constexpr int kNcclUnhandled = 1;

// Writes and all-reduces a buffer.
ReductionStep MakeStep() { return {kRanks, Ownership::kBound}; }

// What a session takes of devices and of NCCL.
struct Held {
  uint64_t comms = fake_gpu_num_comms();
  uint64_t streams = fake_gpu_num_streams();
  uint64_t events = fake_gpu_num_events();
  uint64_t bytes = fake_gpu_allocated_bytes();
};

void ExpectNothingMoreHeld(const Held& before, const std::string& after) {
  const Held held;
  EXPECT_EQ(held.comms, before.comms) << after;
  EXPECT_EQ(held.streams, before.streams) << after;
  EXPECT_EQ(held.events, before.events) << after;
  EXPECT_EQ(held.bytes, before.bytes) << after;
}

// Of an error that one call on one rank has returned: all ranks name the call,
// and all but that rank name it, too.
void ExpectOneRankIsNamed(const std::vector<absl::Status>& statuses,
                          const std::string& call) {
  int blamed = -1;
  int num_blaming = 0;
  for (const absl::Status& status : statuses) {
    EXPECT_FALSE(status.ok()) << call;
    EXPECT_TRUE(absl::StrContains(status.message(), call))
        << call << ": " << status;
    for (int rank = 0; rank < static_cast<int>(statuses.size()); ++rank) {
      if (!absl::StrContains(status.message(),
                             absl::StrCat("rank ", rank, ": ")))
        continue;
      EXPECT_TRUE(blamed < 0 || blamed == rank)
          << testing::PrintToString(statuses);
      blamed = rank;
      ++num_blaming;
    }
  }
  EXPECT_GE(num_blaming, static_cast<int>(statuses.size()) - 1)
      << call << ": " << testing::PrintToString(statuses);
}

class CudaFailureTest : public testing::Test {
 protected:
  // Calls of other tests.
  const uint64_t before_ = fake_gpu_num_calls("ncclAllReduce");

  ~CudaFailureTest() override {
    fake_gpu_fail("", 0, 0);
    fake_gpu_async_error(0);
  }

  // All ranks, of which `rank` spoils something before its third step.
  template <typename Spoil>
  std::vector<absl::Status> RunAndSpoil(int spoiler, const Spoil& spoil) {
    const ReductionStep step = MakeStep();
    GpuRig rig(kRanks, step.graph(), {});
    return rig.RunSessions([&](Session& session, int rank) -> absl::Status {
      RETURN_IF_ERROR(RunSteps(&session, step, rig.lane(rank, 0), 2));
      if (rank == spoiler) RETURN_IF_ERROR(spoil(&session));
      return RunSteps(&session, step, rig.lane(rank, 0), 50);
    });
  }
};

TEST_F(CudaFailureTest, AnAbortEndsKernelsThatWait) {
  const auto statuses = RunAndSpoil(1, [](Session* session) {
    session->Abort("enough");
    return absl::OkStatus();
  });
  EXPECT_THAT(statuses[1], StatusIs(absl::StatusCode::kAborted, "enough"));
  for (int rank : {0, 2}) {
    EXPECT_THAT(statuses[rank],
                StatusIs(absl::StatusCode::kAborted, "rank 1: enough"));
  }
}

// Two communicators, whose kernels wait side by side.
TEST_F(CudaFailureTest, AnAbortEndsTheKernelsOfAllCommunicators) {
  const ReductionStep step(kRanks, Ownership::kBound, {"a", "b"});
  PlanOptions options;
  options.num_comm_lanes = 2;
  GpuRig rig(kRanks, step.graph(), options);
  const auto statuses =
      rig.RunSessions([&](Session& session, int rank) -> absl::Status {
        if (rank == 2) {
          // The others wait in both, which were joined and warmed up.
          while (fake_gpu_num_calls("ncclAllReduce") <
                 4 * kRanks + 2 * (kRanks - 1) + before_) {
            std::this_thread::yield();
          }
          session.Abort("enough");
          return session.status();
        }
        return RunSteps(&session, step, rig.lane(rank, 0), 1);
      });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, "enough"));
  }
}

TEST_F(CudaFailureTest, ARankThatDoesNotComeIsADeadlineOfTheOthers) {
  const ReductionStep step = MakeStep();
  GpuRig rig(kRanks, step.graph(), {});
  const auto statuses = RunRanks(kRanks, [&](int rank) -> absl::Status {
    SessionSpec spec = rig.Spec(rank);
    spec.launch_timeout_ns = int64_t{1000} * 1000 * 1000;
    ASSIGN_OR_RETURN(const auto session, Session::Create(spec));
    RETURN_IF_ERROR(RunStep(session.get(), step, rig.lane(rank, 0)));
    if (rank == 2) {
      // Stays, but issues nothing, until the others have given up.
      while (session->status().ok()) std::this_thread::yield();
      return session->status();
    }
    return RunSteps(session.get(), step, rig.lane(rank, 0), 10);
  });
  // Who finds it first is told to the others.
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(std::string(status.message()),
                testing::HasSubstr("is not complete on rank"));
  }
}

TEST_F(CudaFailureTest, AnAsynchronousErrorOfNcclIsFoundWithoutALaunch) {
  const auto statuses = RunAndSpoil(0, [](Session* session) {
    fake_gpu_async_error(6);  // ncclRemoteError
    while (session->status().ok()) std::this_thread::yield();
    return session->status();
  });
  EXPECT_THAT(statuses[0],
              StatusIs(absl::StatusCode::kAborted,
                       "axis dp: asynchronous error: fake NCCL error"));
}

// Nobody calls the session, and nothing fails but the device.
TEST_F(CudaFailureTest, ADeviceThatFailsIsFoundByTheMonitor) {
  const auto statuses = RunAndSpoil(1, [](Session* session) {
    fake_gpu_fail("cuEventQuery", 1, kIllegalAddress);
    while (session->status().ok()) std::this_thread::yield();
    return session->status();
  });
  EXPECT_THAT(statuses[1],
              StatusIs(absl::StatusCode::kInternal, "CUDA device"));
}

// Every call of the step path fails once, at its `n`-th time from then on.
class CudaCallFailsTest
    : public CudaFailureTest,
      public testing::WithParamInterface<std::pair<const char*, int>> {};

TEST_P(CudaCallFailsTest, AllRanksFailAndNoneHangs) {
  const auto [name, code] = GetParam();
  for (uint64_t nth : {1, 2, 5}) {
    const Held before;
    const auto statuses = RunAndSpoil(0, [&](Session* /*session*/) {
      fake_gpu_fail(name, nth, code);
      return absl::OkStatus();
    });
    fake_gpu_fail("", 0, 0);
    ExpectOneRankIsNamed(statuses, name);
    ExpectNothingMoreHeld(before, absl::StrCat(name, " at ", nth));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Calls, CudaCallFailsTest,
    testing::Values(
        std::pair<const char*, int>{"cudaEventRecord", kInvalidValue},
        std::pair<const char*, int>{"cudaStreamWaitEvent", kInvalidValue},
        std::pair<const char*, int>{"cuEventQuery", kInvalidValue},
        std::pair<const char*, int>{"ncclGroupStart", kNcclUnhandled},
        std::pair<const char*, int>{"ncclGroupEnd", kNcclUnhandled},
        std::pair<const char*, int>{"ncclAllReduce", kNcclUnhandled},
        std::pair<const char*, int>{"ncclCommGetAsyncError", kNcclUnhandled}),
    [](const auto& info) { return info.param.first; });

// A call of the driver's that waits for a lock, which somebody holds who waits
// for a kernel, holds up who watches launches.
TEST_F(CudaFailureTest, ADeadlineIsFoundThoughTheMonitorIsCaughtInACall) {
  for (const char* call : {"cuEventQuery", "ncclCommGetAsyncError"}) {
    const ReductionStep step = MakeStep();
    GpuRig rig(kRanks, step.graph(), {});
    rig.set_timeout_ns(int64_t{2} * 1000 * 1000 * 1000);
    rig.set_end_timeout_ns(int64_t{20} * 1000 * 1000 * 1000);
    std::atomic<int> num_told{0};
    test::ExpectAllOk(RunRanks(kRanks, [&](int rank) -> absl::Status {
      ASSIGN_OR_RETURN(const auto session, Session::Create(rig.Spec(rank)));
      fake_gpu_hold(call);
      RETURN_IF_ERROR(RunStep(session.get(), step, rig.lane(rank, 0)));
      const bool is_caught =
          test::Await([] { return fake_gpu_num_held() != 0; });
      EXPECT_TRUE(is_caught) << call;
      EXPECT_TRUE(test::Await([&] { return !session->status().ok(); })) << call;
      ++num_told;
      EXPECT_TRUE(test::Await([&] { return num_told == kRanks; })) << call;
      fake_gpu_hold("");
      EXPECT_THAT(session->status(),
                  StatusIs(absl::StatusCode::kDeadlineExceeded,
                           "in a call of CUDA or NCCL"));
      return absl::OkStatus();
    }));
  }
}

TEST_F(CudaFailureTest, AnErrorThatSticksFailsAllToo) {
  const auto statuses = RunAndSpoil(0, [&](Session* /*session*/) {
    fake_gpu_fail("cudaEventRecord", 1, kIllegalAddress);
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, "CUDA device"));
  }
}

// And every one that makes a session.
class CudaSetUpFailsTest
    : public CudaFailureTest,
      public testing::WithParamInterface<std::pair<const char*, int>> {};

TEST_P(CudaSetUpFailsTest, AllRanksAreRefusedAndNoneHangs) {
  const auto [name, code] = GetParam();
  const ReductionStep step = MakeStep();
  const Held before;
  std::vector<absl::Status> statuses;
  {
    GpuRig rig(kRanks, step.graph(), {});
    // Members that wait in NCCL for one that has failed are let be.
    rig.set_timeout_ns(int64_t{500} * 1000 * 1000);
    fake_gpu_fail(name, 1, code);
    statuses = rig.RunSessions([&](Session& session, int rank) {
      return RunSteps(&session, step, rig.lane(rank, 0), 1);
    });
    fake_gpu_fail("", 0, 0);
  }
  int named = 0;
  for (const absl::Status& status : statuses) {
    EXPECT_FALSE(status.ok()) << name;
    if (absl::StrContains(status.message(), name)) ++named;
  }
  EXPECT_GE(named, 1) << name << ": " << testing::PrintToString(statuses);
  // Those keep what they have until the process ends.
  if (std::string(name) == "ncclCommInitRankConfig") return;
  ExpectNothingMoreHeld(before, name);
}

INSTANTIATE_TEST_SUITE_P(
    Calls, CudaSetUpFailsTest,
    testing::Values(
        std::pair<const char*, int>{"cudaEventCreateWithFlags", 2},
        std::pair<const char*, int>{"cuPointerGetAttributes", 1},
        std::pair<const char*, int>{"cudaDeviceGetStreamPriorityRange", 1},
        std::pair<const char*, int>{"cuMemAlloc", 2},
        std::pair<const char*, int>{"cudaStreamCreateWithPriority", 2},
        std::pair<const char*, int>{"ncclAllReduce", kNcclUnhandled},
        std::pair<const char*, int>{"ncclGetUniqueId", kNcclUnhandled},
        std::pair<const char*, int>{"ncclCommInitRankConfig", kNcclUnhandled}),
    [](const auto& info) { return info.param.first; });

}  // namespace
}  // namespace commsched
