// Rules of the driver beside the runtime, in the words of cuda.h and
// cuda_runtime_api.h.
#include <algorithm>
#include <array>
#include <string>
#include <thread>
#include <vector>

#include "test/fakes/rules/bench.h"
#include "test/fakes/rules/rules.h"

namespace commsched::rules {
namespace {

// The last error after `ask` was told of work that is not complete, by `code`:
// of several tries, since a host may be held up until it is. cudaErrorUnknown:
// it was told so never.
template <typename Code, typename Ask>
cudaError_t LastErrorAfter(Bench* b, Code code, const Ask& ask) {
  for (int i = 0; i < 10; ++i) {
    b->Fill(1, b->streams[0]);
    b->Must(b->cuda.EventRecord(b->events[0], b->streams[0]));
    b->cuda.GetLastError();
    const bool told = ask() == code;
    const cudaError_t last = b->cuda.GetLastError();
    b->Must(b->cuda.StreamSynchronize(b->streams[0]));
    if (told) return last;
  }
  return cudaErrorUnknown;
}

std::string AQueryByTheDriverLeavesNoLastError() {
  Bench b;
  const auto of_event = [&] { return b.cuda.driver.EventQuery(b.events[0]); };
  const auto of_stream = [&] { return b.cuda.DriverStreamQuery(b.streams[0]); };
  REQUIRE(LastErrorAfter(&b, CUDA_ERROR_NOT_READY, of_event) == cudaSuccess);
  REQUIRE(LastErrorAfter(&b, CUDA_ERROR_NOT_READY, of_stream) == cudaSuccess);
  return b.error();
}

std::string AQueryByTheRuntimeMayLeaveALastError() {
  Bench b;
  const auto of_event = [&] { return b.cuda.EventQuery(b.events[0]); };
  const auto of_stream = [&] { return b.cuda.StreamQuery(b.streams[0]); };
  REQUIRE(LastErrorAfter(&b, cudaErrorNotReady, of_event) == cudaErrorNotReady);
  REQUIRE(LastErrorAfter(&b, cudaErrorNotReady, of_stream) ==
          cudaErrorNotReady);
  return b.error();
}

std::string AFailureOfTheDriverLeavesTheLastError() {
  Bench b;
  b.cuda.SetDevice(b.num_devices);
  void* memory = nullptr;
  REQUIRE(b.cuda.driver.Allocate(size_t{1} << 50, &memory) ==
          CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE(b.cuda.GetLastError() == cudaErrorInvalidDevice);
  REQUIRE(b.cuda.driver.Allocate(size_t{1} << 50, &memory) ==
          CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE(b.cuda.GetLastError() == cudaSuccess);
  return b.error();
}

std::string AnAllocationOfTheRuntimeThatFailsReplacesTheLastError() {
  Bench b;
  b.cuda.SetDevice(b.num_devices);
  void* memory = nullptr;
  REQUIRE(b.cuda.Malloc(&memory, size_t{1} << 50) == cudaErrorMemoryAllocation);
  REQUIRE(b.cuda.GetLastError() == cudaErrorMemoryAllocation);
  return b.error();
}

// What a thread of its own finds, which has not called anything else.
template <typename Body>
void OnNewThread(const Body& body) {
  std::thread(body).join();
}

std::string AThreadHasNoContextUntilTheRuntimeGivesItOne() {
  Bench b;
  CUcontext before = nullptr;
  CUcontext after = nullptr;
  CUdeviceptr memory = 0;
  CUresult refused = CUDA_SUCCESS;
  OnNewThread([&] {
    int device = 0;
    b.Must(b.cuda.GetDevice(&device));
    (void)b.cuda.driver.CtxGetCurrent(&before);
    refused = b.cuda.driver.MemAlloc(&memory, 256);
    b.Must(b.cuda.SetDevice(device));
    (void)b.cuda.driver.CtxGetCurrent(&after);
  });
  REQUIRE(before == nullptr);
  REQUIRE(refused == CUDA_ERROR_INVALID_CONTEXT);
  REQUIRE(after != nullptr);
  return b.error();
}

std::string AnEventMayNeedAContextToo() {
  Bench b;
  CUresult refused = CUDA_SUCCESS;
  OnNewThread([&] { refused = b.cuda.driver.EventQuery(b.events[0]); });
  REQUIRE(refused == CUDA_ERROR_INVALID_CONTEXT);
  return b.error();
}

std::string BothKnowTheSameMemory() {
  Bench b;
  void* memory = nullptr;
  REQUIRE(b.cuda.driver.Allocate(kBytes, &memory) == CUDA_SUCCESS);
  b.Must(b.cuda.MemsetAsync(memory, 3, kBytes, b.streams[0]));
  b.Must(b.cuda.StreamSynchronize(b.streams[0]));
  REQUIRE(b.Last(memory) == 3);
  cudaPointerAttributes found = {};
  b.Must(b.cuda.PointerGetAttributes(&found, memory));
  REQUIRE(found.type == cudaMemoryTypeDevice && found.device == 0);
  REQUIRE(b.cuda.driver.Free(memory) == CUDA_SUCCESS);
  return b.error();
}

std::string MemoryOfNobodyHasNoAttributes() {
  Bench b;
  const int on_host = 0;
  const auto type_of = [&](const void* address) {
    unsigned type = ~0u;
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    void* data = &type;
    const CUresult code = b.cuda.driver.PointerGetAttributes(
        1, &attribute, &data, reinterpret_cast<CUdeviceptr>(address));
    return code == CUDA_SUCCESS ? type : ~0u;
  };
  REQUIRE(type_of(&on_host) == 0);
  REQUIRE(type_of(b.buffers[0]) == CU_MEMORYTYPE_DEVICE);
  return b.error();
}

// That of CUDA 13 has eight words more than that of 12.
std::string AStructIsThatOfTheRuntimesMajorVersion() {
  Bench b;
  REQUIRE(b.cuda.SetVersion != nullptr);
  const auto written = [&](int version) {
    // Enough for either.
    std::array<unsigned char, 256> bytes;
    bytes.fill(0xAA);
    const int before = b.cuda.SetVersion(version);
    b.Must(b.cuda.PointerGetAttributes(
        reinterpret_cast<cudaPointerAttributes*>(bytes.data()), b.buffers[0]));
    b.cuda.SetVersion(before);
    return bytes.size() -
           static_cast<size_t>(std::count(bytes.begin(), bytes.end(), 0xAA));
  };
  REQUIRE(written(13000) == written(12060) + 8 * sizeof(long));
  return b.error();
}

}  // namespace

std::vector<Rule> CudaDriverRules() {
  return {
#define RULE(name, source, sentence) {#name, source, sentence, &name}
      RULE(AQueryByTheDriverLeavesNoLastError, "cudaGetLastError",
           "Returns the last error that has been produced by any of the "
           "runtime calls in the same instance of the CUDA Runtime library in "
           "the host thread"),
      RULE(AFailureOfTheDriverLeavesTheLastError, "cudaGetLastError",
           "Returns the last error that has been produced by any of the "
           "runtime calls in the same instance of the CUDA Runtime library in "
           "the host thread"),
      RULE(AnAllocationOfTheRuntimeThatFailsReplacesTheLastError,
           "CUDA Programming Guide, Error Checking",
           "The runtime maintains an error variable for each host thread that "
           "is initialized to cudaSuccess and is overwritten by the error code "
           "every time an error occurs"),
      RULE(AThreadHasNoContextUntilTheRuntimeGivesItOne, "cudaSetDevice",
           "This call will bind the primary context of the specified device to "
           "the calling thread"),
      RULE(BothKnowTheSameMemory,
           "CUDA Driver API, Interactions with the CUDA Runtime",
           "(what one has made is known to the other, in the same context)"),
      RULE(MemoryOfNobodyHasNoAttributes, "cuPointerGetAttributes",
           "Instead, the attributes are assigned default NULL values and "
           "CUDA_SUCCESS is returned."),
#undef RULE
      // CUDA 13.0 was seen to leave none; of CUDA 12 it is not known.
      {"AQueryByTheRuntimeMayLeaveALastError", "cudaErrorNotReady",
       "This result is not actually an error, but must be indicated "
       "differently "
       "than cudaSuccess",
       &AQueryByTheRuntimeMayLeaveALastError, /*stand_in_only=*/true},
      {"AStructIsThatOfTheRuntimesMajorVersion",
       "CUDA Driver API, Rules for version mixing",
       "CUDA-defined types, whether opaque handles or structures like "
       "cudaDeviceProp, have their ABI tied to the major release of the CUDA "
       "runtime.",
       &AStructIsThatOfTheRuntimesMajorVersion, /*stand_in_only=*/true},
      {"AnEventMayNeedAContextToo", "CUDA_ERROR_INVALID_CONTEXT",
       "This most frequently indicates that there is no context bound to the "
       "current thread.",
       &AnEventMayNeedAContextToo, /*stand_in_only=*/true},
  };
}

}  // namespace commsched::rules
