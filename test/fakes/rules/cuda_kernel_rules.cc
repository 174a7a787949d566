// Rules of images and kernel launches, in the words of cuda.h. The kernel is
// one of the project's, which fills with a value.
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/bodies.h"
#include "kernels/cuda_images.h"
#include "test/fakes/rules/bench.h"
#include "test/fakes/rules/rules.h"

namespace commsched::rules {
namespace {

constexpr char kKernel[] = "commsched_fill";

// A bench and that kernel, of the first image that has it.
class KernelBench : public Bench {
 public:
  KernelBench() {
    if (!error().empty()) return;
    for (const kernels::KernelImage& image : kernels::KernelImages()) {
      if (LoadData(image.code) == CUDA_SUCCESS &&
          GetKernel(kKernel) == CUDA_SUCCESS) {
        return;
      }
    }
    Fail("no image of the kernels is for this device and its driver");
  }
  bool has_kernel() const { return function_ != nullptr; }

  CUresult LoadData(const void* image) {
    return cuda.driver.LibraryLoadData(&library_, image, nullptr, nullptr, 0,
                                       nullptr, nullptr, 0);
  }
  CUresult GetKernel(const char* name) {
    CUkernel kernel = nullptr;
    const CUresult code = cuda.driver.LibraryGetKernel(&kernel, library_, name);
    if (code != CUDA_SUCCESS) return code;
    return cuda.driver.KernelGetFunction(&function_, kernel);
  }
  CUresult Launch(kernels::FillArgs* args, unsigned blocks, unsigned threads) {
    void* pointers[] = {args};
    return cuda.driver.LaunchKernel(function_, blocks, 1, 1, threads, 1, 1, 0,
                                    streams[0], pointers, nullptr);
  }
  kernels::FillArgs FillsWith(double value) {
    return {static_cast<double*>(buffers[0]), value, kBytes / sizeof(double)};
  }
  double First() {
    double first = 0;
    Must(cuda.StreamSynchronize(streams[0]));
    Must(
        cuda.Memcpy(&first, buffers[0], sizeof(first), cudaMemcpyDeviceToHost));
    return first;
  }

 private:
  CUlibrary library_ = nullptr;
  CUfunction function_ = nullptr;
};

// An image may be loaded when a kernel of it is asked for.
std::string AnImageOfNothingHasNoKernel() {
  KernelBench b;
  if (!b.has_kernel()) return b.error();
  static constexpr char kText[] = "this is no image of a device";
  CUresult code = b.LoadData(kText);
  if (code == CUDA_SUCCESS) code = b.GetKernel(kKernel);
  REQUIRE(code != CUDA_SUCCESS);
  return b.error();
}

// A cubin's header, for compute capability 1.0.
std::string AnImageOfAnotherDeviceLoadsAndHasNoKernel() {
  KernelBench b;
  static constexpr unsigned char kCubin[64] = {0x7f, 'E', 'L',  'F', 2,
                                               1,    1,   0x33, 7};
  REQUIRE(b.LoadData(kCubin) == CUDA_SUCCESS);
  REQUIRE(b.GetKernel(kKernel) == CUDA_ERROR_NO_BINARY_FOR_GPU);
  return b.error();
}

std::string AnImageOfANewerCompilerIsRefused() {
  KernelBench b;
  REQUIRE(b.cuda.SetDriverVersion != nullptr);
  const void* const newest = kernels::KernelImages().front().code;
  const int before = b.cuda.SetDriverVersion(11080);
  const CUresult code = b.LoadData(newest);
  b.cuda.SetDriverVersion(before);
  REQUIRE(code == CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  REQUIRE(b.LoadData(newest) == CUDA_SUCCESS);
  return b.error();
}

std::string AKernelOfAnUnknownNameIsNotFound() {
  KernelBench b;
  if (!b.has_kernel()) return b.error();
  REQUIRE(b.GetKernel("commsched_no_such") == CUDA_ERROR_NOT_FOUND);
  return b.error();
}

std::string ALaunchRunsTheKernel() {
  KernelBench b;
  if (!b.has_kernel()) return b.error();
  kernels::FillArgs args = b.FillsWith(1);
  REQUIRE(b.Launch(&args, 4, 256) == CUDA_SUCCESS);
  REQUIRE(b.First() == 1);
  return b.error();
}

std::string TooManyThreadsAreRefused() {
  KernelBench b;
  if (!b.has_kernel()) return b.error();
  b.Must(b.cuda.MemsetAsync(b.buffers[0], 0, kBytes, b.streams[0]));
  kernels::FillArgs args = b.FillsWith(2);
  REQUIRE(b.Launch(&args, 1, 1025) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(b.First() == 0);
  return b.error();
}

std::string AGridOfNoBlocksIsRefused() {
  KernelBench b;
  if (!b.has_kernel()) return b.error();
  kernels::FillArgs args = b.FillsWith(3);
  REQUIRE(b.Launch(&args, 0, 256) == CUDA_ERROR_INVALID_VALUE);
  return b.error();
}

std::string ArgumentsAreCopiedByTheCall() {
  KernelBench b;
  if (!b.has_kernel()) return b.error();
  b.Fill(0, b.streams[0]);  // The kernel runs later than the call returns.
  kernels::FillArgs args = b.FillsWith(4);
  REQUIRE(b.Launch(&args, 4, 256) == CUDA_SUCCESS);
  args = b.FillsWith(5);
  REQUIRE(b.First() == 4);
  return b.error();
}

std::string AStreamOfAnotherDeviceTakesNoLaunch() {
  KernelBench b;
  if (!b.has_kernel() || b.num_devices < 2) return b.error();
  kernels::FillArgs args = b.FillsWith(6);
  b.Must(b.cuda.SetDevice(1));
  REQUIRE(b.Launch(&args, 4, 256) != CUDA_SUCCESS);
  return b.error();
}

}  // namespace

std::vector<Rule> CudaKernelRules() {
  return {
#define RULE(name, source, sentence) {#name, source, sentence, &name}
      RULE(AnImageOfNothingHasNoKernel, "cuLibraryLoadData",
           "The code may be a cubin or fatbin as output by nvcc, or a "
           "NULL-terminated PTX, either as output by nvcc or hand-written."),
      RULE(AKernelOfAnUnknownNameIsNotFound, "cuLibraryGetKernel",
           "If kernel handle is not found, the call returns "
           "CUDA_ERROR_NOT_FOUND."),
      RULE(ALaunchRunsTheKernel, "cuLaunchKernel",
           "Invokes the function CUfunction or the kernel CUkernel f on a "
           "gridDimX x gridDimY x gridDimZ grid of blocks."),
      RULE(TooManyThreadsAreRefused, "cuLaunchKernel",
           "(a block has at most 1,024 threads)"),
      RULE(AGridOfNoBlocksIsRefused, "cuLaunchKernel",
           "(a grid has one block at least)"),
      RULE(ArgumentsAreCopiedByTheCall, "cuLaunchKernel",
           "must point to a region of memory from which the actual kernel "
           "parameter will be copied."),
      RULE(AStreamOfAnotherDeviceTakesNoLaunch,
           "CUDA C++ Programming Guide, Stream and Event Behavior",
           "(a launch fails on a stream that is not of the current device)"),
#undef RULE
      // An H200 showed it of fat binaries (driver of CUDA 13.0).
      {"AnImageOfAnotherDeviceLoadsAndHasNoKernel",
       "CUDA_ERROR_NO_BINARY_FOR_GPU",
       "This indicates that there is no kernel image available that is "
       "suitable for the device.",
       &AnImageOfAnotherDeviceLoadsAndHasNoKernel, /*stand_in_only=*/true},
      {"AnImageOfANewerCompilerIsRefused", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
       "This indicates that the provided PTX was compiled with an unsupported "
       "toolchain.",
       &AnImageOfANewerCompilerIsRefused, /*stand_in_only=*/true},
  };
}

}  // namespace commsched::rules
