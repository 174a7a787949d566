// How communicators of NCCL end when a session has failed: all of a rank in one
// group, and nothing is left.
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "comm/plugin/registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/cuda/gpu_rig.h"
#include "test/cuda/reduction_step.h"
#include "test/fakes/gpu/fake_gpu.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::GpuRig;
using test::ReductionStep;

constexpr int kRanks = 3;
constexpr int kAxes = 2;

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

INSTANTIATE_TEST_SUITE_P(Versions, CudaAbortTest,
                         testing::Values(21903, 22706, 22809),
                         [](const auto& info) {
                           return absl::StrCat("nccl", info.param);
                         });

}  // namespace
}  // namespace commsched
