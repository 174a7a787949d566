#include "running_kernels.h"

#include <memory>
#include <utility>

#include "driver.h"
#include "fake_gpu.h"

namespace fake_gpu {

Work RunningKernels::Tracked(int device, Work work) {
  const auto number = std::make_shared<uint64_t>(0);  // 0: it has not begun.
  return {[this, device, run = std::move(work.run)] {
            const uint64_t begun = Begin(device);
            run();
            End(device, begun);
          },
          [this, device, number, try_run = std::move(work.try_run)] {
            if (*number == 0) *number = Begin(device);
            const Progress progress = try_run();
            if (progress == Progress::kDone) End(device, *number);
            return progress;
          }};
}

uint64_t RunningKernels::Begin(int device) {
  const std::lock_guard<std::mutex> lock(mu_);
  running_[device].insert(++num_begun_);
  return num_begun_;
}

void RunningKernels::End(int device, uint64_t number) {
  const std::lock_guard<std::mutex> lock(mu_);
  running_[device].erase(number);
  changed_.notify_all();
}

bool RunningKernels::AreGoneLocked(int device, uint64_t last) {
  const std::set<uint64_t>& running = running_[device];
  return running.empty() || *running.begin() > last;
}

void RunningKernels::AwaitEnd(int device) {
  std::unique_lock<std::mutex> lock(mu_);
  const uint64_t last = num_begun_;
  if (!TheDriver().on()) {
    changed_.wait(lock, [&] { return AreGoneLocked(device, last); });
    return;
  }
  lock.unlock();
  TheDriver().RunUntil([&] {
    const std::lock_guard<std::mutex> look(mu_);
    return AreGoneLocked(device, last);
  });
}

uint64_t RunningKernels::num_running() {
  const std::lock_guard<std::mutex> lock(mu_);
  uint64_t num = 0;
  for (const auto& each : running_) num += each.second.size();
  return num;
}

RunningKernels& AllRunningKernels() {
  static auto* const kernels = new RunningKernels;
  return *kernels;
}

}  // namespace fake_gpu

uint64_t fake_nccl_num_running(void) {
  return fake_gpu::AllRunningKernels().num_running();
}
