#include "library.h"

#include <dlfcn.h>

#include <type_traits>

#include "kernels/open_library.h"

namespace commsched::nccl {
namespace {

// Older ones lack ncclCommInitRankConfig's settings and ncclMemAlloc.
constexpr int kLeastVersion = 21900;

const kernels::VendorLibrary kNccl = {
    "COMMSCHED_NCCL_LIB", {"libnccl.so.2"}, {"nccl/lib/libnccl.so.2"}};

// The first time counts: from then on it is loaded.
bool WasLoaded() {
  static const bool was_loaded = kernels::LoadedCopy(kNccl) != nullptr;
  return was_loaded;
}

#if NCCL_VERSION_CODE >= 22807
// What is written out agrees with the vendor's header.
#define COMMSCHED_NCCL_SAME(name, since, type)                                 \
  static_assert(std::is_same_v<decltype(&::nccl##name), Library::name##Type*>, \
                "nccl" #name " has another type");
COMMSCHED_NCCL_OPTIONAL(COMMSCHED_NCCL_SAME)
#undef COMMSCHED_NCCL_SAME
#endif

}  // namespace

std::string Library::TextOf(int version) {
  return std::to_string(version / 10000) + "." +
         std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

Outcome Library::Load() {
  void* handle = nullptr;
  was_loaded = WasLoaded();
  std::string why = kernels::OpenLibrary(kNccl, &handle);
  if (!why.empty()) return {COMMSCHED_UNAVAILABLE, why};
#define COMMSCHED_NCCL_LOAD(name)                                       \
  name = reinterpret_cast<decltype(name)>(dlsym(handle, "nccl" #name)); \
  if (name == nullptr) {                                                \
    return {COMMSCHED_UNAVAILABLE, "NCCL has no nccl" #name};           \
  }
  COMMSCHED_NCCL_FUNCTIONS(COMMSCHED_NCCL_LOAD)
#undef COMMSCHED_NCCL_LOAD
  file = kernels::FileOf(reinterpret_cast<const void*>(GetVersion));
  why = cuda.Load();
  if (!why.empty()) return {COMMSCHED_UNAVAILABLE, why};
  const Outcome outcome = LoadExchange();
  if (!outcome.ok()) return outcome;
  const Outcome versioned = LoadVersion();
  if (!versioned.ok()) return versioned;
#define COMMSCHED_NCCL_LOAD(name, since, type)                             \
  if (version >= (since)) {                                                \
    name = reinterpret_cast<decltype(name)>(dlsym(handle, "nccl" #name));  \
  }                                                                        \
  if (name == nullptr) {                                                   \
    missing += (missing.empty() ? "nccl" : ", nccl") + std::string(#name); \
  }
  COMMSCHED_NCCL_OPTIONAL(COMMSCHED_NCCL_LOAD)
#undef COMMSCHED_NCCL_LOAD
  return {};
}

// In the file that the other functions are of.
Outcome Library::LoadExchange() {
  const char* const name = "cudaThreadExchangeStreamCaptureMode";
  const std::string runtime =
      kernels::FileOf(reinterpret_cast<const void*>(cuda.SetDevice));
  void* const handle = dlopen(runtime.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (handle != nullptr) {
    exchange_capture_mode =
        reinterpret_cast<decltype(exchange_capture_mode)>(dlsym(handle, name));
    dlclose(handle);
  }
  if (exchange_capture_mode != nullptr) return {};
  return {COMMSCHED_UNAVAILABLE,
          "the CUDA runtime in " + runtime + " has no " + name};
}

Outcome Library::LoadVersion() {
  const Outcome outcome = Check("ncclGetVersion", GetVersion(&version));
  if (!outcome.ok() || version >= kLeastVersion) return outcome;
  return {COMMSCHED_UNAVAILABLE, "NCCL " + VersionText() + " in " + file +
                                     " is older than " + TextOf(kLeastVersion)};
}

std::string Library::VersionText() const { return TextOf(version); }

Outcome Library::Failure(const char* call, ncclResult_t result,
                         ncclComm_t comm) const {
  std::string reason = std::string(call) + ": " + GetErrorString(result);
  const char* last = GetLastError(comm);
  if (last != nullptr && *last != '\0') reason += ": " + std::string(last);
  return {result == ncclRemoteError ? COMMSCHED_ABORTED : COMMSCHED_INTERNAL,
          reason};
}

Outcome Library::CheckCuda(const char* call, cudaError_t code) const {
  if (code == cudaSuccess) return {};
  return {code == cudaErrorMemoryAllocation ? COMMSCHED_RESOURCE_EXHAUSTED
                                            : COMMSCHED_INTERNAL,
          cuda.Check(call, code)};
}

Outcome Library::CheckCuda(const char* call, CUresult code) const {
  if (code == CUDA_SUCCESS) return {};
  return {code == CUDA_ERROR_OUT_OF_MEMORY ? COMMSCHED_RESOURCE_EXHAUSTED
                                           : COMMSCHED_INTERNAL,
          cuda.Check(call, code)};
}

}  // namespace commsched::nccl
