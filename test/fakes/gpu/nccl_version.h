// Which version of NCCL the stand-in is.
#ifndef COMMSCHED_TEST_FAKES_GPU_NCCL_VERSION_H_
#define COMMSCHED_TEST_FAKES_GPU_NCCL_VERSION_H_

#include <nccl.h>

#include <cstdlib>

#include "state.h"

namespace fake_gpu {

// What fake_nccl_version() has set.
int NcclVersion();

// For fake_nccl_last_config().
void RememberConfig(const ncclConfig_t& config);

// Sends and receives of all ranks, as one group; in nccl.cc.
ncclResult_t ExchangeAll(const void* send, void* receive, size_t count,
                         ncclDataType_t dtype, ncclComm_t comm,
                         cudaStream_t stream);

// Whether the thread's device is that of `comm`; in nccl.cc.
bool IsOnDevice(ncclComm_t comm);

}  // namespace fake_gpu

#define FAKE_NCCL_ENTER()                                      \
  if (const int code = fake_gpu::Enter(__func__); code != 0) { \
    return static_cast<ncclResult_t>(code);                    \
  }

// A function that older versions do not have. One that is called all the same
// ends the process, as a null pointer would.
#define FAKE_SINCE(version)                              \
  if (fake_gpu::NcclVersion() < (version)) std::abort(); \
  FAKE_NCCL_ENTER()

#endif  // COMMSCHED_TEST_FAKES_GPU_NCCL_VERSION_H_
