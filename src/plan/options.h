#ifndef COMMSCHED_SRC_PLAN_OPTIONS_H_
#define COMMSCHED_SRC_PLAN_OPTIONS_H_

#include <cstdint>
#include <vector>

namespace commsched {

inline constexpr uint32_t kMaxCommLanes = 16;

enum class Schedule : uint8_t { kOverlap = 0, kSerial = 1 };

// Meaning of the fields: include/commsched/plan.h.
struct PlanOptions {
  Schedule schedule = Schedule::kOverlap;
  bool deterministic = false;
  uint32_t max_launches_in_flight = 0;  // 0: no limit
  uint64_t max_bytes_in_flight = 0;     // 0: no limit
  uint32_t num_comm_lanes = 1;
  uint64_t coalesce_bytes = 0;  // 0: no merging
  uint64_t arena_bytes = 0;     // 0: no limit
};

struct CostProfile {
  double link_bytes_per_s = 10e9;
  int64_t link_latency_ns = 0;
  int64_t launch_ns = 20000;
  double copy_bytes_per_s = 5e9;
  double flops_per_s = 50e9;
  double memory_bytes_per_s = 10e9;
  uint32_t num_ranks_sharing = 1;
  uint32_t num_cores = 1;
  std::vector<int64_t> op_cost_ns;  // empty: none measured
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_OPTIONS_H_
