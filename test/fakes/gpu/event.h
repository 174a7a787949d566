#ifndef COMMSCHED_TEST_FAKES_GPU_EVENT_H_
#define COMMSCHED_TEST_FAKES_GPU_EVENT_H_

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "clocks.h"

namespace fake_gpu {

struct CapturedPoint;

// A record of an event: done once the stream has got there. Thread-safe.
class Marker {
 public:
  explicit Marker(Clock clock) : clock_(std::move(clock)) {}

  // What is complete once it is done.
  const Clock& clock() const { return clock_; }
  void Finish() {
    const std::lock_guard<std::mutex> lock(mu_);
    done_ = true;
    changed_.notify_all();
  }
  void Wait() {
    std::unique_lock<std::mutex> lock(mu_);
    changed_.wait(lock, [this] { return done_; });
  }
  bool done() {
    const std::lock_guard<std::mutex> lock(mu_);
    return done_;
  }

 private:
  const Clock clock_;
  std::mutex mu_;
  std::condition_variable changed_;
  bool done_ = false;
};

// What a query of `event` returns.
int QueryEvent(cudaEvent_t event);

}  // namespace fake_gpu

struct CUevent_st {
  CUevent_st(int on, bool is_timed) : device(on), timed(is_timed) {}
  const int device;
  const bool timed;
  std::mutex mu;
  std::shared_ptr<fake_gpu::Marker> last;  // Null: never recorded.
  // Null: it was not last recorded in a capture.
  std::shared_ptr<fake_gpu::CapturedPoint> captured;
};

#endif  // COMMSCHED_TEST_FAKES_GPU_EVENT_H_
