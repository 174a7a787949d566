#ifndef COMMSCHED_SRC_PLAN_OPTIONS_H_
#define COMMSCHED_SRC_PLAN_OPTIONS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plan/host_links.h"

namespace commsched {

inline constexpr uint32_t kMaxCommLanes = 16;
// PlanOptions::coalesce_bytes: merge what costs less merged.
inline constexpr uint64_t kCoalesceAuto = UINT64_MAX;

enum class Schedule : uint8_t { kOverlap = 0, kSerial = 1 };

// In which order due launches go.
enum class Priority : uint8_t {
  kAuto = 0,  // by need where that is predicted to gain, else as they get ready
  kOff = 1,   // as they get ready
  kOn = 2,    // by need
};

// What a codec makes of data, as far as planning is concerned: of every
// `block_elements` elements, the last block filled up, `block_bytes` bytes.
struct CodecModel {
  std::string name;  // empty: none
  uint64_t block_elements = 1;
  uint64_t block_bytes = 4;
  uint32_t dtypes = 0;  // bit d: takes elements of DType d
  friend bool operator==(const CodecModel&, const CodecModel&) = default;
};

// What the backend that will run a plan can do, as far as planning is
// concerned (include/commsched/plugin.h).
struct BackendModel {
  bool lists = true;          // takes several members in a launch
  bool deterministic = true;  // sums in the order of the tree if asked to
  bool strided = true;        // moves parts that are not dense
  bool point_to_point = true;
  // A launch starts once the one before it on its lane is complete, as on a
  // stream of a device; else launches of a lane are under way side by side.
  bool serial_lanes = false;
  bool host_sums = false;  // what leaves a host is summed up (host_links.h)
  uint32_t kinds = UINT32_MAX;       // bit k: CollectiveKind k
  uint32_t dtypes = UINT32_MAX;      // bit d: DType d
  uint32_t reductions = UINT32_MAX;  // bit r: ReduceOp r
  friend bool operator==(const BackendModel&, const BackendModel&) = default;
};

class Policy;  // plan/policy.h

// Meaning of the fields: include/commsched/plan.h.
struct PlanOptions {
  Schedule schedule = Schedule::kOverlap;
  bool deterministic = false;
  uint32_t max_launches_in_flight = 0;  // 0: no limit
  uint64_t max_bytes_in_flight = 0;     // 0: no limit
  uint32_t num_comm_lanes = 1;
  uint64_t coalesce_bytes = 0;  // 0: no merging; kCoalesceAuto: by cost
  uint64_t arena_bytes = 0;     // 0: no limit
  Priority priority = Priority::kAuto;
  uint64_t partition_bytes = 0;  // split larger collectives; 0: none
  CodecModel codec;
  BackendModel backend;
  // How collectives of all ranks cross hosts. No part of the fingerprint: which
  // of them are encoded is.
  HostLinks hosts;
  // Replaces the decisions of coalesce and prioritize; null: ours. Not part of
  // the fingerprint: what it decides is.
  std::shared_ptr<const Policy> policy;
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
