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

// The calling thread's.
int CurrentDevice();

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
