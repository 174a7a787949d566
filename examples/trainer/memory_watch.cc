#include "examples/trainer/memory_watch.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace commsched::trainer {
namespace {

uint64_t BytesOfProcess(absl::string_view field) {
  std::ifstream file("/proc/self/status");
  std::ostringstream text;
  text << file.rdbuf();
  return BytesInStatus(text.str(), field);
}

}  // namespace

uint64_t BytesInStatus(absl::string_view status, absl::string_view field) {
  for (absl::string_view line : absl::StrSplit(status, '\n')) {
    if (!absl::ConsumePrefix(&line, field) ||
        !absl::ConsumePrefix(&line, ":") ||
        !absl::ConsumeSuffix(&line, " kB")) {
      continue;
    }
    uint64_t kib = 0;
    return absl::SimpleAtoi(absl::StripAsciiWhitespace(line), &kib) ? kib << 10
                                                                    : 0;
  }
  return 0;
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
