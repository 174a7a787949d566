#ifndef COMMSCHED_EXAMPLES_TRAINER_MACHINE_H_
#define COMMSCHED_EXAMPLES_TRAINER_MACHINE_H_

#include <unistd.h>

#include <cstdint>

namespace commsched::trainer {

// Memory of the machine; 2^46 if it does not say. More is refused rather than
// left to overcommit: the first touch would kill the process.
inline int64_t PhysicalBytes() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  const int64_t page_bytes = sysconf(_SC_PAGE_SIZE);
  if (pages <= 0 || page_bytes <= 0) return int64_t{1} << 46;
  return pages * page_bytes;
}

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_MACHINE_H_
