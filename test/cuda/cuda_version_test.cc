// Which CUDA runtimes are taken.
#include <cuda_runtime_api.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda_library.h"
#include "test/cuda/gpu_rig.h"
#include "test/fakes/gpu/fake_gpu.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using kernels::CudaVersionText;
using testing::AllOf;
using testing::HasSubstr;

// What is said of a runtime of `version`.
std::string OpenVersion(int version) {
  const int before = fake_cuda_runtime_version(version);
  void* handle = nullptr;
  std::string why = kernels::OpenCudaRuntime(&handle);
  fake_cuda_runtime_version(before);
  EXPECT_EQ(handle == nullptr, !why.empty());
  return why;
}

TEST(CudaVersionTest, ARuntimeOfANewerMajorVersionIsRefusedByName) {
  EXPECT_THAT(
      OpenVersion(CUDART_VERSION + 1000),
      AllOf(HasSubstr("libcommsched_fake_gpu.so is of CUDA " +
                      CudaVersionText(CUDART_VERSION + 1000)),
            HasSubstr("a newer major version than that of the headers"),
            HasSubstr("compiled with, " + CudaVersionText(CUDART_VERSION)),
            HasSubstr("COMMSCHED_CUDART_LIB")));
}

TEST(CudaVersionTest, ANewerMinorVersionAndTheMajorBeforeAreTaken) {
  EXPECT_EQ(OpenVersion(CUDART_VERSION / 1000 * 1000 + 990), "");
  EXPECT_EQ(OpenVersion(12060), "");
}

TEST(CudaVersionTest, CudaElevenIsTooOld) {
  EXPECT_THAT(OpenVersion(11080),
              AllOf(HasSubstr("is of CUDA 11.8"),
                    HasSubstr("12.0 is the oldest that is taken")));
}

// What the headers call otherwise is asked of the driver.
TEST(CudaVersionTest, ADeviceIsTheSameOnARuntimeOfCudaTwelve) {
  const int before = fake_cuda_runtime_version(12060);
  const auto device = test::FakeDevice(1);
  {
    const test::DeviceMemory memory(device, 64);
    EXPECT_OK(device->CheckHere(memory.address()));
    const auto stream = device->CreateSideStream().value();
    EXPECT_EQ(stream->CaptureId().value(), 0u);
    const auto native = static_cast<cudaStream_t>(stream->handle().native);
    cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal);
    EXPECT_NE(stream->CaptureId().value(), 0u);
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(native, &graph);
    cudaGraphDestroy(graph);
  }
  fake_cuda_runtime_version(before);
}

}  // namespace
}  // namespace commsched
