#include "plan/explain/backend_report.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "plan/explain/table.h"
#include "plan/predict/cost_model.h"

namespace commsched {
namespace {

// What the plan takes the launch to need where nothing else is under way.
int64_t PlannedNs(const Plan& plan, const Launch& launch) {
  return OverheadNs(*plan.graph, launch, plan.profile) +
         LinkNs(*plan.graph, launch, plan.profile);
}

std::string Known(uint64_t number) {
  return number == 0 ? "-" : absl::StrCat(number);
}

}  // namespace

std::string BackendText(const Plan& plan, const BackendReport& report) {
  std::vector<Row> rows = {{"key", "algorithm", "predicted", "planned", "hosts",
                            "bytes over a link", "pieces", "messages"}};
  for (size_t k = 0; k < report.launches.size(); ++k) {
    const LaunchEstimate& one = report.launches[k];
    if (!one.known) continue;
    rows.push_back(
        {absl::StrCat("#", k), one.algorithm.empty() ? "-" : one.algorithm,
         one.predicted_ns == 0 ? "-" : Micros(one.predicted_ns),
         Micros(PlannedNs(plan, plan.launches[k])), Known(one.num_hosts),
         Known(one.link_bytes), Known(one.pieces), Known(one.messages)});
  }
  if (rows.size() == 1) return "";
  return absl::StrCat("backend '", report.backend, "', of each launch alone:\n",
                      Table(rows));
}

Json EstimateJson(const Plan& plan, const Launch& launch,
                  const LaunchEstimate& estimate) {
  return {{"algorithm", estimate.algorithm},
          {"predicted_ns", estimate.predicted_ns},
          {"planned_ns", PlannedNs(plan, launch)},
          {"num_hosts", estimate.num_hosts},
          {"link_bytes", estimate.link_bytes},
          {"pieces", estimate.pieces},
          {"messages", estimate.messages}};
}

}  // namespace commsched
