// What the records of a session's trace are called.
#ifndef COMMSCHED_SRC_SESSION_TRACE_NAMES_H_
#define COMMSCHED_SRC_SESSION_TRACE_NAMES_H_

#include "session/session_spec.h"
#include "trace/recorder.h"

namespace commsched {

RecordNames TraceNames(const SessionSpec& spec);

}  // namespace commsched

#endif  // COMMSCHED_SRC_SESSION_TRACE_NAMES_H_
