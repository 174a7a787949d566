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

void MoveTo(int core, const cpu_set_t& allowed) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(core, &only);
  (void)sched_setaffinity(0, sizeof(only), &only);
  (void)sched_setaffinity(0, sizeof(allowed), &allowed);
}

thread_local bool is_prompt = false;

}  // namespace

void MakeThreadPrompt() {
  is_prompt = true;
  // The default slack of 50 us would come on top of each timed wait.
  (void)prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  ShortenSlice();
}

int CurrentCore() { return sched_getcpu(); }

bool CoreClaims::ClaimCore(int core) {
  const uint64_t bit = uint64_t{1} << (static_cast<unsigned>(core) % 64);
  return (claimed_.fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
}

void CoreClaims::Claim() {
  const int current = CurrentCore();
  if (!is_prompt || current < 0 || ClaimCore(current)) return;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed) == 0 || !ClaimCore(core)) continue;
    return MoveTo(core, allowed);
  }
}

}  // namespace commsched
