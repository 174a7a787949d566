#include "calls.h"

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "fake_gpu.h"

namespace fake_gpu {
namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local bool has_context = false;
thread_local uint64_t num_not_ready = 0;

struct Calls {
  std::mutex mu;
  std::condition_variable changed;
  std::string held;
  uint64_t num_held = 0;
  std::map<std::string, uint64_t> counts;
  std::string failing;
  uint64_t fails_at = 0;
  int code = 0;
  int sticky = cudaSuccess;
};

Calls& AllCalls() {
  static auto* const calls = new Calls;
  return *calls;
}

// "This leaves the process in an inconsistent state and any further CUDA work
// will return the same error" (cudaErrorIllegalAddress and others, of kernels).
bool Sticks(int code) {
  return code == cudaErrorIllegalAddress || code == cudaErrorLaunchFailure ||
         code == cudaErrorHardwareStackError;
}

// "This call will bind the primary context of the specified device to the
// calling thread" (cudaSetDevice); most others do so before anything else.
bool BindsContext(const std::string_view name) {
  return name.starts_with("cuda") && name != "cudaDriverGetVersion" &&
         name != "cudaGetDevice" && name != "cudaGetDeviceCount" &&
         name != "cudaRuntimeGetVersion" &&
         name != "cudaThreadExchangeStreamCaptureMode";
}

}  // namespace

std::atomic<bool> is_null{false};

bool HasContext() { return has_context; }

int NotReady() {
  ++num_not_ready;
  return cudaErrorNotReady;
}

int Enter(const char* name) {
  if (is_null.load(std::memory_order_relaxed)) return cudaSuccess;
  if (!has_context && BindsContext(name)) has_context = true;
  Calls& calls = AllCalls();
  std::unique_lock<std::mutex> lock(calls.mu);
  ++calls.counts[name];
  if (calls.held == name) {
    ++calls.num_held;
    calls.changed.wait(lock, [&] { return calls.held != name; });
    --calls.num_held;
  }
  const bool of_cuda = name[0] == 'c';
  if (of_cuda && calls.sticky != cudaSuccess) return calls.sticky;
  if (calls.fails_at == 0 || calls.failing != name) return cudaSuccess;
  if (--calls.fails_at != 0) return cudaSuccess;
  if (Sticks(calls.code)) calls.sticky = calls.code;
  return calls.code;
}

cudaError_t Failed(cudaError_t code) {
  last_error = code;
  return code;
}

}  // namespace fake_gpu

using fake_gpu::AllCalls;

void fake_gpu_hold(const char* name) {
  const std::lock_guard<std::mutex> lock(AllCalls().mu);
  AllCalls().held = name;
  AllCalls().changed.notify_all();
}

uint64_t fake_gpu_num_held(void) {
  const std::lock_guard<std::mutex> lock(AllCalls().mu);
  return AllCalls().num_held;
}

void fake_gpu_null(int on) { fake_gpu::is_null = on != 0; }

uint64_t fake_gpu_num_calls(const char* name) {
  const std::lock_guard<std::mutex> lock(AllCalls().mu);
  const auto found = AllCalls().counts.find(name);
  return found == AllCalls().counts.end() ? 0 : found->second;
}

uint64_t fake_gpu_num_not_ready(void) { return fake_gpu::num_not_ready; }

void fake_gpu_fail(const char* name, uint64_t nth, int code) {
  const std::lock_guard<std::mutex> lock(AllCalls().mu);
  AllCalls().failing = name;
  AllCalls().fails_at = nth;
  AllCalls().code = code;
  AllCalls().sticky = cudaSuccess;
}

// "Returns the last error that has been produced by any of the runtime calls in
// the same instance of the CUDA Runtime library in the host thread and resets
// it to cudaSuccess" (cudaGetLastError); one that sticks stays.
cudaError_t cudaGetLastError() {
  const std::lock_guard<std::mutex> lock(AllCalls().mu);
  if (AllCalls().sticky != cudaSuccess) {
    return static_cast<cudaError_t>(AllCalls().sticky);
  }
  return std::exchange(fake_gpu::last_error, cudaSuccess);
}

// "This call does not reset the error to cudaSuccess like cudaGetLastError()"
// (cudaPeekAtLastError).
cudaError_t cudaPeekAtLastError() {
  const std::lock_guard<std::mutex> lock(AllCalls().mu);
  if (AllCalls().sticky != cudaSuccess) {
    return static_cast<cudaError_t>(AllCalls().sticky);
  }
  return fake_gpu::last_error;
}
