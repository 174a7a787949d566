// Random programs of sessions and channels over several groups and worlds on
// stand-in devices: test/channel/random_run.h says what of them must end, and
// how.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "session/backend_model.h"
#include "test/channel/random_fault.h"
#include "test/channel/random_program.h"
#include "test/channel/random_run.h"
#include "test/cuda/device_channels.h"
#include "test/cuda/gpu_rig.h"
#include "test/support/property.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::DescribeSeed;
using test::DeviceMemory;
using test::FakeDevice;
using test::OnDevice;
using test::ProgramPlace;
using test::RandomFault;
using test::RandomGroup;
using test::RandomProgram;
using test::RandomRun;
using test::RankOp;
using testing::HasSubstr;
using testing::IsSubsetOf;

// Ranks on a device each. Every group and session has a lane of its own, since
// their threads launch in any order.
class DevicePlace : public ProgramPlace {
 public:
  explicit DevicePlace(int size) {
    WorldSpec spec;
    spec.size = size;
    spec.table = test::NcclTable();
    spec.backend_config = "lanes=16";
    for (int rank = 0; rank < size; ++rank) {
      spec.devices.push_back(FakeDevice(rank));
    }
    world_ = World::Create(spec).value();
  }

  std::shared_ptr<World> WorldOf(int /*rank*/) override { return world_; }

  PlanOptions Options() override {
    PlanOptions options;
    options.backend = ModelOf(*test::NcclTable());
    return options;
  }

  void Place(int rank, RankOp* op) override {
    Point(op);
    if (!op->input.empty()) {
      op->op.input = Have(rank, op->input)->at();
    }
    if (op->output.empty()) return;
    const auto output = Have(rank, op->output);
    op->op.output = output->at();
    op->fetch = [output](std::vector<int32_t>* to) { *to = output->Get(); };
  }

  void Bind(int rank, SessionSpec* spec) override {
    for (auto& bound : spec->bindings) {
      auto memory =
          std::make_shared<DeviceMemory>(FakeDevice(rank), bound.bytes);
      bound.address = memory->address();
      const MutexLock lock(&mu_);
      memory_.push_back(std::move(memory));
    }
  }

  float* Look(void* bound) override { return test::Peek(bound); }

  // A communicator is one of several threads each.
  int64_t DeadlineNs() const override {
    return std::max(int64_t{2'000'000'000}, 2 * ProgramPlace::DeadlineNs());
  }

 private:
  using Values = OnDevice<int32_t>;

  // Kept, since kernels of what has failed may be late.
  std::shared_ptr<Values> Have(int rank, const std::vector<int32_t>& values) {
    auto made = std::make_shared<Values>(FakeDevice(rank), values);
    const MutexLock lock(&mu_);
    memory_.push_back(made);
    return made;
  }

  std::shared_ptr<World> world_;
  Mutex mu_;
  std::vector<std::shared_ptr<void>> memory_ ABSL_GUARDED_BY(mu_);
};

// So many programs at a scale of 100; 500 in all at 1,000, which
// scripts/test --all runs.
constexpr int kNumLegal = 40;
constexpr int kNumFaulty = 10;

TEST(CudaChannelPropertyTest, RandomProgramsEndWithWhatTheyShould) {
  const int cases = test::PropertyCases(kNumLegal);
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = test::PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(DescribeSeed(seed));
    RandomProgram program = test::ProgramOf(seed);
    test::DropTags(&program);
    DevicePlace where(program.size);
    RandomRun run(&where, seed, std::move(program));
    ASSERT_OK(run.Run());
    if (HasFailure()) return;
  }
}

// Members compare what they launch first. Else NCCL compares nothing: what
// differs is waited for, and who has waited for too long says for what.
TEST(CudaChannelPropertyTest, WhoDoesOtherwiseHoldsUpItsGroupAlone) {
  const int cases = test::PropertyCases(kNumFaulty);
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = test::PropertySeed() + static_cast<uint64_t>(i);
    RandomProgram program = test::ProgramOf(seed);
    std::mt19937_64 random(~seed);
    const RandomFault fault = test::InsertFault(
        &random, &program,
        {.has_tags = false, .compares = false, .ends_world = true});
    const RandomGroup group = program.groups[fault.group];
    SCOPED_TRACE(absl::StrCat(
        DescribeSeed(seed), ": ", test::FaultName(fault.kind), " of rank ",
        fault.culprit, " of ", group.size(), " of group ", fault.group));
    DevicePlace where(program.size);
    RandomRun run(&where, seed, std::move(program), fault);
    ASSERT_OK(run.Run());
    std::set<int> guilty;
    for (int rank : fault.guilty) {
      guilty.insert(group.ranks[static_cast<size_t>(rank)]);
    }
    ASSERT_EQ(run.failures().size(), group.ranks.size());
    for (const auto& [rank, failure] : run.failures()) {
      const std::string message(failure.message());
      SCOPED_TRACE(absl::StrCat("rank ", rank, ": ", message));
      const std::string axis = absl::StrCat("axis axis", fault.group);
      EXPECT_THAT(message,
                  failure.code() == absl::StatusCode::kDeadlineExceeded
                      ? HasSubstr(absl::StrCat("of the channel on ", axis))
                      : HasSubstr(absl::StrCat(axis, ", a first launch: ")));
      EXPECT_THAT(test::Blamed(message), IsSubsetOf(guilty));
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace commsched
