// Random programs of sessions and channels over several groups and worlds on
// stand-in devices: test/channel/random_run.h says what of them must end, and
// how.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "session/backend_model.h"
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
using test::RandomProgram;
using test::RandomRun;
using test::RankOp;

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

// So many programs at a scale of 100; 400 at 1,000, which scripts/test --all
// runs.
constexpr int kNumLegal = 40;

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

}  // namespace
}  // namespace commsched
