#include "examples/trainer/memory_watch.h"

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

void KeepLeast(uint64_t value, std::atomic<uint64_t>* least) {
  uint64_t seen = least->load();
  while (value < seen && !least->compare_exchange_weak(seen, value)) {
  }
}

void KeepMost(uint64_t value, std::atomic<uint64_t>* most) {
  uint64_t seen = most->load();
  while (value > seen && !most->compare_exchange_weak(seen, value)) {
  }
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
  KeepLeast(BytesOfProcess("VmRSS"), &before_saver_);
}

void MemoryWatch::AfterSaver() {
  KeepMost(BytesOfProcess("VmRSS"), &after_saver_);
}

void MemoryWatch::BeforeFirstSave() {
  KeepLeast(PeakBytes(), &peak_before_save_);
}

uint64_t MemoryWatch::PeakBytes() const { return BytesOfProcess("VmHWM"); }

uint64_t MemoryWatch::SaveBytes() const {
  const uint64_t before = before_saver_.load();
  const uint64_t after = after_saver_.load();
  const uint64_t kept = after > before ? after - before : 0;
  const uint64_t begun_at = peak_before_save_.load();
  if (begun_at == kNotYet) return 0;
  const uint64_t peak = PeakBytes();
  return kept + (peak > begun_at ? peak - begun_at : 0);
}

}  // namespace commsched::trainer
