// The vendor's libraries, or their stand-ins, as rules call them.
#ifndef COMMSCHED_TEST_FAKES_RULES_VENDOR_H_
#define COMMSCHED_TEST_FAKES_RULES_VENDOR_H_

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdint>
#include <string>

#include "kernels/cuda_driver.h"

namespace commsched::rules {

#define COMMSCHED_RULES_CUDA(X)   \
  X(DeviceGetStreamPriorityRange) \
  X(EventCreateWithFlags)         \
  X(EventDestroy)                 \
  X(EventQuery)                   \
  X(EventRecord)                  \
  X(EventSynchronize)             \
  X(Free)                         \
  X(FreeHost)                     \
  X(GetDevice)                    \
  X(GetDeviceCount)               \
  X(GetLastError)                 \
  X(Memcpy)                       \
  X(Memcpy2DAsync)                \
  X(MemcpyAsync)                  \
  X(Memset)                       \
  X(MemsetAsync)                  \
  X(PeekAtLastError)              \
  X(PointerGetAttributes)         \
  X(SetDevice)                    \
  X(StreamCreate)                 \
  X(StreamCreateWithPriority)     \
  X(StreamDestroy)                \
  X(StreamGetPriority)            \
  X(StreamQuery)                  \
  X(StreamSynchronize)            \
  X(StreamWaitEvent)

#define COMMSCHED_RULES_NCCL(X) \
  X(AllGather)                  \
  X(AllReduce)                  \
  X(Broadcast)                  \
  X(CommAbort)                  \
  X(CommDeregister)             \
  X(CommDestroy)                \
  X(CommGetAsyncError)          \
  X(CommInitRankConfig)         \
  X(CommRegister)               \
  X(GetUniqueId)                \
  X(GetVersion)                 \
  X(GroupEnd)                   \
  X(GroupStart)                 \
  X(Recv)                       \
  X(RedOpCreatePreMulSum)       \
  X(RedOpDestroy)               \
  X(Reduce)                     \
  X(ReduceScatter)              \
  X(Send)

// Null in versions that are older.
#define COMMSCHED_RULES_NEWER_NCCL(X) \
  X(AlltoAll)                         \
  X(CommRevoke)

struct Cuda {
#define COMMSCHED_RULES_MEMBER(name) decltype(&::cuda##name) name = nullptr;
  COMMSCHED_RULES_CUDA(COMMSCHED_RULES_MEMBER)
  // In C++ these have templates besides.
  cudaError_t (*HostAlloc)(void**, size_t, unsigned) = nullptr;
  cudaError_t (*Malloc)(void**, size_t) = nullptr;
  // Of the driver: what the project calls, and this.
  kernels::CudaDriver driver;
  CUresult (*DriverStreamQuery)(CUstream) = nullptr;
  // fake_gpu_fail(); null in the vendor's library.
  void (*FailNext)(const char*, uint64_t, int) = nullptr;
  // fake_cuda_runtime_version() and that of the driver, so too.
  int (*SetVersion)(int) = nullptr;
  int (*SetDriverVersion)(int) = nullptr;
#undef COMMSCHED_RULES_MEMBER
  std::string Load();  // "", or why not
};

struct Nccl {
#define COMMSCHED_RULES_MEMBER(name) decltype(&::nccl##name) name = nullptr;
  COMMSCHED_RULES_NCCL(COMMSCHED_RULES_MEMBER)
  COMMSCHED_RULES_NEWER_NCCL(COMMSCHED_RULES_MEMBER)
#undef COMMSCHED_RULES_MEMBER
  std::string Load();  // "", or why not
};

}  // namespace commsched::rules

#endif  // COMMSCHED_TEST_FAKES_RULES_VENDOR_H_
