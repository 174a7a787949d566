#include "ucx/launch_log.h"

#include <algorithm>

namespace commsched::ucx {

LaunchReport LaunchLog::ReportFrom(uint64_t begin) const {
  LaunchReport report;
  report.begin = std::max(begin, num_ < kKept ? 0 : num_ - kKept);
  for (uint64_t number = report.begin;
       number < num_ && report.count < LaunchReport::kMost; ++number) {
    report.launches[report.count++] = entries_[number % kKept];
  }
  return report;
}

std::string LaunchLog::DifferenceFrom(const LaunchReport& report,
                                      const std::string& other,
                                      const std::string& self) const {
  const uint32_t count = std::min(report.count, LaunchReport::kMost);
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t number = report.begin + i;
    if (number >= num_ || number + kKept < num_) continue;
    const uint32_t theirs = report.launches[i];
    const uint32_t own = entries_[number % kKept];
    const std::string difference =
        LaunchEntry::Difference(theirs, other, own, self);
    if (difference.empty()) continue;
    return "launch #" + std::to_string(number) + ": " + difference;
  }
  return "";
}

}  // namespace commsched::ucx
