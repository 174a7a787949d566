#include "comm/lane_budget.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace commsched {

// The backend has refused what it does not take.
LaneBudget LaneBudget::Of(int multiprocessors, absl::string_view config) {
  LaneBudget budget;
  if (multiprocessors > 0) {
    budget.total = static_cast<uint32_t>(multiprocessors);
  }
  for (const absl::string_view field : absl::StrSplit(config, ',')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(field, absl::MaxSplits('=', 1));
    uint32_t value = 0;
    if (!absl::SimpleAtoi(pair.second, &value) || value == 0) continue;
    if (pair.first == "max_ctas") budget.total = value;
    if (pair.first == "lanes") budget.num_lanes = value;
    if (pair.first == "min_ctas") budget.least = value;
  }
  return budget;
}

uint32_t LaneBudget::Share(size_t num_keys) const {
  const size_t lanes = std::max<size_t>(num_lanes, num_keys);
  const auto share = static_cast<uint32_t>(total / lanes);
  return std::clamp(share, std::min(least, kMostCtas), kMostCtas);
}

uint32_t LaneBudget::NumLanes(size_t num_keys) const {
  return std::max(total / Share(num_keys), static_cast<uint32_t>(num_keys));
}

}  // namespace commsched
