// How each call of the vendor's functions begins.
#ifndef COMMSCHED_TEST_FAKES_GPU_CALLS_H_
#define COMMSCHED_TEST_FAKES_GPU_CALLS_H_

#include <cuda_runtime_api.h>

#include <atomic>

namespace fake_gpu {

// fake_gpu_null().
extern std::atomic<bool> is_null;

// Counts the call. Not cudaSuccess: what the call has to return.
int Enter(const char* name);

// Whether the calling thread has a context: it has called a function of the
// runtime's that gives it one.
bool HasContext();

// The code of such a call is no error of the runtime.
template <typename Call>
int OfDriver(const char* name, const Call& call) {
  const int code = Enter(name);
  return code != cudaSuccess ? code : call();
}

// cudaErrorNotReady, which is counted.
int NotReady();

// The calling thread's.
int CurrentDevice();

// fake_cuda_runtime_version() and its like.
int RuntimeVersion();
int DriverVersion();
int ComputeCapability();
int Multiprocessors();

// Returns `code`, which is the thread's last error now.
cudaError_t Failed(cudaError_t code);

}  // namespace fake_gpu

#define FAKE_ENTER()                                                     \
  if (const int code = fake_gpu::Enter(__func__); code != cudaSuccess) { \
    return fake_gpu::Failed(static_cast<cudaError_t>(code));             \
  }

// Returns what `check` says, if it is an error.
#define FAKE_CHECK(check)                                       \
  if (const int checked = (check); checked != cudaSuccess) {    \
    return fake_gpu::Failed(static_cast<cudaError_t>(checked)); \
  }

#endif  // COMMSCHED_TEST_FAKES_GPU_CALLS_H_
