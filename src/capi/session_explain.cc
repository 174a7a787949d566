// What a session's backend makes of its plan.
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "capi/boundary.h"
#include "capi/handles.h"
#include "capi/structs.h"
#include "commsched/session.h"
#include "commsched/session_info.h"
#include "plan/explain/dot.h"
#include "plan/explain/explain.h"

using commsched::AtBoundary;
using commsched::RequireNonNull;

namespace commsched {
namespace {

LaunchEstimate ToInternal(const commsched_launch_estimate_t& estimate) {
  return {.known = true,
          .algorithm = estimate.algorithm == nullptr ? "" : estimate.algorithm,
          .predicted_ns = estimate.predicted_ns,
          .link_bytes = estimate.link_bytes,
          .messages = estimate.messages,
          .pieces = estimate.pieces,
          .num_hosts = estimate.num_hosts};
}

absl::StatusOr<BackendReport> ReportOf(const commsched_session& session) {
  BackendReport report;
  report.backend = session.context->world()->backend()->name;
  const size_t num_launches = session.session->plan().launches.size();
  for (size_t k = 0; k < num_launches; ++k) {
    const auto estimate = session.session->EstimateOf(k);
    report.launches.emplace_back();
    if (absl::IsUnimplemented(estimate.status())) continue;
    RETURN_IF_ERROR(estimate.status());
    report.launches.back() = ToInternal(*estimate);
  }
  return report;
}

absl::StatusOr<std::string> ExplainSession(const commsched_session& session,
                                           commsched_format_t format) {
  const Plan& plan = session.session->plan();
  if (format == COMMSCHED_DOT) return ExplainDot(plan);
  if (format > COMMSCHED_DOT) {
    return absl::InvalidArgumentError(
        absl::StrCat("format is ", format, ", outside ", int{COMMSCHED_TEXT},
                     "..", int{COMMSCHED_DOT}));
  }
  ASSIGN_OR_RETURN(const BackendReport report, ReportOf(session));
  return format == COMMSCHED_TEXT ? ExplainText(plan, report)
                                  : ExplainJson(plan, report);
}

}  // namespace
}  // namespace commsched

commsched_status_t commsched_session_launch_estimate(
    const commsched_session_t* session, uint64_t launch,
    commsched_launch_estimate_t* out_estimate) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"session", session}, {"out_estimate", out_estimate}}));
    ASSIGN_OR_RETURN(const commsched_launch_estimate_t estimate,
                     session->session->EstimateOf(launch));
    return commsched::WriteStruct(estimate, out_estimate,
                                  "commsched_launch_estimate_t");
  });
}

commsched_status_t commsched_session_explain(const commsched_session_t* session,
                                             commsched_format_t format,
                                             char** out_text) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"session", session}, {"out_text", out_text}}));
    ASSIGN_OR_RETURN(const std::string text,
                     commsched::ExplainSession(*session, format));
    ASSIGN_OR_RETURN(*out_text, commsched::DuplicateString(text));
    return absl::OkStatus();
  });
}
