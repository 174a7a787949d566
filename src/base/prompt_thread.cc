#include "base/prompt_thread.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace commsched {
namespace {

// The first version of what sched_getattr(2) fills in. That of the C library,
// or of the kernel's headers, is not there, or in the way of <sched.h>.
struct SchedAttr {
  uint32_t size;
  uint32_t policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime_ns;  // Of SCHED_OTHER: the slice. 0 before Linux 6.12.
  uint64_t deadline_ns;
  uint64_t period_ns;
};

// The least that Linux takes. A thread with a shorter slice than the running
// one's need not wait for the end of that when it is woken.
constexpr uint64_t kSliceNs = 100 * 1000;

void ShortenSlice() {
  SchedAttr attr = {};
  if (syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0) != 0) return;
  if (attr.policy != SCHED_OTHER || attr.runtime_ns <= kSliceNs) return;
  attr.runtime_ns = kSliceNs;
  (void)syscall(SYS_sched_setattr, 0, &attr, 0);
}

}  // namespace

void MakeThreadPrompt() {
  // The default slack of 50 us would come on top of each timed wait.
  (void)prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  ShortenSlice();
}

}  // namespace commsched
