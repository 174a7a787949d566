// What the exporters of records share.
#ifndef COMMSCHED_SRC_TRACE_TRACE_FILE_H_
#define COMMSCHED_SRC_TRACE_TRACE_FILE_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "trace/recorder.h"

namespace commsched {

// Takes the next piece of an export.
using TraceSink = absl::FunctionRef<void(absl::string_view)>;

// The records from the first step begin held on (all, if none is held): before
// it lies what is left of a step that has been overwritten in part. Intervals
// that straddle it are cut there. Sorted by begin.
std::vector<Record> RecordsFromFirstStep(const Recorder& recorder);

// The same, and what channels launched since then.
std::vector<Record> DrawnRecords(const Recorder& recorder);

// The op's name, or "op#7" if it has none.
std::string OpNameOf(const RecordNames& names, uint32_t op);

// Writes what `write` hands to its sink to a file beside `path`, then renames
// it. `rank` keeps the unfinished files of ranks apart. kUnavailable if the
// file, which is called `what`, cannot be written; never leaves half a file.
absl::Status WriteTraceFile(absl::string_view path, int rank,
                            absl::FunctionRef<void(TraceSink)> write,
                            absl::string_view what = "trace");

}  // namespace commsched

#endif  // COMMSCHED_SRC_TRACE_TRACE_FILE_H_
