// How communicators of NCCL end when a session has failed: all of a rank in one
// group, and nothing is left.
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "comm/plugin/registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/cuda/capture_rig.h"
#include "test/cuda/gpu_rig.h"
#include "test/cuda/reduction_step.h"
#include "test/fakes/gpu/fake_gpu.h"
#include "test/support/await.h"
#include "test/support/comm_driver.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::GpuRig;
using test::ReductionStep;

constexpr int kRanks = 3;
constexpr int kAxes = 2;
constexpr int kRevokes = 22807;  // The first NCCL with ncclCommRevoke().
constexpr std::chrono::milliseconds kToFree{50};

// Two axes, a gradient each.
ReductionStep MakeStep() { return {kRanks, Ownership::kBound, {"dp", "tp"}}; }

PlanOptions Lanes(uint32_t num_lanes) {
  PlanOptions options;
  options.num_comm_lanes = num_lanes;
  return options;
}

// With NCCL of the version that a test names.
class CudaAbortTest : public testing::TestWithParam<int> {
 protected:
  CudaAbortTest() : version_before_(fake_nccl_version(GetParam())) {
    LoadAgain();
    aborts_before_ = fake_gpu_num_calls("ncclCommAbort");
    reduces_before_ = fake_gpu_num_calls("ncclAllReduce");
  }
  ~CudaAbortTest() override {
    fake_gpu_fail("", 0, 0);
    fake_nccl_version(version_before_);
    LoadAgain();
  }

  // The plugin looks at its library whenever it is loaded.
  static void LoadAgain() {
    (void)test::NcclTable();
    PluginRegistry registry({});
    EXPECT_OK(registry.Load(COMMSCHED_TEST_NCCL));
  }
  uint64_t aborts() const {
    return fake_gpu_num_calls("ncclCommAbort") - aborts_before_;
  }
  // Returns once all ranks but one have enqueued the kernels of a step, which
  // wait for that rank.
  void AwaitOthers() const {
    // To join, and of what is launched.
    constexpr uint64_t kWarmUps = 2 * kAxes * kRanks;
    constexpr uint64_t kAll = kWarmUps + kAxes * (kRanks - 1);
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::seconds(30);
    uint64_t num = 0;
    while ((num = fake_gpu_num_calls("ncclAllReduce") - reduces_before_) <
           kAll) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline)
          << num << " of " << kAll << " all-reduces were enqueued in 30 s";
      std::this_thread::yield();
    }
  }
  // A step that all ranks but one take, and which that one aborts.
  void AbortAStep(const PlanOptions& options) {
    const ReductionStep step = MakeStep();
    GpuRig rig(kRanks, step.graph(), options);
    const auto statuses =
        rig.RunSessions([&](Session& session, int rank) -> absl::Status {
          if (rank != 2) {
            return RunSteps(&session, step, rig.lane(rank, 0), 1);
          }
          AwaitOthers();
          session.Abort("enough");
          return session.status();
        });
    for (const absl::Status& status : statuses) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, "enough"));
    }
  }

 private:
  const int version_before_;
  uint64_t aborts_before_ = 0;
  uint64_t reduces_before_ = 0;
};

// To free one communicator waits for the device, and so for the kernels of the
// other one, behind it or beside it.
TEST_P(CudaAbortTest, AllKernelsEndBeforeACommunicatorIsFreed) {
  for (const uint32_t num_lanes : {1, kAxes}) {
    const uint64_t before = aborts();
    AbortAStep(Lanes(num_lanes));
    EXPECT_EQ(aborts() - before, uint64_t{kAxes * kRanks});
    EXPECT_EQ(fake_gpu_num_comms(), 0u);
  }
}

// Members that wait in the warm-up for one that has failed get on at once, not
// at their deadline, which is a minute away.
TEST_P(CudaAbortTest, AFailureInTheWarmUpEndsThatOfTheOthers) {
  const ReductionStep step = MakeStep();
  const uint64_t streams = fake_gpu_num_streams();
  const uint64_t events = fake_gpu_num_events();
  std::vector<absl::Status> statuses;
  {
    GpuRig rig(kRanks, step.graph(), Lanes(kAxes));
    rig.set_timeout_ns(int64_t{60} * 1000 * 1000 * 1000);
    fake_gpu_fail("ncclAllReduce", 2, /*ncclInternalError*/ 3);
    statuses = rig.RunSessions([&](Session& session, int rank) {
      return RunStep(&session, step, rig.lane(rank, 0));
    });
  }
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(std::string(status.message()),
                testing::HasSubstr("ncclAllReduce"));
  }
  EXPECT_EQ(fake_gpu_num_comms(), 0u);
  EXPECT_EQ(fake_gpu_num_events(), events);
  EXPECT_EQ(fake_gpu_num_streams(), streams);
}

// Two ranks with a kernel each, which waits for rank 2. A failure of one is
// told to no other.
class Hanging {
 public:
  Hanging() : step_(MakeStep()), rig_(kRanks, step_.graph(), {}) {
    test::ExpectAllOk(RunRanks(kRanks, [&](int rank) -> absl::Status {
      memory_[rank] = std::make_unique<test::DeviceMemory>(
          test::FakeDevice(rank), sizeof(float));
      CommSpec spec;
      spec.scope = 1 + static_cast<uint64_t>(rank);
      RETURN_IF_ERROR(
          drivers_[rank].Create(rig_.world().get(), std::move(spec), rank));
      RETURN_IF_ERROR(drivers_[rank].LaunchAndWait(Sum(rank)));
      return rank == 2 ? absl::OkStatus() : drivers_[rank].Launch(Sum(rank));
    }));
    EXPECT_TRUE(test::Await([] { return fake_nccl_num_running() == 2; }));
  }
  ~Hanging() {
    for (int rank = 0; rank < kRanks; ++rank) Abort(rank);
    for (CommDriver& driver : drivers_) driver.Destroy();
  }

  void Abort(int rank) { drivers_[rank].Abort(COMMSCHED_ABORTED, "enough"); }
  void Destroy(int rank) { drivers_[rank].Destroy(); }

 private:
  const commsched_launch_t& Sum(int rank) {
    members_[rank].input = memory_[rank]->address();
    members_[rank].output = memory_[rank]->address();
    members_[rank].count = 1;
    commsched_launch_t& launch = launches_[rank];
    launch.struct_size = sizeof(launch);
    launch.kind = COMMSCHED_ALL_REDUCE;
    launch.dtype = COMMSCHED_F32;
    launch.num_members = 1;
    launch.members = &members_[rank];
    return launch;
  }

  const ReductionStep step_;
  GpuRig rig_;
  std::unique_ptr<test::DeviceMemory> memory_[kRanks];
  commsched_member_t members_[kRanks] = {};
  commsched_launch_t launches_[kRanks] = {};
  CommDriver drivers_[kRanks];
};

// "peers can still access [the] memory" (NVIDIA/nccl, issue 863). An older NCCL
// frees in the call that ends kernels.
TEST_P(CudaAbortTest, NothingIsFreedUnderTheKernelOfAnotherMember) {
  if (GetParam() < kRevokes) GTEST_SKIP() << "it has no ncclCommRevoke";
  using Clock = std::chrono::steady_clock;
  // A try that takes as long as a member is waited for says nothing.
  const Clock::time_point begin = Clock::now();
  for (bool is_over = false; !is_over;) {
    const uint64_t freed = fake_nccl_num_freed_under_kernels();
    uint64_t num_comms = 0;
    {
      Hanging ranks;
      const Clock::time_point aborted = Clock::now();
      ranks.Abort(0);
      EXPECT_TRUE(test::Await([] { return fake_nccl_num_running() == 1; }));
      // Longer than it would take to free what there is.
      const Clock::time_point until = Clock::now() + kToFree;
      EXPECT_TRUE(test::Await([until] { return Clock::now() > until; }));
      num_comms = fake_gpu_num_comms();
      ranks.Abort(1);
      ranks.Abort(2);
      EXPECT_TRUE(test::Await([] { return fake_nccl_num_running() == 0; }));
      is_over = Clock::now() - aborted < std::chrono::milliseconds(800);
    }
    ASSERT_LT(Clock::now() - begin, std::chrono::minutes(1));
    if (!is_over) continue;
    EXPECT_EQ(num_comms, uint64_t{kRanks});
    EXPECT_EQ(fake_nccl_num_freed_under_kernels(), freed);
    EXPECT_EQ(fake_gpu_num_comms(), 0u);
  }
}

// One that is lost, or stopped.
TEST_P(CudaAbortTest, AMemberThatNeverEndsIsWaitedForForASecond) {
  if (GetParam() < kRevokes) GTEST_SKIP() << "it has no ncclCommRevoke";
  Hanging ranks;
  ranks.Abort(0);
  ranks.Destroy(0);  // Has no deadline.
  EXPECT_EQ(fake_gpu_num_comms(), uint64_t{kRanks - 1});
}

// The next launch of a graph with a revoked one would end the process.
TEST_P(CudaAbortTest, OneThatIsInGraphsIsNotRevoked) {
  const uint64_t revokes = fake_gpu_num_calls("ncclCommRevoke");
  const test::CaptureStep step(kRanks);
  GpuRig rig(kRanks, step.graph, {});
  rig.RunSessions([&](Session& session, int number) -> absl::Status {
    test::CaptureRank rank(step, &session, &rig, number);
    RETURN_IF_ERROR(rank.RunPlain(1));
    RETURN_IF_ERROR(rank.Capture());
    RETURN_IF_ERROR(rank.Replay(2));
    RETURN_IF_ERROR(session.Drain());
    if (number == 1) session.Abort("enough");
    EXPECT_TRUE(test::Await([&] { return !session.status().ok(); }));
    return session.status();
  });
  EXPECT_EQ(fake_gpu_num_calls("ncclCommRevoke"), revokes);
}

INSTANTIATE_TEST_SUITE_P(Versions, CudaAbortTest,
                         testing::Values(21903, 22706, 22809),
                         [](const auto& info) {
                           return absl::StrCat("nccl", info.param);
                         });

}  // namespace
}  // namespace commsched
