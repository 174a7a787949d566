// What rules of the CUDA runtime need: a table of its functions, streams,
// events and memory.
#ifndef COMMSCHED_TEST_FAKES_RULES_BENCH_H_
#define COMMSCHED_TEST_FAKES_RULES_BENCH_H_

#include <string>

#include "test/fakes/rules/vendor.h"

namespace commsched::rules {

// Enough for a copy to be under way when the next call is made.
inline constexpr size_t kBytes = size_t{8} << 20;

// Returns from a rule that does not hold.
#define REQUIRE(condition) \
  if (!(condition)) return "does not hold: " #condition

// Two streams, two events and two buffers of device 0, which end with it.
class Bench {
 public:
  Bench() {
    error_ = cuda.Load();
    if (!error_.empty()) return;
    Must(cuda.SetDevice(0));
    for (cudaStream_t& stream : streams) {
      Must(cuda.StreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0));
    }
    for (cudaEvent_t& event : events) {
      Must(cuda.EventCreateWithFlags(&event, cudaEventDisableTiming));
    }
    for (void*& buffer : buffers) Must(cuda.Malloc(&buffer, kBytes));
    Must(cuda.GetDeviceCount(&num_devices));
  }
  ~Bench() {
    if (cuda.SetDevice == nullptr) return;
    cuda.SetDevice(0);
    for (cudaStream_t stream : streams) {
      if (stream == nullptr) continue;
      cuda.StreamSynchronize(stream);
      cuda.StreamDestroy(stream);
    }
    for (cudaEvent_t event : events) {
      if (event != nullptr) cuda.EventDestroy(event);
    }
    for (void* buffer : buffers) {
      if (buffer != nullptr) cuda.Free(buffer);
    }
  }

  // Whatever fails that must not is what the rule returns.
  void Must(cudaError_t code) {
    if (code == cudaSuccess) return;
    Fail("a call failed with code " + std::to_string(code));
  }
  void Fail(const std::string& why) {
    if (error_.empty()) error_ = why;
  }
  const std::string& error() const { return error_; }

  // Work that takes a while, and then `value` in all of buffer 0.
  void Fill(int value, cudaStream_t stream) {
    for (int i = 0; i < 20; ++i) {
      Must(cuda.MemcpyAsync(buffers[1], buffers[0], kBytes,
                            cudaMemcpyDeviceToDevice, stream));
    }
    Must(cuda.MemsetAsync(buffers[0], value, kBytes, stream));
  }
  // The last byte of a buffer.
  int Last(const void* buffer) {
    unsigned char byte = 0;
    Must(cuda.Memcpy(&byte, static_cast<const char*>(buffer) + kBytes - 1, 1,
                     cudaMemcpyDeviceToHost));
    return byte;
  }

  Cuda cuda;
  cudaStream_t streams[2] = {};
  cudaEvent_t events[2] = {};
  void* buffers[2] = {};
  int num_devices = 0;

 private:
  std::string error_;
};

}  // namespace commsched::rules

#endif  // COMMSCHED_TEST_FAKES_RULES_BENCH_H_
