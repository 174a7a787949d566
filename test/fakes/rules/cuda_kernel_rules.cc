// Rules of images and kernel launches, in the words of cuda_runtime_api.h and
// driver_types.h. The kernel is one of the project's, which fills with a value.
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/bodies.h"
#include "kernels/cuda_api.h"
#include "test/fakes/rules/bench.h"
#include "test/fakes/rules/rules.h"

// What nvcc has made of kernels.cu (kernels/cuda_kernels.cc).
extern "C" const unsigned char commsched_kernels_fatbin[];

namespace commsched::rules {
namespace {

constexpr char kKernel[] = "commsched_fill";

// A bench and that kernel. Before CUDA 12.8 nothing can be shown.
class KernelBench : public Bench {
 public:
  KernelBench() {
    if (!error().empty()) return;
    if (!api_.Load().empty() || api_.LibraryLoadData == nullptr) return;
    Must(LoadData(commsched_kernels_fatbin));
    Must(GetKernel(kKernel));
  }
  bool has_kernel() const { return kernel_ != nullptr; }

  cudaError_t LoadData(const void* image) {
    return api_.LibraryLoadData(&library_, image, nullptr, nullptr, 0, nullptr,
                                nullptr, 0);
  }
  cudaError_t GetKernel(const char* name) {
    return api_.LibraryGetKernel(&kernel_, library_, name);
  }
  cudaError_t Launch(kernels::FillArgs* args, unsigned blocks,
                     unsigned threads) {
    void* pointers[] = {args};
    return api_.LaunchKernel(reinterpret_cast<const void*>(kernel_),
                             dim3(blocks), dim3(threads), pointers, 0,
                             streams[0]);
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
  kernels::CudaApi api_;
  cudaLibrary_t library_ = nullptr;
  cudaKernel_t kernel_ = nullptr;
};

// The runtime's words are of the first; that of CUDA 13.0 says the second.
bool IsRefusal(cudaError_t code) {
  return code == cudaErrorInvalidConfiguration || code == cudaErrorInvalidValue;
}

// An image may be loaded when a kernel of it is asked for.
std::string AnImageOfNothingHasNoKernel() {
  KernelBench b;
  if (!b.has_kernel()) return b.error();
  static constexpr char kText[] = "this is no image of a device";
  cudaError_t code = b.LoadData(kText);
  if (code == cudaSuccess) code = b.GetKernel(kKernel);
  b.cuda.GetLastError();
  REQUIRE(code != cudaSuccess);
  return b.error();
}

std::string AKernelOfAnUnknownNameIsNotFound() {
  KernelBench b;
  if (!b.has_kernel()) return b.error();
  REQUIRE(b.GetKernel("commsched_no_such") == cudaErrorSymbolNotFound);
  b.cuda.GetLastError();
  return b.error();
}

std::string ALaunchRunsTheKernel() {
  KernelBench b;
  if (!b.has_kernel()) return b.error();
  kernels::FillArgs args = b.FillsWith(1);
  b.Must(b.Launch(&args, 4, 256));
  REQUIRE(b.First() == 1);
  return b.error();
}

std::string TooManyThreadsAreRefused() {
  KernelBench b;
  if (!b.has_kernel()) return b.error();
  b.Must(b.cuda.MemsetAsync(b.buffers[0], 0, kBytes, b.streams[0]));
  kernels::FillArgs args = b.FillsWith(2);
  const cudaError_t code = b.Launch(&args, 1, 1025);
  REQUIRE(IsRefusal(code));
  REQUIRE(b.cuda.GetLastError() == code);
  REQUIRE(b.First() == 0);
  return b.error();
}

std::string AGridOfNoBlocksIsRefused() {
  KernelBench b;
  if (!b.has_kernel()) return b.error();
  kernels::FillArgs args = b.FillsWith(3);
  REQUIRE(IsRefusal(b.Launch(&args, 0, 256)));
  b.cuda.GetLastError();
  return b.error();
}

std::string ArgumentsAreCopiedByTheCall() {
  KernelBench b;
  if (!b.has_kernel()) return b.error();
  b.Fill(0, b.streams[0]);  // The kernel runs later than the call returns.
  kernels::FillArgs args = b.FillsWith(4);
  b.Must(b.Launch(&args, 4, 256));
  args = b.FillsWith(5);
  REQUIRE(b.First() == 4);
  return b.error();
}

std::string AStreamOfAnotherDeviceTakesNoLaunch() {
  KernelBench b;
  if (!b.has_kernel() || b.num_devices < 2) return b.error();
  kernels::FillArgs args = b.FillsWith(6);
  b.Must(b.cuda.SetDevice(1));
  REQUIRE(b.Launch(&args, 4, 256) != cudaSuccess);
  b.cuda.GetLastError();
  return b.error();
}

}  // namespace

std::vector<Rule> CudaKernelRules() {
  return {
#define RULE(name, source, sentence) {#name, source, sentence, &name}
      RULE(AnImageOfNothingHasNoKernel, "cudaLibraryLoadData",
           "The code may be a cubin or fatbin as output by nvcc, or a "
           "NULL-terminated PTX, either as output by nvcc or hand-written."),
      RULE(AKernelOfAnUnknownNameIsNotFound, "cudaLibraryGetKernel",
           "If kernel handle is not found, the call returns "
           "cudaErrorSymbolNotFound."),
      RULE(ALaunchRunsTheKernel, "cudaLaunchKernel",
           "The function invokes kernel func on gridDim"),
      RULE(TooManyThreadsAreRefused, "cudaErrorInvalidConfiguration",
           "Requesting more shared memory per block than the device supports "
           "will trigger this error, as will requesting too many threads or "
           "blocks."),
      RULE(AGridOfNoBlocksIsRefused, "cudaLaunchKernel",
           "(a grid has one block at least)"),
      RULE(ArgumentsAreCopiedByTheCall, "cudaLaunchKernel",
           "point to the region of memory from which the actual parameter will "
           "be copied."),
      RULE(AStreamOfAnotherDeviceTakesNoLaunch,
           "CUDA C++ Programming Guide, Stream and Event Behavior",
           "(a launch fails on a stream that is not of the current device)"),
#undef RULE
  };
}

}  // namespace commsched::rules
