// Which image of the kernels is taken.
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda_images.h"
#include "kernels/cuda_kernels.h"
#include "test/fakes/gpu/fake_gpu.h"

namespace commsched {
namespace {

using kernels::KernelImage;
using testing::AllOf;
using testing::HasSubstr;

// The header of a cubin, as compilers of CUDA 12 or 13 write it.
struct Cubin {
  Cubin(int capability, int cuda) {
    const bool of_13 = cuda == 13;
    bytes = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0x33, uint8_t(of_13 ? 8 : 7)};
    const auto flags = static_cast<uint32_t>(capability) << (of_13 ? 8 : 0);
    std::memcpy(&bytes[0x30], &flags, sizeof(flags));
  }
  std::array<uint8_t, 64> bytes = {};
};

class KernelImagesTest : public testing::Test {
 protected:
  ~KernelImagesTest() override {
    fake_gpu_compute_capability(capability_);
    fake_cuda_driver_version(driver_);
  }

  // What is said on such a device and driver; `taken_` is the image.
  std::string Load(int capability, int driver,
                   std::span<const KernelImage> images) {
    fake_gpu_compute_capability(capability);
    fake_cuda_driver_version(driver);
    kernels::CudaApi api;
    kernels::CudaKernels loaded;
    std::string why = api.Load();
    if (why.empty()) why = loaded.Load(&api, images);
    taken_ = loaded.image();
    return why;
  }

  std::string taken_;
  const int capability_ = fake_gpu_compute_capability(90);
  const int driver_ = fake_cuda_driver_version(13000);
};

const Cubin kOf13For100(100, 13);
const Cubin kOf13For90(90, 13);
const Cubin kOf12For90(90, 12);
const Cubin kOf12For80(80, 12);
const KernelImage kFourImages[] = {
    {"13 for 100", kOf13For100.bytes.data(), 13000},
    {"13 for 90", kOf13For90.bytes.data(), 13000},
    {"12 for 90", kOf12For90.bytes.data(), 12040},
    {"12 for 80", kOf12For80.bytes.data(), 12040},
};

TEST_F(KernelImagesTest, TheNewestThatIsForDeviceAndDriverIsTaken) {
  struct Case {
    int capability, driver;
    const char* taken;
  };
  for (const Case& each :
       {Case{100, 13000, "13 for 100"}, Case{90, 13000, "13 for 90"},
        Case{90, 12040, "12 for 90"}, Case{80, 12060, "12 for 80"},
        Case{86, 13000, "12 for 80"}}) {
    EXPECT_EQ(Load(each.capability, each.driver, kFourImages), "");
    EXPECT_EQ(taken_, each.taken) << each.capability << ", " << each.driver;
  }
}

// An image of another device loads; that it has no kernels is found later.
TEST_F(KernelImagesTest, WhereNoneWillDoTheErrorSaysWhyAndTheOldestDriver) {
  EXPECT_THAT(
      Load(75, 12040, kFourImages),
      AllOf(HasSubstr("driver, of CUDA 12.4, take no image of the kernels"),
            HasSubstr("the oldest driver that one is for is of CUDA 12.4; "),
            HasSubstr("13 for 100: cuLibraryLoadData: "), HasSubstr("(222)"),
            HasSubstr("12 for 80: cuKernelGetFunction: "), HasSubstr("(209)")));
  EXPECT_EQ(taken_, "");
}

TEST_F(KernelImagesTest, ThoseOfTheBuildAreForAnH100) {
  EXPECT_EQ(Load(90, CUDA_VERSION, kernels::KernelImages()), "");
  EXPECT_EQ(taken_, "nvcc's");
}

TEST_F(KernelImagesTest,
       OnADriverOf12TheBuildTakesThatOf12OrSaysThatItHasNone) {
  const auto images = kernels::KernelImages();
  if (images.front().least_driver <= 12040) {
    GTEST_SKIP() << "nvcc is of CUDA 12 itself";
  }
  const std::string why = Load(80, 12040, images);
  if (images.size() > 1) {
    EXPECT_EQ(why, "");
    EXPECT_EQ(taken_, "CUDA 12.4's for sm_80");
  } else {
    EXPECT_THAT(why, AllOf(HasSubstr("that one is for is of CUDA 13.0; "),
                           HasSubstr("(222)")));
  }
}

}  // namespace
}  // namespace commsched
