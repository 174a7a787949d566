#include "test/fakes/rules/vendor.h"

#include <dlfcn.h>

#include "kernels/cuda_library.h"

namespace commsched::rules {
namespace {

template <typename Function>
std::string Find(void* handle, const char* name, Function* out) {
  *out = reinterpret_cast<Function>(dlsym(handle, name));
  return *out == nullptr ? std::string(name) + " is missing" : "";
}

}  // namespace

std::string Cuda::Load() {
  void* handle = nullptr;
  std::string why = kernels::OpenCudaRuntime(&handle);
#define COMMSCHED_RULES_FIND(name) \
  if (why.empty()) why = Find(handle, "cuda" #name, &name);
  COMMSCHED_RULES_CUDA(COMMSCHED_RULES_FIND)
  COMMSCHED_RULES_FIND(HostAlloc)
  COMMSCHED_RULES_FIND(Malloc)
#undef COMMSCHED_RULES_FIND
  if (why.empty()) why = driver.Load(handle);
  if (why.empty()) {
    why = Find(kernels::DriverOf(handle), "cuStreamQuery", &DriverStreamQuery);
  }
  if (why.empty()) (void)Find(handle, "fake_gpu_fail", &FailNext);
  if (why.empty()) (void)Find(handle, "fake_cuda_runtime_version", &SetVersion);
  if (why.empty()) {
    (void)Find(handle, "fake_cuda_driver_version", &SetDriverVersion);
  }
  return why;
}

std::string Nccl::Load() {
  void* handle = nullptr;
  std::string why = kernels::OpenLibrary(
      {"COMMSCHED_NCCL_LIB", {"libnccl.so.2"}, {"nccl/lib/libnccl.so.2"}},
      &handle);
#define COMMSCHED_RULES_FIND(name) \
  if (why.empty()) why = Find(handle, "nccl" #name, &name);
  COMMSCHED_RULES_NCCL(COMMSCHED_RULES_FIND)
#undef COMMSCHED_RULES_FIND
#define COMMSCHED_RULES_FIND(name) \
  if (why.empty()) (void)Find(handle, "nccl" #name, &name);
  COMMSCHED_RULES_NEWER_NCCL(COMMSCHED_RULES_FIND)
#undef COMMSCHED_RULES_FIND
  return why;
}

}  // namespace commsched::rules
