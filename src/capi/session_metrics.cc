// A session's counters as Prometheus reads them.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "capi/boundary.h"
#include "capi/handles.h"
#include "commsched/session.h"
#include "commsched/session_info.h"
#include "trace/prometheus.h"

namespace commsched {
namespace {

double Seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

std::string SessionMetricsText(const Session& session, int rank) {
  const SessionCounters counters = session.counters();
  const PrometheusWriter::Labels labels = {{"rank", absl::StrCat(rank)}};
  PrometheusWriter writer;
  const auto write = [&](const char* name, const char* type, const char* help,
                         uint64_t value) {
    writer.Family(name, type, help);
    writer.Sample(labels, static_cast<double>(value));
  };
  write("commsched_session_steps_total", "counter", "Steps ended.",
        counters.steps);
  write("commsched_session_launches_total", "counter", "Launches issued.",
        counters.launches);
  write("commsched_session_collectives_total", "counter",
        "Collectives that the launches carried.", counters.collectives);
  write("commsched_session_bytes_total", "counter", "Payload of the launches.",
        counters.bytes);
  writer.Family("commsched_session_stall_seconds_total", "counter",
                "Time in which the next launch could not go out, by cause.");
  const std::pair<const char*, int64_t> stalls[] = {
      {"due", counters.stall_due_ns},
      {"wait", counters.stall_wait_ns},
      {"window", counters.stall_window_ns},
      {"requests", counters.stall_requests_ns}};
  for (const auto& [cause, ns] : stalls) {
    PrometheusWriter::Labels of_cause = labels;
    of_cause.push_back({"cause", cause});
    writer.Sample(of_cause, Seconds(ns));
  }
  write("commsched_session_peak_launches_in_flight", "gauge",
        "Most launches in flight at once.", counters.peak_launches_in_flight);
  write("commsched_session_peak_bytes_in_flight", "gauge",
        "Most payload in flight at once.", counters.peak_bytes_in_flight);
  write("commsched_session_arena_bytes", "gauge",
        "Memory of the session's own.", counters.arena_bytes);
  write("commsched_session_registered_bytes", "gauge",
        "Memory that the backend was told of.", counters.registered_bytes);
  write("commsched_session_backend_peak_bytes", "gauge",
        "Most device memory that the backend has held for the rank at once.",
        counters.backend_peak_bytes);
  write("commsched_session_allocation_retries_total", "counter",
        "Allocations that were repeated after memory was given back.",
        counters.allocation_retries);
  write("commsched_session_launch_allocations_total", "counter",
        "Allocations by launches of the rank, which may wait for the device.",
        counters.launch_allocations);
  writer.Family("commsched_session_failures_total", "counter",
                "1 once the session has failed, with the code.");
  const absl::Status status = session.status();
  PrometheusWriter::Labels of_code = labels;
  of_code.push_back({"code", absl::StatusCodeToString(status.code())});
  writer.Sample(of_code, status.ok() ? 0 : 1);
  return writer.text();
}

}  // namespace
}  // namespace commsched

commsched_status_t commsched_session_metrics_text(
    const commsched_session_t* session, char** out_text) {
  return commsched::AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(commsched::RequireNonNull(
        {{"session", session}, {"out_text", out_text}}));
    ASSIGN_OR_RETURN(*out_text,
                     commsched::DuplicateString(commsched::SessionMetricsText(
                         *session->session, session->context->rank())));
    return absl::OkStatus();
  });
}
