#ifndef COMMSCHED_SRC_EXEC_LAUNCH_LISTENER_H_
#define COMMSCHED_SRC_EXEC_LAUNCH_LISTENER_H_

#include <cstdint>

namespace commsched {

// Who has to know of each launch that has ended.
class LaunchListener {
 public:
  virtual ~LaunchListener() = default;

  // `launch` is complete in `step`, which counts from 0, its result is in place
  // and whoever waits for it has been woken. Of one launch step by step. The
  // thread that retires, which holds no lock; it must not be kept, and nothing
  // may be allocated.
  virtual void LaunchEnded(uint32_t launch, uint64_t step) = 0;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_LAUNCH_LISTENER_H_
