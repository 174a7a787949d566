#ifndef COMMSCHED_TEST_FAKES_GPU_RUNNING_KERNELS_H_
#define COMMSCHED_TEST_FAKES_GPU_RUNNING_KERNELS_H_

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>

#include "work.h"

namespace fake_gpu {

// Kernels of NCCL that have begun and not ended, by device and number: what
// frees memory of a communicator waits for them.
//
// Thread-safe.
class RunningKernels {
 public:
  // `work`, counted as running from its first step to its last.
  Work Tracked(int device, Work work);
  // Returns when those that have begun by now are gone.
  void AwaitEnd(int device);
  // On all devices.
  uint64_t num_running();

 private:
  uint64_t Begin(int device);
  void End(int device, uint64_t number);
  bool AreGoneLocked(int device, uint64_t last);

  std::mutex mu_;
  std::condition_variable changed_;
  uint64_t num_begun_ = 0;
  std::map<int, std::set<uint64_t>> running_;
};

RunningKernels& AllRunningKernels();

}  // namespace fake_gpu

#endif  // COMMSCHED_TEST_FAKES_GPU_RUNNING_KERNELS_H_
