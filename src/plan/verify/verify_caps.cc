#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/edge.h"
#include "plan/verify/verify_parts.h"

namespace commsched {
namespace {

// The launches of one lane over two steps.
struct LaneWeights {
  std::vector<uint32_t> numbers;  // key, plus the number of launches in step 1
  std::vector<uint64_t> sums;     // sums[i]: payload of the first i
};

std::vector<LaneWeights> WeighLanes(const Plan& plan) {
  const uint32_t n = static_cast<uint32_t>(plan.launches.size());
  std::vector<LaneWeights> lanes(plan.num_comm_lanes);
  for (LaneWeights& lane : lanes) lane.sums.push_back(0);
  for (uint32_t number = 0; number < 2 * n; ++number) {
    const Launch& launch = plan.launches[number % n];
    LaneWeights& lane = lanes[launch.lane];
    lane.numbers.push_back(number);
    lane.sums.push_back(lane.sums.back() + launch.payload_bytes);
  }
  return lanes;
}

}  // namespace

// Launches start in key order. So the most that is in flight at once is, for
// some launch that has just started, itself and all before it that are not
// known to be complete.
absl::Status VerifyCaps(const Plan& plan, const Witness& witness,
                        const HappensBefore& order) {
  const PlanOptions& options = plan.options;
  const uint64_t max_bytes = options.max_bytes_in_flight;
  const uint64_t max_launches = options.max_launches_in_flight;
  if (max_bytes == 0 && max_launches == 0) return absl::OkStatus();
  const std::vector<LaneWeights> lanes = WeighLanes(plan);
  const uint32_t n = static_cast<uint32_t>(plan.launches.size());
  for (uint32_t k = 0; k < n; ++k) {
    auto name = [&] { return DescribeNode(plan, RefOf(LaunchId(k))); };
    uint64_t others = 0;
    uint64_t bytes = plan.launches[k].payload_bytes;
    for (uint32_t l = 0; l < lanes.size(); ++l) {
      const LaneWeights& lane = lanes[l];
      if (lane.numbers.empty()) continue;
      const uint32_t known = order.LaunchesKnown(witness.of_launch[k], l);
      if (known == 0) {
        return absl::InternalError(
            absl::StrCat("plan: window: when ", name(),
                         " starts, any number of launches of "
                         "earlier steps may be in flight on lane ",
                         l));
      }
      const uint32_t before = static_cast<uint32_t>(
          std::lower_bound(lane.numbers.begin(), lane.numbers.end(), n + k) -
          lane.numbers.begin());
      others += before - known;
      bytes += lane.sums[before] - lane.sums[known];
    }
    if (max_launches != 0 && others + 1 > max_launches) {
      return absl::InternalError(absl::StrCat(
          "plan: window: when ", name(), " starts, ", others + 1,
          " launches may be in flight; the cap is ", max_launches));
    }
    if (max_bytes != 0 && others != 0 && bytes > max_bytes) {
      return absl::InternalError(
          absl::StrCat("plan: window: when ", name(), " starts, ", bytes,
                       " bytes may be in flight in ", others + 1,
                       " launches; the cap is ", max_bytes));
    }
  }
  return absl::OkStatus();
}

}  // namespace commsched
