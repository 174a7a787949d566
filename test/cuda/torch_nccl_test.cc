// NCCL of PyTorch and ours in one process.
#include "plugins/nccl/torch_nccl.h"

#include <dlfcn.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "comm/world.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/open_library.h"
#include "test/cuda/gpu_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using nccl::CheckNcclOfTorch;
using nccl::Library;
using testing::AllOf;
using testing::HasSubstr;

// As if PyTorch had been imported: one of those that CMakeLists.txt makes.
class Torch {
 public:
  explicit Torch(const std::string& kind)
      : handle_(dlopen(absl::StrCat(COMMSCHED_TEST_TORCHES, "/", kind,
                                    "/site-packages/torch/lib/libtorch_cuda.so")
                           .c_str(),
                       RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(handle_, nullptr) << dlerror();
  }
  ~Torch() { dlclose(handle_); }
  Torch(const Torch&) = delete;
  Torch& operator=(const Torch&) = delete;

 private:
  void* const handle_;
};

// The stand-in of NCCL 2.28.9, which the backend has loaded by itself.
Library LoadedByUs() {
  Library library;
  library.GetVersion = &ncclGetVersion;
  library.version = 22809;
  library.file = kernels::FileOf(reinterpret_cast<void*>(&ncclGetVersion));
  return library;
}

TEST(TorchNcclTest, WithoutTorchThereIsNothingToSay) {
  EXPECT_TRUE(CheckNcclOfTorch(LoadedByUs()).ok());
}

TEST(TorchNcclTest, ANewerOneThanTorchsIsTaken) {
  const Torch torch("of_2_0");
  EXPECT_TRUE(CheckNcclOfTorch(LoadedByUs()).ok());
}

TEST(TorchNcclTest, AnOlderOneThanTorchsIsRefusedByName) {
  const Torch torch("of_2_99");
  const Outcome outcome = CheckNcclOfTorch(LoadedByUs());
  EXPECT_EQ(outcome.code, COMMSCHED_FAILED_PRECONDITION);
  EXPECT_THAT(outcome.reason,
              AllOf(HasSubstr("PyTorch was installed with NCCL 2.99.1, and "
                              "runs on 2.28.9 in /"),
                    HasSubstr("libcommsched_fake_gpu.so, which commsched had "
                              "loaded before; import torch first")));
}

// PyTorch runs on what somebody else has chosen for it.
TEST(TorchNcclTest, AnOlderOneThatWasThereBeforeIsTaken) {
  const Torch torch("of_2_99");
  Library library = LoadedByUs();
  library.was_loaded = true;
  EXPECT_TRUE(CheckNcclOfTorch(library).ok());
}

// Wheels for CUDA 12 and for 13 put the library in the same place.
TEST(TorchNcclTest, TheFileOfTorchsWheelIsTakenWhateverItsVersion) {
  const Torch torch("of_this_file");
  EXPECT_TRUE(CheckNcclOfTorch(LoadedByUs()).ok());
}

TEST(TorchNcclTest, NcclTwiceInAProcessIsRefusedByName) {
  const Torch torch("has_nccl_within");
  const Outcome outcome = CheckNcclOfTorch(LoadedByUs());
  EXPECT_EQ(outcome.code, COMMSCHED_FAILED_PRECONDITION);
  EXPECT_THAT(
      outcome.reason,
      AllOf(HasSubstr("this process has NCCL twice: 2.27.5 in /"),
            HasSubstr("libtorch_cuda.so of PyTorch, and 2.28.9 in /"),
            HasSubstr("libcommsched_fake_gpu.so of commsched; import torch "
                      "first")));
}

TEST(TorchNcclTest, ARankIsNotOpenedWhereNcclIsThereTwice) {
  WorldSpec spec;
  spec.size = 1;
  spec.table = test::NcclTable();
  spec.devices = {test::FakeDevice(0)};
  const std::shared_ptr<World> world = World::Create(spec).value();
  {
    const Torch torch("has_nccl_within");
    EXPECT_THAT(world->Rank(0).status(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         "this process has NCCL twice"));
  }
  EXPECT_OK(world->Rank(0).status());
}

}  // namespace
}  // namespace commsched
