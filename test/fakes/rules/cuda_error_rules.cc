// Rules of errors, in the words of cuda_runtime_api.h and driver_types.h.
#include <string>
#include <thread>
#include <vector>

#include "test/fakes/rules/bench.h"
#include "test/fakes/rules/rules.h"

namespace commsched::rules {
namespace {

std::string TheLastErrorIsResetWhenItIsRead() {
  Bench b;
  b.cuda.SetDevice(b.num_devices);
  REQUIRE(b.cuda.GetLastError() == cudaErrorInvalidDevice);
  REQUIRE(b.cuda.GetLastError() == cudaSuccess);
  return b.error();
}

std::string PeekingLeavesTheLastError() {
  Bench b;
  b.cuda.SetDevice(b.num_devices);
  REQUIRE(b.cuda.PeekAtLastError() == cudaErrorInvalidDevice);
  REQUIRE(b.cuda.GetLastError() == cudaErrorInvalidDevice);
  return b.error();
}

std::string TheLastErrorIsThatOfTheThread() {
  Bench b;
  b.cuda.GetLastError();
  std::thread([&] { b.cuda.SetDevice(b.num_devices); }).join();
  REQUIRE(b.cuda.GetLastError() == cudaSuccess);
  return b.error();
}

std::string AnAllocationThatFailsDoesNotStick() {
  Bench b;
  void* memory = nullptr;
  REQUIRE(b.cuda.Malloc(&memory, size_t{1} << 50) == cudaErrorMemoryAllocation);
  REQUIRE(b.cuda.GetLastError() == cudaErrorMemoryAllocation);
  b.Must(b.cuda.Malloc(&memory, 256));
  b.Must(b.cuda.Free(memory));
  REQUIRE(b.cuda.GetLastError() == cudaSuccess);
  return b.error();
}

// Whoever reads the error does not get rid of it, on any thread.
std::string AnErrorOfAKernelSticks() {
  Bench b;
  REQUIRE(b.cuda.FailNext != nullptr);
  b.cuda.FailNext("cudaStreamSynchronize", 1, cudaErrorIllegalAddress);
  const cudaError_t first = b.cuda.StreamSynchronize(b.streams[0]);
  const cudaError_t read = b.cuda.GetLastError();
  const cudaError_t next = b.cuda.MemsetAsync(b.buffers[0], 0, 1, b.streams[0]);
  cudaError_t other = cudaSuccess;
  std::thread([&] { other = b.cuda.GetLastError(); }).join();
  b.cuda.FailNext("", 0, cudaSuccess);  // The next rule has a new process.
  b.cuda.GetLastError();
  REQUIRE(first == cudaErrorIllegalAddress);
  REQUIRE(read == cudaErrorIllegalAddress);
  REQUIRE(next == cudaErrorIllegalAddress);
  REQUIRE(other == cudaErrorIllegalAddress);
  return b.error();
}

}  // namespace

std::vector<Rule> CudaErrorRules() {
  return {
#define RULE(name, source, sentence) {#name, source, sentence, &name}
      RULE(TheLastErrorIsResetWhenItIsRead, "cudaGetLastError",
           "and resets it to cudaSuccess."),
      RULE(PeekingLeavesTheLastError, "cudaPeekAtLastError",
           "This call does not reset the error to cudaSuccess like "
           "cudaGetLastError()."),
      RULE(TheLastErrorIsThatOfTheThread, "cudaGetLastError",
           "Returns the last error that has been produced by any of the "
           "runtime calls in the same instance of the CUDA Runtime library in "
           "the host thread"),
      RULE(AnAllocationThatFailsDoesNotStick, "cudaErrorMemoryAllocation",
           "The API call failed because it was unable to allocate enough "
           "memory or other resources to perform the requested operation."),
#undef RULE
      {"AnErrorOfAKernelSticks", "cudaErrorIllegalAddress",
       "This leaves the process in an inconsistent state and any further CUDA "
       "work will return the same error.",
       &AnErrorOfAKernelSticks, /*stand_in_only=*/true},
  };
}

}  // namespace commsched::rules
