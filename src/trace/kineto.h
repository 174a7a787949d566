#ifndef COMMSCHED_SRC_TRACE_KINETO_H_
#define COMMSCHED_SRC_TRACE_KINETO_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "trace/recorder.h"

namespace commsched {

// The records as Chrome trace JSON in Kineto's dialect: what Holistic Trace
// Analysis 0.5 reads unchanged (rules: docs/trace_formats.md).
std::string KinetoJson(const Recorder& recorder);

// kUnavailable if the file cannot be written; never leaves half a file.
absl::Status WriteKineto(const Recorder& recorder, absl::string_view path);

}  // namespace commsched

#endif  // COMMSCHED_SRC_TRACE_KINETO_H_
