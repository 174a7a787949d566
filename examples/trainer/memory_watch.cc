#include "examples/trainer/memory_watch.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace commsched::trainer {
namespace {

uint64_t BytesOfProcess(absl::string_view field) {
  std::ifstream status("/proc/self/status");
  return BytesInStatus(status, field);
}

}  // namespace

int64_t PhysicalBytes() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  const int64_t page_bytes = sysconf(_SC_PAGE_SIZE);
  if (pages <= 0 || page_bytes <= 0) return int64_t{1} << 46;
  return pages * page_bytes;
}

uint64_t BytesInStatus(std::istream& status, absl::string_view field) {
  const std::string wanted = std::string(field) + ":";
  std::string word;
  while (status >> word && word != wanted) {
  }
  uint64_t kib = 0;
  status >> kib;
  return status ? kib << 10 : 0;
}

void MemoryWatch::BeforeSaver() {
  const std::lock_guard<std::mutex> lock(mutex_);
  before_saver_ = std::min(before_saver_, BytesOfProcess("VmRSS"));
}

void MemoryWatch::AfterSaver() {
  const std::lock_guard<std::mutex> lock(mutex_);
  after_saver_ = std::max(after_saver_, BytesOfProcess("VmRSS"));
}

void MemoryWatch::BeforeFirstSave() {
  const std::lock_guard<std::mutex> lock(mutex_);
  peak_before_save_ = std::min(peak_before_save_, PeakBytes());
}

uint64_t MemoryWatch::PeakBytes() const { return BytesOfProcess("VmHWM"); }

uint64_t MemoryWatch::SaveBytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (peak_before_save_ == kNotYet) return 0;
  const uint64_t kept = std::max(after_saver_, before_saver_) - before_saver_;
  const uint64_t peak = std::max(PeakBytes(), peak_before_save_);
  return kept + (peak - peak_before_save_);
}

}  // namespace commsched::trainer
