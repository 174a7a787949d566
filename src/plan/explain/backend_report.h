// How the backend of a session does the launches of its plan.
#ifndef COMMSCHED_SRC_PLAN_EXPLAIN_BACKEND_REPORT_H_
#define COMMSCHED_SRC_PLAN_EXPLAIN_BACKEND_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "plan/plan.h"

namespace commsched {

// Fields as in commsched/launch_estimate.h.
struct LaunchEstimate {
  bool known = false;  // else the backend does not tell
  std::string algorithm;
  int64_t predicted_ns = 0;
  uint64_t link_bytes = 0;
  uint64_t messages = 0;
  uint32_t pieces = 0;
  uint32_t num_hosts = 0;
};

struct BackendReport {
  std::string backend;
  std::vector<LaunchEstimate> launches;  // in key order; empty: none is known
};

// A line per launch that is known, beside what the plan was made by; empty if
// none is.
std::string BackendText(const Plan& plan, const BackendReport& report);

// Of one that is known.
nlohmann::ordered_json EstimateJson(const Plan& plan, const Launch& launch,
                                    const LaunchEstimate& estimate);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_EXPLAIN_BACKEND_REPORT_H_
