// NCCL, and what of the CUDA runtime it takes to start it, as tables of
// functions: the libraries are found when the plugin is loaded.
#ifndef COMMSCHED_PLUGINS_NCCL_LIBRARY_H_
#define COMMSCHED_PLUGINS_NCCL_LIBRARY_H_

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <string>

#include "kernels/cuda_api.h"
#include "support/outcome.h"

namespace commsched::nccl {

// X(name): nccl<name>, with the type that the vendor's header gives it.
#define COMMSCHED_NCCL_FUNCTIONS(X) \
  X(GetVersion)                     \
  X(GetUniqueId)                    \
  X(CommInitRankConfig)             \
  X(CommDestroy)                    \
  X(CommAbort)                      \
  X(CommGetAsyncError)              \
  X(GetErrorString)                 \
  X(GetLastError)                   \
  X(GroupStart)                     \
  X(GroupEnd)                       \
  X(AllReduce)                      \
  X(ReduceScatter)                  \
  X(AllGather)                      \
  X(Broadcast)                      \
  X(Reduce)                         \
  X(RedOpCreatePreMulSum)           \
  X(RedOpDestroy)                   \
  X(Send)                           \
  X(Recv)

// X(name, since, type): nccl<name>, which NCCL has since version `since`. Types
// are written out, since the header of the build may be older.
#define COMMSCHED_NCCL_OPTIONAL(X)                                        \
  X(MemAlloc, 21900, ncclResult_t(void**, size_t))                        \
  X(MemFree, 21900, ncclResult_t(void*))                                  \
  X(CommRegister, 21900, ncclResult_t(ncclComm_t, void*, size_t, void**)) \
  X(CommDeregister, 21900, ncclResult_t(ncclComm_t, void*))               \
  X(CommRevoke, 22807, ncclResult_t(ncclComm_t, int))                     \
  X(AlltoAll, 22800,                                                      \
    ncclResult_t(const void*, void*, size_t, ncclDataType_t, ncclComm_t,  \
                 cudaStream_t))

// Constant after Load().
struct Library {
#define COMMSCHED_NCCL_MEMBER(name) decltype(&::nccl##name) name = nullptr;
  COMMSCHED_NCCL_FUNCTIONS(COMMSCHED_NCCL_MEMBER)
#undef COMMSCHED_NCCL_MEMBER

  // Null in a library that lacks it.
#define COMMSCHED_NCCL_MEMBER(name, since, type) \
  using name##Type = type;                       \
  name##Type* name = nullptr;
  COMMSCHED_NCCL_OPTIONAL(COMMSCHED_NCCL_MEMBER)
#undef COMMSCHED_NCCL_MEMBER

  kernels::CudaApi cuda;
  // Of the runtime: in which mode of captures the calling thread is.
  cudaError_t (*exchange_capture_mode)(cudaStreamCaptureMode* mode) = nullptr;

  int version = 0;   // 22809 for 2.28.9
  std::string file;  // Where NCCL was found.
  // The process had this NCCL before the plugin looked for it.
  bool was_loaded = false;
  std::string missing;  // Optional functions that it lacks: "ncclA, ncclB".

  // Once, when the plugin is loaded (kernels/open_library.h says where the
  // libraries are looked for). kUnavailable, naming what is missing, or a
  // version below 2.19.
  Outcome Load();
  // For people: "2.28.9", of 22809 (NCCL_VERSION() of 2.9 and newer).
  static std::string TextOf(int version);
  std::string VersionText() const;

  // OK, or `call` with the vendor's words.
  Outcome Check(const char* call, ncclResult_t result,
                ncclComm_t comm = nullptr) const {
    if (result == ncclSuccess) return {};
    return Failure(call, result, comm);
  }
  Outcome Failure(const char* call, ncclResult_t result, ncclComm_t comm) const;
  Outcome CheckCuda(const char* call, cudaError_t code) const;
  Outcome CheckCuda(const char* call, CUresult code) const;

 private:
  Outcome LoadExchange();
  Outcome LoadVersion();
};

// While it lives, what the calling thread does breaks no capture of another
// thread's, and is allowed beside one of its own. A thread begins in a mode in
// which queries, waits and allocations break any capture in the global mode,
// which is the default of torch.cuda.graph (docs/devices.md, What an H200
// does).
class OutsideOfCaptures {
 public:
  explicit OutsideOfCaptures(const Library& library)
      : exchange_(library.exchange_capture_mode) {
    (void)exchange_(&mode_);
  }
  ~OutsideOfCaptures() { (void)exchange_(&mode_); }
  OutsideOfCaptures(const OutsideOfCaptures&) = delete;
  OutsideOfCaptures& operator=(const OutsideOfCaptures&) = delete;

 private:
  cudaError_t (*const exchange_)(cudaStreamCaptureMode* mode);
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace commsched::nccl

#endif  // COMMSCHED_PLUGINS_NCCL_LIBRARY_H_
