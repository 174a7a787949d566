#ifndef COMMSCHED_SRC_TRACE_PERFETTO_H_
#define COMMSCHED_SRC_TRACE_PERFETTO_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "trace/recorder.h"

namespace commsched {

// The records as a Perfetto trace (TrackEvent protocol buffers), in whole
// nanoseconds: open the file in ui.perfetto.dev. Files of several ranks can be
// put behind one another (`cat`) into one: their tracks do not mix
// (docs/trace_formats.md).
std::string PerfettoTrace(const Recorder& recorder);

// kUnavailable if the file cannot be written; never leaves half a file.
absl::Status WritePerfetto(const Recorder& recorder, absl::string_view path);

}  // namespace commsched

#endif  // COMMSCHED_SRC_TRACE_PERFETTO_H_
