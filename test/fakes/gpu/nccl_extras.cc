// What NCCL has besides collectives, some of it in newer versions only: memory,
// its registration, all-to-all.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <mutex>
#include <set>
#include <utility>

#include "fake_gpu.h"
#include "memory.h"
#include "nccl_version.h"

namespace fake_gpu {
namespace {

int InitialVersion() {
  const char* const named = std::getenv("FAKE_NCCL_VERSION");
  return named == nullptr ? NCCL_VERSION_CODE : std::atoi(named);
}

std::atomic<int>& Version() {
  static std::atomic<int> version{InitialVersion()};
  return version;
}

}  // namespace

int NcclVersion() { return Version(); }

}  // namespace fake_gpu

int fake_nccl_version(int version) {
  return fake_gpu::Version().exchange(version);
}

namespace {

std::mutex config_mu;
FakeNcclConfig last_config;

std::mutex registered_mu;
std::multiset<std::pair<ncclComm_t, void*>> registered;

}  // namespace

FakeNcclConfig fake_nccl_last_config(void) {
  const std::lock_guard<std::mutex> lock(config_mu);
  return last_config;
}

void fake_gpu::RememberConfig(const ncclConfig_t& config) {
  const std::lock_guard<std::mutex> lock(config_mu);
  last_config = {config.blocking, config.maxCTAs, config.minCTAs,
                 config.cgaClusterSize};
}

// "The actual allocated size might be larger than requested due to granularity
// requirement" (nccl.h). Calls of NCCL leave no error of the runtime's.
ncclResult_t ncclMemAlloc(void** address, size_t bytes) {
  FAKE_SINCE(21900);
  return fake_gpu::AllocateMemory(bytes, address) == cudaSuccess
             ? ncclSuccess
             : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* address) {
  FAKE_SINCE(21900);
  return fake_gpu::FreeMemory(cudaSuccess, address) == cudaSuccess
             ? ncclSuccess
             : ncclUnhandledCudaError;
}

uint64_t fake_nccl_num_registered(void) {
  const std::lock_guard<std::mutex> lock(registered_mu);
  return registered.size();
}

// Stricter than NCCL's documentation, which does not say whose device is
// current: both map memory of the communicator's device.
ncclResult_t ncclCommRegister(ncclComm_t comm, void* address, size_t /*bytes*/,
                              void** handle) {
  FAKE_SINCE(21900);
  if (!fake_gpu::IsOnDevice(comm)) return ncclInvalidUsage;
  const std::lock_guard<std::mutex> lock(registered_mu);
  registered.emplace(comm, address);
  *handle = address;
  return ncclSuccess;
}

// What a handle that is not valid does is not said by NCCL: it is refused.
ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
  FAKE_SINCE(21900);
  if (!fake_gpu::IsOnDevice(comm)) return ncclInvalidUsage;
  const std::lock_guard<std::mutex> lock(registered_mu);
  const auto found = registered.find({comm, handle});
  if (found == registered.end()) return ncclInvalidUsage;
  registered.erase(found);
  return ncclSuccess;
}

// "Data to send to destination rank j is taken from sendbuff+j*count and data
// received from source rank i is placed at recvbuff+i*count" (nccl.h).
ncclResult_t ncclAlltoAll(const void* send, void* receive, size_t count,
                          ncclDataType_t dtype, ncclComm_t comm,
                          cudaStream_t stream) {
  FAKE_SINCE(22800);
  return fake_gpu::ExchangeAll(send, receive, count, dtype, comm, stream);
}
