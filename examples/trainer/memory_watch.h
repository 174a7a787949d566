#ifndef COMMSCHED_EXAMPLES_TRAINER_MEMORY_WATCH_H_
#define COMMSCHED_EXAMPLES_TRAINER_MEMORY_WATCH_H_

#include <cstdint>
#include <istream>
#include <mutex>

#include "absl/strings/string_view.h"

namespace commsched::trainer {

// Memory of the machine; 2^46 if it does not say. More is refused rather than
// left to overcommit: the first touch would kill the process.
int64_t PhysicalBytes();

// Bytes of `field`, such as "VmHWM", in `status`, the text of
// /proc/PID/status; 0 if it does not say.
uint64_t BytesInStatus(std::istream& status, absl::string_view field);

// What the system says of this process's memory, whichever ranks it has: the
// most that was resident, and how much of that saving took: what its savers
// keep, and by how much the peak has grown since the first save began.
//
// Thread-safe: a rank calls each of the first three once, or not at all.
class MemoryWatch {
 public:
  void BeforeSaver();
  void AfterSaver();
  void BeforeFirstSave();

  uint64_t PeakBytes() const;
  uint64_t SaveBytes() const;  // 0 if nothing was saved.

 private:
  static constexpr uint64_t kNotYet = ~uint64_t{0};

  mutable std::mutex mutex_;  // Guards the rest.
  // Of all ranks: the least before, and the most after.
  uint64_t before_saver_ = kNotYet;
  uint64_t after_saver_ = 0;
  uint64_t peak_before_save_ = kNotYet;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_MEMORY_WATCH_H_
