// What there is to check on, and tools that look at it.
#include <cuda.h>
#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "device/cuda_runtime.h"
#include "kernels/cuda_library.h"
#include "test/gpu_check/by_hand.h"
#include "test/gpu_check/child.h"
#include "test/gpu_check/gpu_check.h"
#include "test/gpu_check/launcher.h"

namespace commsched::gpu_check {
namespace {

using kernels::CudaVersionText;

// Of compute-sanitizer's for what it has found.
constexpr int kFoundErrors = 99;
constexpr std::chrono::seconds kSanitizerTimeout{58};

// Functions that no other code takes, found by name; "" without them.
std::string DescribeDevice(const CudaRuntime& cuda, int device) {
  Dl_info info = {};
  void* handle = nullptr;
  if (dladdr(reinterpret_cast<void*>(cuda.GetDevice), &info) != 0) {
    handle = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }
  if (handle == nullptr) return "";
  const auto attribute = reinterpret_cast<decltype(&cudaDeviceGetAttribute)>(
      dlsym(handle, "cudaDeviceGetAttribute"));
  const auto memory = reinterpret_cast<cudaError_t (*)(size_t*, size_t*)>(
      dlsym(handle, "cudaMemGetInfo"));
  std::string text;
  const auto get = [&](cudaDeviceAttr which) {
    int value = 0;
    (void)attribute(&value, which, device);
    return value;
  };
  if (attribute != nullptr) {
    text = absl::StrCat(
        "compute capability ", get(cudaDevAttrComputeCapabilityMajor), ".",
        get(cudaDevAttrComputeCapabilityMinor), ", ",
        get(cudaDevAttrMultiProcessorCount), " multiprocessors");
  }
  size_t free_bytes = 0;
  size_t all_bytes = 0;
  if (memory != nullptr && cuda.SetDevice(device) == cudaSuccess &&
      memory(&free_bytes, &all_bytes) == cudaSuccess) {
    absl::StrAppendFormat(&text, ", %.1f of %.1f GiB free",
                          double(free_bytes) / double(1 << 30),
                          double(all_bytes) / double(1 << 30));
  }
  return text;
}

// Whether the vendor's driver is there and knows a device: whatever else is
// missing is then a failure.
bool HasGpu() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return false;
  const auto init =
      reinterpret_cast<decltype(&cuInit)>(dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<decltype(&cuDeviceGetCount)>(
      dlsym(driver, "cuDeviceGetCount"));
  int num_devices = 0;
  return init != nullptr && count != nullptr && init(0) == CUDA_SUCCESS &&
         count(&num_devices) == CUDA_SUCCESS && num_devices > 0;
}

}  // namespace

bool CheckMachine(const Options& /*options*/, Results* results) {
  const auto cuda = CudaRuntime::Get();
  if (!cuda.ok()) {
    const char* const check = "CUDA driver and runtime";
    if (HasGpu()) {
      results->Add(check, cuda.status());
    } else {
      results->Skip(check,
                    absl::StrCat("there is no GPU: ",
                                 absl::string_view(cuda.status().message())));
    }
    return false;
  }
  const CudaRuntime& runtime = **cuda;
  results->Add(
      "CUDA driver and runtime", absl::OkStatus(),
      absl::StrCat("driver ", CudaVersionText(runtime.driver_version),
                   ", runtime ", CudaVersionText(runtime.runtime_version), " (",
                   runtime.file, ")"));
  const auto launcher = Launcher::Get();
  const bool on_stand_ins = launcher.ok() && (*launcher)->on_stand_ins();
  results->Add("kernels are loaded", launcher.status(),
               on_stand_ins ? "STAND-INS: no GPU, times say nothing" : "");
  for (int i = 0; i < runtime.num_devices; ++i) {
    results->Add(absl::StrCat("device ", i), absl::OkStatus(),
                 DescribeDevice(runtime, i));
  }
  const auto nccl = NcclByHand::Get();
  results->Add(
      "NCCL", nccl.status(),
      nccl.ok() ? absl::StrCat((*nccl)->version / 10000, ".",
                               (*nccl)->version / 100 % 100, ".",
                               (*nccl)->version % 100, " (", (*nccl)->file, ")")
                : "");
  return true;
}

void CheckMemory(const Options& /*options*/, Results* results) {
  const auto launcher = Launcher::Get();
  const std::string tool = FindProgram("compute-sanitizer");
  for (const char* part : {"kernels", "collectives"}) {
    const std::string check = absl::StrCat("compute-sanitizer on ", part);
    if (launcher.ok() && (*launcher)->on_stand_ins()) {
      results->Skip(check, "the stand-ins run no code of a device");
      continue;
    }
    if (tool.empty()) {
      results->Skip(check, "compute-sanitizer is not on the search path");
      continue;
    }
    const ChildEnd end =
        // NCCL asks for kernels that it has not been built with.
        RunChild(
            {.command = {tool, "--report-api-errors", "no", "--error-exitcode",
                         absl::StrCat(kFoundErrors), OwnPath(), "--part", part,
                         "--quick", "--orphan", "--max-ranks", "1"},
             .environment = {}},
            kSanitizerTimeout);
    absl::Status status = end.status;
    if (status.ok() && end.exit_code != 0) {
      status = absl::InternalError(
          end.exit_code == kFoundErrors
              ? "it has found errors, which are printed above"
              : absl::StrCat("exit code ", end.exit_code));
    }
    results->Add(check, status);
  }
}

}  // namespace commsched::gpu_check
