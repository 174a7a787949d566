#include "plan/window.h"

#include <algorithm>
#include <cstdint>

namespace commsched {
namespace {

// Launches are numbered over two steps: [0, n) is the step before, [n, 2n) the
// step in question. Returns for each of the latter the last launch that must be
// complete before it starts.
std::vector<uint32_t> LastThatMustBeComplete(const Plan& plan) {
  const uint32_t n = static_cast<uint32_t>(plan.launches.size());
  const PlanOptions& options = plan.options;
  auto payload = [&](uint32_t number) {
    return plan.launches[number % n].payload_bytes;
  };
  std::vector<uint32_t> last(n, 0);
  uint32_t begin = 0;  // what is in flight with `number` starts here
  uint64_t bytes = 0;
  for (uint32_t number = 0; number < 2 * n; ++number) {
    bytes += payload(number);
    if (options.max_bytes_in_flight != 0) {
      while (begin < number && bytes > options.max_bytes_in_flight) {
        bytes -= payload(begin++);
      }
    }
    if (options.max_launches_in_flight != 0) {
      while (number - begin >= options.max_launches_in_flight) {
        bytes -= payload(begin++);
      }
    }
    if (number >= n) last[number - n] = begin == 0 ? 0 : begin - 1;
  }
  return last;
}

}  // namespace

std::vector<Edge> WindowEdges(const Plan& plan) {
  std::vector<Edge> edges;
  const PlanOptions& options = plan.options;
  const uint32_t n = static_cast<uint32_t>(plan.launches.size());
  if (n == 0) return edges;
  if (options.max_launches_in_flight == 0 && options.max_bytes_in_flight == 0) {
    return edges;
  }
  std::vector<std::vector<uint32_t>> of_lane(plan.num_comm_lanes);
  for (uint32_t number = 0; number < 2 * n; ++number) {
    of_lane[plan.launches[number % n].lane].push_back(number);
  }
  edges.reserve(size_t{n} * of_lane.size());
  const std::vector<uint32_t> last = LastThatMustBeComplete(plan);
  for (uint32_t launch = 0; launch < n; ++launch) {
    for (const std::vector<uint32_t>& lane : of_lane) {
      if (lane.empty()) continue;
      auto after = std::upper_bound(lane.begin(), lane.end(), last[launch]);
      const uint32_t number = after == lane.begin() ? lane.front() : after[-1];
      edges.push_back({.from = RefOf(LaunchId(number % n)),
                       .to = RefOf(LaunchId(launch)),
                       .distance = number < n ? 1 : 0,
                       .cause = WaitCause::kWindow});
    }
  }
  return edges;
}

}  // namespace commsched
