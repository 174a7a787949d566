#ifndef COMMSCHED_TEST_FAKES_GPU_STREAM_H_
#define COMMSCHED_TEST_FAKES_GPU_STREAM_H_

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "clocks.h"
#include "driver.h"
#include "event.h"
#include "work.h"

struct CUstream_st;

namespace fake_gpu {

enum class StreamKind {
  kLegacy,    // The default one of a device.
  kBlocking,  // In order with the default one.
  kNonBlocking,
};

// Runs what is enqueued, in order: on a thread, or where the driver is on, as
// that picks it. Thread-safe.
class Stream {
 public:
  Stream(int device, StreamKind kind, int priority);
  ~Stream();  // Runs the rest; the driver does so later.

  // `ranges` is what the work, which is called `name`, reads and writes.
  void Enqueue(const char* name, std::initializer_list<Range> ranges,
               Work work);
  void Enqueue(const char* name, const std::vector<Range>& ranges, Work work);
  void Enqueue(std::function<void()> run);  // Touches no memory.
  // What `bind` makes: now, or for each launch of the graph that is captured.
  void EnqueueBound(const char* name, const std::vector<Range>& ranges,
                    const std::function<Work()>& bind);
  // Returns a marker that is done once all before it is.
  std::shared_ptr<Marker> Record();
  void WaitFor(std::shared_ptr<Marker> marker);

  void Synchronize();
  // Whether all that has been enqueued is done.
  bool IsIdle();
  int device() const { return device_; }
  StreamKind kind() const { return kind_; }
  int priority() const { return priority_; }

 private:
  void OrderWithDefault();
  void Put(Work work);
  void PutWait(std::shared_ptr<Marker> marker);
  std::shared_ptr<Marker> PutRecord();
  std::shared_ptr<Driver::Queue> DrivenQueue();
  void Run();
  void Hold();

  const int device_;
  const StreamKind kind_;
  const int priority_;
  StreamClock clock_;  // The clocks'.
  std::mutex mu_;
  std::condition_variable changed_;
  std::condition_variable held_;  // Nobody notifies it.
  std::deque<std::function<void()>> queue_;
  std::shared_ptr<Driver::Queue> driven_;  // In place of `queue_`.
  uint64_t driven_run_ = 0;                // Of the driver that has it.
  uint64_t num_enqueued_ = 0;
  uint64_t num_run_ = 0;
  bool stop_ = false;
  std::minstd_rand random_;
  std::thread worker_;  // From the first work on.
};

// A stream of the current device.
CUstream_st* MakeStream(StreamKind kind, int priority);
// False: it is not known.
bool DestroyStream(CUstream_st* stream);

// Whether it is the current device's default stream, by either of its names.
inline bool IsLegacy(cudaStream_t stream) {
  return stream == nullptr || stream == cudaStreamLegacy;
}
// The stream behind a handle.
Stream* StreamOf(cudaStream_t stream);

// Null is a stream, too.
bool IsKnown(cudaStream_t stream);
// Enqueues that `words` at `address` become `value`. A code of the runtime's.
int SetWords(void* address, unsigned value, size_t words, cudaStream_t stream);
// What a query of `stream` returns.
int QueryStream(cudaStream_t stream);

// Waits for all streams of a device.
void SynchronizeDevice(int device);

}  // namespace fake_gpu

struct CUstream_st {
  CUstream_st(int device, fake_gpu::StreamKind kind, int priority)
      : stream(device, kind, priority) {}
  fake_gpu::Stream stream;
  // How many SynchronizeDevice() wait for it; guarded by the lock of streams.
  int num_synchronizing = 0;
};

#endif  // COMMSCHED_TEST_FAKES_GPU_STREAM_H_
