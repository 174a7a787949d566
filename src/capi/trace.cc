#include "commsched/trace.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "capi/boundary.h"
#include "capi/handles.h"
#include "capi/structs.h"
#include "trace/blame.h"
#include "trace/flight_comparison.h"
#include "trace/flight_record.h"
#include "trace/kineto.h"
#include "trace/perfetto.h"
#include "trace/prometheus.h"

using commsched::AtBoundary;
using commsched::AtVoidBoundary;
using commsched::RequireNonNull;

namespace commsched {
namespace {

void FindSteps(const commsched_trace& trace)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(trace.mu) {
  trace.steps = ComputeStepMetrics(*trace.recorder);
  trace.blames.clear();
  trace.has_steps = true;
}

absl::Status CheckStep(const commsched_trace& trace, uint64_t index)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(trace.mu) {
  if (!trace.has_steps) FindSteps(trace);
  if (index < trace.steps.size()) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("step ", index, " is not in the trace, which holds ",
                   trace.steps.size(), " complete steps"));
}

absl::StatusOr<StepMetrics> StepAt(const commsched_trace& trace,
                                   uint64_t index) {
  MutexLock lock(&trace.mu);
  RETURN_IF_ERROR(CheckStep(trace, index));
  return trace.steps[index];
}

absl::StatusOr<StepBlame> BlameAt(const commsched_trace& trace,
                                  uint64_t index) {
  MutexLock lock(&trace.mu);
  RETURN_IF_ERROR(CheckStep(trace, index));
  if (trace.blames.empty()) {
    trace.blames = ComputeBlame(*trace.recorder).steps;
  }
  // A session that has run since the steps were counted.
  if (index >= trace.blames.size() ||
      trace.blames[index].step != trace.steps[index].step) {
    return absl::OutOfRangeError(
        absl::StrCat("step ", trace.steps[index].step,
                     " is no longer in the trace; count its steps again"));
  }
  return trace.blames[index];
}

commsched_blame_t ToPublic(const StepBlame& step) {
  commsched_blame_t result = commsched_blame_init();
  result.step = step.step;
  result.exposed_ns = step.blame.total_ns();
  result.cap_ns = step.blame.cap_ns;
  result.dependency_ns = step.blame.dependency_ns;
  result.order_ns = step.blame.order_ns;
  result.link_ns = step.blame.link_ns;
  result.straggler_ns = step.blame.straggler_ns;
  return result;
}

absl::StatusOr<std::string> Explain(const Recorder& recorder,
                                    commsched_format_t format) {
  switch (format) {
    case COMMSCHED_TEXT:
      return BlameText(recorder);
    case COMMSCHED_JSON:
      return BlameJson(recorder);
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("format is ", format, ", outside ", int{COMMSCHED_TEXT},
                       "..", int{COMMSCHED_JSON}));
  }
}

commsched_step_metrics_t ToPublic(const StepMetrics& metrics) {
  commsched_step_metrics_t result = commsched_step_metrics_init();
  result.step = metrics.step;
  result.step_ns = metrics.step_ns;
  result.compute_ns = metrics.compute_ns;
  result.comm_ns = metrics.comm_ns;
  result.exposed_ns = metrics.exposed_ns;
  result.num_launches = metrics.num_launches;
  result.num_collectives = metrics.num_collectives;
  result.peak_bytes_in_flight = metrics.peak_bytes_in_flight;
  return result;
}

absl::StatusOr<std::string> CompareFlights(absl::Span<const char* const> paths,
                                           commsched_format_t format) {
  if (format != COMMSCHED_TEXT && format != COMMSCHED_JSON) {
    return absl::InvalidArgumentError(
        absl::StrCat("format is ", format, ", not TEXT (", int{COMMSCHED_TEXT},
                     ") or JSON (", int{COMMSCHED_JSON}, ")"));
  }
  std::vector<FlightLog> logs;
  for (const char* path : paths) {
    RETURN_IF_ERROR(RequireNonNull({{"paths[]", path}}));
    ASSIGN_OR_RETURN(FlightLog log, LoadFlightRecord(path));
    logs.push_back(std::move(log));
  }
  ASSIGN_OR_RETURN(const FlightComparison comparison,
                   FlightComparison::Make(logs));
  return format == COMMSCHED_TEXT ? comparison.Text() : comparison.Json();
}

}  // namespace
}  // namespace commsched

commsched_status_t commsched_trace_create(commsched_context_t* context,
                                          uint64_t capacity,
                                          commsched_trace_t** out_trace) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"context", context}, {"out_trace", out_trace}}));
    ASSIGN_OR_RETURN(auto recorder, commsched::Recorder::Create(capacity));
    auto trace = std::make_unique<commsched_trace>();
    trace->context = context->context;
    trace->recorder = std::move(recorder);
    *out_trace = trace.release();
    return absl::OkStatus();
  });
}

void commsched_trace_destroy(commsched_trace_t* trace) {
  AtVoidBoundary([&] { delete trace; });
}

uint64_t commsched_trace_num_steps(const commsched_trace_t* trace) {
  if (trace == nullptr) return 0;
  uint64_t num_steps = 0;
  AtVoidBoundary([&] {
    commsched::MutexLock lock(&trace->mu);
    commsched::FindSteps(*trace);
    num_steps = trace->steps.size();
  });
  return num_steps;
}

commsched_status_t commsched_trace_step_metrics(
    const commsched_trace_t* trace, uint64_t index,
    commsched_step_metrics_t* out_metrics) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"trace", trace}, {"out_metrics", out_metrics}}));
    ASSIGN_OR_RETURN(const auto metrics, commsched::StepAt(*trace, index));
    return commsched::WriteStruct(commsched::ToPublic(metrics), out_metrics,
                                  "commsched_step_metrics_t");
  });
}

commsched_status_t commsched_trace_recent_step(
    const commsched_trace_t* trace, uint64_t step,
    commsched_step_metrics_t* out_metrics) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"trace", trace}, {"out_metrics", out_metrics}}));
    const auto metrics = commsched::ComputeRecentStep(*trace->recorder, step);
    if (!metrics.has_value()) {
      return absl::NotFoundError(
          absl::StrCat("step ", step, " is no longer in the trace"));
    }
    return commsched::WriteStruct(commsched::ToPublic(*metrics), out_metrics,
                                  "commsched_step_metrics_t");
  });
}

commsched_status_t commsched_trace_step_blame(const commsched_trace_t* trace,
                                              uint64_t index,
                                              commsched_blame_t* out_blame) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"trace", trace}, {"out_blame", out_blame}}));
    ASSIGN_OR_RETURN(const auto blame, commsched::BlameAt(*trace, index));
    return commsched::WriteStruct(commsched::ToPublic(blame), out_blame,
                                  "commsched_blame_t");
  });
}

commsched_status_t commsched_trace_explain(const commsched_trace_t* trace,
                                           commsched_format_t format,
                                           char** out_text) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"trace", trace}, {"out_text", out_text}}));
    ASSIGN_OR_RETURN(const auto text,
                     commsched::Explain(*trace->recorder, format));
    ASSIGN_OR_RETURN(*out_text, commsched::DuplicateString(text));
    return absl::OkStatus();
  });
}

commsched_status_t commsched_trace_write_kineto(const commsched_trace_t* trace,
                                                const char* path) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"trace", trace}, {"path", path}}));
    return commsched::WriteKineto(*trace->recorder, path);
  });
}

commsched_status_t commsched_trace_write_perfetto(
    const commsched_trace_t* trace, const char* path) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"trace", trace}, {"path", path}}));
    return commsched::WritePerfetto(*trace->recorder, path);
  });
}

commsched_status_t commsched_trace_write_metrics(const commsched_trace_t* trace,
                                                 const char* path) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"trace", trace}, {"path", path}}));
    return commsched::WriteTraceMetrics(*trace->recorder, path);
  });
}

commsched_status_t commsched_flight_record_read(const char* path,
                                                char** out_text) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"path", path}, {"out_text", out_text}}));
    ASSIGN_OR_RETURN(const std::string text, commsched::ReadFlightRecord(path));
    ASSIGN_OR_RETURN(*out_text, commsched::DuplicateString(text));
    return absl::OkStatus();
  });
}

commsched_status_t commsched_flight_records_compare(const char* const* paths,
                                                    uint32_t num_paths,
                                                    commsched_format_t format,
                                                    char** out_text) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"paths", paths}, {"out_text", out_text}}));
    ASSIGN_OR_RETURN(const std::string text,
                     commsched::CompareFlights({paths, num_paths}, format));
    ASSIGN_OR_RETURN(*out_text, commsched::DuplicateString(text));
    return absl::OkStatus();
  });
}
