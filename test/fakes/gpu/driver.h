#ifndef COMMSCHED_TEST_FAKES_GPU_DRIVER_H_
#define COMMSCHED_TEST_FAKES_GPU_DRIVER_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "work.h"

namespace fake_gpu {

// Runs the work of all streams, in place of their threads: nothing moves until
// a host asks the runtime for something, and then one piece of work after the
// other does, from a stream that the seed picks. So work is late as often as it
// can be, and with one host thread the order is a function of the seed.
//
// Thread-safe. One thread at a time runs work, without a lock.
class Driver {
 public:
  // Of one stream. The driver's; a stream that is destroyed leaves its work.
  struct Queue {
    std::deque<Work> works;
    uint64_t num_enqueued = 0;
    uint64_t num_run = 0;
  };

  // While no work is left.
  void Start(uint64_t seed);
  void Stop();
  bool on() const { return on_.load(std::memory_order_relaxed); }
  // Grows with each start: queues are of one.
  uint64_t run() const { return run_.load(std::memory_order_relaxed); }

  std::shared_ptr<Queue> MakeQueue();
  void Enqueue(Queue* queue, Work work);

  // Picks until `done`. Where nothing can move, it waits for work or for
  // Wake().
  void RunUntil(const std::function<bool()>& done);
  // Until what has been enqueued there is done.
  void RunToEnd(Queue* queue);
  bool IsIdle(Queue* queue);
  // A few picks, or none.
  void RunSome();
  // What work waits for may have changed by a call of the host's.
  void Wake();

 private:
  bool Pick(std::unique_lock<std::mutex>* lock);
  bool TryHead(Queue* queue, std::unique_lock<std::mutex>* lock);

  std::atomic<bool> on_{false};
  std::atomic<uint64_t> run_{0};
  std::mutex mu_;
  std::condition_variable changed_;
  // Guarded by mu_; `works` of a queue, too.
  std::minstd_rand random_;
  std::vector<std::shared_ptr<Queue>> queues_;  // In the order they came.
  uint64_t version_ = 0;  // Counts what may let work go on.
  bool picks_ = false;    // A thread runs work.
};

Driver& TheDriver();

}  // namespace fake_gpu

#endif  // COMMSCHED_TEST_FAKES_GPU_DRIVER_H_
