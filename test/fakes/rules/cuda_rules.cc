// Rules of streams, events and memory, in the words of cuda_runtime_api.h and
// of the sections of the CUDA Runtime API that are named.
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "test/fakes/rules/bench.h"
#include "test/fakes/rules/rules.h"

namespace commsched::rules {
namespace {

std::string WorkOfAStreamIsInOrder() {
  Bench b;
  b.Fill(1, b.streams[0]);
  b.Fill(2, b.streams[0]);
  b.Must(b.cuda.StreamSynchronize(b.streams[0]));
  REQUIRE(b.Last(b.buffers[0]) == 2);
  return b.error();
}

std::string AnEventThatWasNotRecordedIsComplete() {
  Bench b;
  REQUIRE(b.cuda.EventQuery(b.events[0]) == cudaSuccess);
  REQUIRE(b.cuda.EventSynchronize(b.events[0]) == cudaSuccess);
  return b.error();
}

std::string NobodyWaitsForAnEventThatWasNotRecorded() {
  Bench b;
  b.Must(b.cuda.StreamWaitEvent(b.streams[0], b.events[0], 0));
  REQUIRE(b.cuda.StreamSynchronize(b.streams[0]) == cudaSuccess);
  return b.error();
}

std::string AnEventIsCompleteAfterWhatWasBeforeIt() {
  Bench b;
  b.Fill(3, b.streams[0]);
  b.Must(b.cuda.EventRecord(b.events[0], b.streams[0]));
  b.Must(b.cuda.EventSynchronize(b.events[0]));
  REQUIRE(b.Last(b.buffers[0]) == 3);
  return b.error();
}

std::string AnEventKnowsItsLastRecordOnly() {
  Bench b;
  b.Fill(1, b.streams[0]);
  b.Must(b.cuda.EventRecord(b.events[0], b.streams[0]));
  b.Must(b.cuda.EventRecord(b.events[0], b.streams[1]));
  b.Must(b.cuda.StreamSynchronize(b.streams[1]));
  REQUIRE(b.cuda.EventQuery(b.events[0]) == cudaSuccess);
  return b.error();
}

std::string AWaitIsForTheRecordOfItsTime() {
  Bench b;
  b.Must(b.cuda.EventRecord(b.events[0], b.streams[1]));
  b.Must(b.cuda.StreamWaitEvent(b.streams[0], b.events[0], 0));
  b.Must(b.cuda.EventRecord(b.events[1], b.streams[0]));
  // A wait for the later record would be a circle.
  b.Must(b.cuda.StreamWaitEvent(b.streams[1], b.events[1], 0));
  b.Must(b.cuda.EventRecord(b.events[0], b.streams[1]));
  REQUIRE(b.cuda.StreamSynchronize(b.streams[0]) == cudaSuccess);
  return b.error();
}

std::string AWaitOrdersTwoStreams() {
  Bench b;
  b.Fill(4, b.streams[0]);
  b.Must(b.cuda.EventRecord(b.events[0], b.streams[0]));
  b.Must(b.cuda.StreamWaitEvent(b.streams[1], b.events[0], 0));
  b.Must(b.cuda.MemcpyAsync(b.buffers[1], b.buffers[0], kBytes,
                            cudaMemcpyDeviceToDevice, b.streams[1]));
  b.Must(b.cuda.StreamSynchronize(b.streams[1]));
  REQUIRE(b.Last(b.buffers[1]) == 4);
  return b.error();
}

std::string AnEventMayGoBeforeItIsComplete() {
  Bench b;
  cudaEvent_t event = nullptr;
  b.Must(b.cuda.EventCreateWithFlags(&event, cudaEventDisableTiming));
  b.Fill(5, b.streams[0]);
  b.Must(b.cuda.EventRecord(event, b.streams[0]));
  b.Must(b.cuda.StreamWaitEvent(b.streams[1], event, 0));
  REQUIRE(b.cuda.EventDestroy(event) == cudaSuccess);
  b.Must(b.cuda.StreamSynchronize(b.streams[1]));
  REQUIRE(b.Last(b.buffers[0]) == 5);
  return b.error();
}

std::string AnEventIsRecordedOnItsDeviceOnly() {
  Bench b;
  if (b.num_devices < 2) return b.error();
  b.Must(b.cuda.SetDevice(1));
  cudaEvent_t event = nullptr;
  b.Must(b.cuda.EventCreateWithFlags(&event, cudaEventDisableTiming));
  REQUIRE(b.cuda.EventRecord(event, b.streams[0]) != cudaSuccess);
  b.cuda.GetLastError();
  b.Must(b.cuda.EventDestroy(event));
  return b.error();
}

std::string AWaitMayCrossDevices() {
  Bench b;
  if (b.num_devices < 2) return b.error();
  b.Must(b.cuda.SetDevice(1));
  cudaStream_t stream = nullptr;
  b.Must(b.cuda.StreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0));
  b.Must(b.cuda.EventRecord(b.events[0], b.streams[0]));
  REQUIRE(b.cuda.StreamWaitEvent(stream, b.events[0], 0) == cudaSuccess);
  b.Must(b.cuda.StreamSynchronize(stream));
  b.Must(b.cuda.StreamDestroy(stream));
  return b.error();
}

std::string TheDeviceIsThatOfTheThread() {
  Bench b;
  if (b.num_devices < 2) return b.error();
  b.Must(b.cuda.SetDevice(1));
  int other = -1;
  std::thread([&] { b.cuda.GetDevice(&other); }).join();
  REQUIRE(other == 0);
  return b.error();
}

std::string ADeviceThatIsNotThereIsRefused() {
  Bench b;
  REQUIRE(b.cuda.SetDevice(b.num_devices) == cudaErrorInvalidDevice);
  int device = -1;
  b.Must(b.cuda.GetDevice(&device));
  REQUIRE(device == 0);
  b.cuda.GetLastError();
  return b.error();
}

std::string MemoryIsOfTheCurrentDevice() {
  Bench b;
  if (b.num_devices < 2) return b.error();
  b.Must(b.cuda.SetDevice(1));
  void* memory = nullptr;
  b.Must(b.cuda.Malloc(&memory, 256));
  cudaPointerAttributes found = {};
  b.Must(b.cuda.PointerGetAttributes(&found, memory));
  b.Must(b.cuda.Free(memory));
  REQUIRE(found.device == 1);
  return b.error();
}

std::string TheDefaultStreamWaitsForBlockingOnes() {
  Bench b;
  cudaStream_t stream = nullptr;
  b.Must(b.cuda.StreamCreate(&stream));
  b.Fill(6, stream);
  b.Must(b.cuda.MemcpyAsync(b.buffers[1], b.buffers[0], kBytes,
                            cudaMemcpyDeviceToDevice, nullptr));
  b.Must(b.cuda.StreamSynchronize(nullptr));
  REQUIRE(b.Last(b.buffers[1]) == 6);
  b.Must(b.cuda.StreamDestroy(stream));
  return b.error();
}

std::string BlockingStreamsWaitForTheDefaultOne() {
  Bench b;
  cudaStream_t stream = nullptr;
  b.Must(b.cuda.StreamCreate(&stream));
  b.Fill(7, nullptr);
  b.Must(b.cuda.MemcpyAsync(b.buffers[1], b.buffers[0], kBytes,
                            cudaMemcpyDeviceToDevice, stream));
  b.Must(b.cuda.StreamSynchronize(stream));
  REQUIRE(b.Last(b.buffers[1]) == 7);
  b.Must(b.cuda.StreamDestroy(stream));
  return b.error();
}

std::string LowerNumbersAreHigherPriorities() {
  Bench b;
  int least = -1;
  int greatest = 1;
  b.Must(b.cuda.DeviceGetStreamPriorityRange(&least, &greatest));
  REQUIRE(greatest <= least);
  return b.error();
}

std::string APriorityOutOfRangeIsClamped() {
  Bench b;
  int least = 0;
  int greatest = 0;
  b.Must(b.cuda.DeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t stream = nullptr;
  b.Must(b.cuda.StreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                         greatest - 100));
  int priority = 1;
  b.Must(b.cuda.StreamGetPriority(stream, &priority));
  b.Must(b.cuda.StreamDestroy(stream));
  REQUIRE(priority == greatest);
  return b.error();
}

std::string PageableMemoryIsReadWhenTheCallReturns() {
  Bench b;
  std::vector<unsigned char> source(kBytes, 8);
  b.Must(b.cuda.Memcpy(b.buffers[0], source.data(), kBytes,
                       cudaMemcpyHostToDevice));
  source.assign(kBytes, 9);
  REQUIRE(b.Last(b.buffers[0]) == 8);
  return b.error();
}

// What it may do before is the stand-in's alone to show.
std::string ACopyFromPageableMemoryHasEndedOnceTheStreamHas() {
  Bench b;
  const std::vector<unsigned char> source(kBytes, 12);
  std::vector<unsigned char> target(kBytes);
  b.Must(b.cuda.Memcpy(b.buffers[0], source.data(), kBytes,
                       cudaMemcpyHostToDevice));
  b.Must(b.cuda.StreamSynchronize(nullptr));
  b.Must(b.cuda.MemcpyAsync(target.data(), b.buffers[0], kBytes,
                            cudaMemcpyDeviceToHost, b.streams[0]));
  b.Must(b.cuda.StreamSynchronize(b.streams[0]));
  REQUIRE(target == source);
  return b.error();
}

std::string PageableMemoryIsWrittenWhenTheCallReturns() {
  Bench b;
  std::vector<unsigned char> target(kBytes);
  b.Fill(10, nullptr);
  b.Must(b.cuda.Memcpy(target.data(), b.buffers[0], kBytes,
                       cudaMemcpyDeviceToHost));
  REQUIRE(target.back() == 10);
  return b.error();
}

std::string PinnedMemoryIsWrittenOnceTheStreamIsThere() {
  Bench b;
  void* pinned = nullptr;
  b.Must(b.cuda.HostAlloc(&pinned, kBytes, 0));
  b.Fill(11, b.streams[0]);
  b.Must(b.cuda.MemcpyAsync(pinned, b.buffers[0], kBytes,
                            cudaMemcpyDeviceToHost, b.streams[0]));
  b.Must(b.cuda.StreamSynchronize(b.streams[0]));
  const int last = static_cast<unsigned char*>(pinned)[kBytes - 1];
  b.Must(b.cuda.FreeHost(pinned));
  REQUIRE(last == 11);
  return b.error();
}

std::string RowsHavePitches() {
  Bench b;
  std::vector<uint32_t> numbers(64);
  std::iota(numbers.begin(), numbers.end(), 0);
  b.Must(
      b.cuda.Memcpy(b.buffers[0], numbers.data(), 256, cudaMemcpyHostToDevice));
  b.Must(b.cuda.StreamSynchronize(nullptr));
  b.Must(b.cuda.Memcpy2DAsync(b.buffers[1], 8, b.buffers[0], 32, 8, 8,
                              cudaMemcpyDefault, b.streams[0]));
  b.Must(b.cuda.StreamSynchronize(b.streams[0]));
  std::vector<uint32_t> read(16);
  b.Must(b.cuda.Memcpy(read.data(), b.buffers[1], 64, cudaMemcpyDeviceToHost));
  for (uint32_t row = 0; row < 8; ++row) {
    REQUIRE(read[2 * row] == 8 * row && read[2 * row + 1] == 8 * row + 1);
  }
  return b.error();
}

std::string ARowWiderThanItsPitchIsRefused() {
  Bench b;
  REQUIRE(b.cuda.Memcpy2DAsync(b.buffers[1], 8, b.buffers[0], 32, 16, 8,
                               cudaMemcpyDefault,
                               b.streams[0]) == cudaErrorInvalidPitchValue);
  b.cuda.GetLastError();
  return b.error();
}

std::string MemoryKnowsItsKind() {
  Bench b;
  void* pinned = nullptr;
  const int on_host = 0;
  b.Must(b.cuda.HostAlloc(&pinned, 64, 0));
  cudaPointerAttributes of_device = {}, of_pinned = {}, of_host = {};
  b.Must(b.cuda.PointerGetAttributes(&of_device, b.buffers[0]));
  b.Must(b.cuda.PointerGetAttributes(&of_pinned, pinned));
  b.Must(b.cuda.PointerGetAttributes(&of_host, &on_host));
  b.Must(b.cuda.FreeHost(pinned));
  REQUIRE(of_device.type == cudaMemoryTypeDevice);
  REQUIRE(of_pinned.type == cudaMemoryTypeHost);
  REQUIRE(of_host.type == cudaMemoryTypeUnregistered);
  return b.error();
}

std::string FreeingNullDoesNothing() {
  Bench b;
  REQUIRE(b.cuda.Free(nullptr) == cudaSuccess);
  return b.error();
}

// The vendor says "may"; the stand-in always does, so that whoever frees on the
// path of a step is found.
std::string FreeingWaitsForTheDevice() {
  Bench b;
  void* memory = nullptr;
  b.Must(b.cuda.Malloc(&memory, 256));
  b.Fill(12, b.streams[0]);
  b.Must(b.cuda.Free(memory));
  REQUIRE(b.cuda.StreamQuery(b.streams[0]) == cudaSuccess);
  return b.error();
}

std::string MemoryIsFreedOnce() {
  Bench b;
  void* memory = nullptr;
  b.Must(b.cuda.Malloc(&memory, 256));
  b.Must(b.cuda.Free(memory));
  REQUIRE(b.cuda.Free(memory) != cudaSuccess);
  b.cuda.GetLastError();
  return b.error();
}

// Of several tries, since a host that is held up finds any copy complete; a
// copy that waits is never found incomplete.
std::string ACopyToPinnedMemoryDoesNotWait() {
  Bench b;
  void* pinned = nullptr;
  b.Must(b.cuda.HostAlloc(&pinned, kBytes, 0));
  bool returned_before = false;
  for (int i = 0; i < 10 && !returned_before; ++i) {
    b.Fill(13, b.streams[0]);
    b.Must(b.cuda.MemcpyAsync(pinned, b.buffers[0], kBytes,
                              cudaMemcpyDeviceToHost, b.streams[0]));
    returned_before = b.cuda.StreamQuery(b.streams[0]) == cudaErrorNotReady;
    b.Must(b.cuda.StreamSynchronize(b.streams[0]));
  }
  b.cuda.GetLastError();
  b.Must(b.cuda.FreeHost(pinned));
  REQUIRE(returned_before);
  return b.error();
}

}  // namespace

std::vector<Rule> CudaRules() {
  return {
#define RULE(name, source, sentence) {#name, source, sentence, &name}
      RULE(WorkOfAStreamIsInOrder, "cudaStreamSynchronize",
           "Blocks until stream has completed all operations."),
      RULE(AnEventThatWasNotRecordedIsComplete, "cudaEventRecord",
           "Before the first call to cudaEventRecord(), an event represents an "
           "empty set of work, so for example cudaEventQuery() would return "
           "cudaSuccess."),
      RULE(NobodyWaitsForAnEventThatWasNotRecorded, "cudaEventRecord",
           "Before the first call to cudaEventRecord(), an event represents an "
           "empty set of work"),
      RULE(AnEventIsCompleteAfterWhatWasBeforeIt, "cudaEventRecord",
           "Captures in event the contents of stream at the time of this "
           "call."),
      RULE(AnEventKnowsItsLastRecordOnly, "cudaEventRecord",
           "cudaEventRecord() can be called multiple times on the same event "
           "and will overwrite the previously captured state."),
      RULE(AWaitIsForTheRecordOfItsTime, "cudaEventRecord",
           "Other APIs such as cudaStreamWaitEvent() use the most recently "
           "captured state at the time of the API call, and are not affected "
           "by later calls to cudaEventRecord()."),
      RULE(AWaitOrdersTwoStreams, "cudaStreamWaitEvent",
           "Makes all future work submitted to stream wait for all work "
           "captured in event."),
      RULE(AnEventMayGoBeforeItIsComplete, "cudaEventDestroy",
           "An event may be destroyed before it is complete"),
      RULE(AnEventIsRecordedOnItsDeviceOnly, "cudaEventRecord",
           "event and stream must be on the same CUDA context."),
      RULE(AWaitMayCrossDevices, "cudaStreamWaitEvent",
           "event may be from a different device than stream."),
      RULE(TheDeviceIsThatOfTheThread, "cudaSetDevice",
           "Sets device as the current device for the calling host thread."),
      RULE(ADeviceThatIsNotThereIsRefused, "cudaSetDevice",
           "Valid device id's are 0 to (cudaGetDeviceCount() - 1)."),
      RULE(MemoryIsOfTheCurrentDevice, "cudaSetDevice",
           "Any device memory subsequently allocated from this host thread "
           "using cudaMalloc(), cudaMallocPitch() or cudaMallocArray() will be "
           "physically resident on device."),
      RULE(TheDefaultStreamWaitsForBlockingOnes,
           "Stream synchronization behavior",
           "The legacy default stream is an implicit stream which synchronizes "
           "with all other streams in the same CUcontext except for "
           "non-blocking streams"),
      RULE(BlockingStreamsWaitForTheDefaultOne,
           "Stream synchronization behavior",
           "The legacy default stream is an implicit stream which synchronizes "
           "with all other streams in the same CUcontext except for "
           "non-blocking streams"),
      RULE(LowerNumbersAreHigherPriorities, "cudaStreamCreateWithPriority",
           "Lower numbers represent higher priorities."),
      RULE(APriorityOutOfRangeIsClamped, "cudaStreamCreateWithPriority",
           "it will automatically be clamped to the lowest or the highest "
           "number in the range."),
      RULE(PageableMemoryIsReadWhenTheCallReturns, "API synchronization",
           "The function will return once the pageable buffer has been copied "
           "to the staging memory"),
      RULE(ACopyFromPageableMemoryHasEndedOnceTheStreamHas,
           "API synchronization",
           "but the DMA to final destination may not have completed."),
      RULE(PageableMemoryIsWrittenWhenTheCallReturns, "API synchronization",
           "For transfers from device to either pageable or pinned host "
           "memory, the function returns only once the copy has completed."),
      RULE(PinnedMemoryIsWrittenOnceTheStreamIsThere, "API synchronization",
           "For all other transfers, the function should be fully "
           "asynchronous."),
      RULE(RowsHavePitches, "cudaMemcpy2DAsync",
           "dpitch and spitch are the widths in memory in bytes of the 2D "
           "arrays pointed to by dst and src"),
      RULE(ARowWiderThanItsPitchIsRefused, "cudaMemcpy2DAsync",
           "width must not exceed either dpitch or spitch."),
      RULE(MemoryKnowsItsKind, "cudaPointerGetAttributes",
           "It can be cudaMemoryTypeUnregistered for unregistered host memory, "
           "cudaMemoryTypeHost for registered host memory, "
           "cudaMemoryTypeDevice for device memory"),
      RULE(FreeingNullDoesNothing, "cudaFree",
           "If devPtr is 0, no operation is performed."),
      RULE(MemoryIsFreedOnce, "cudaFree",
           "If cudaFree(devPtr) has already been called before, an error is "
           "returned."),
      RULE(ACopyToPinnedMemoryDoesNotWait, "API synchronization",
           "For all other transfers, the function should be fully "
           "asynchronous."),
#undef RULE
      {"FreeingWaitsForTheDevice", "cudaFree",
       "For all other pointers, this API may perform implicit synchronization.",
       &FreeingWaitsForTheDevice, /*stand_in_only=*/true},
  };
}

}  // namespace commsched::rules
