// Who looks on at the steps of a session.
#ifndef COMMSCHED_SRC_EXEC_STEP_INSTRUMENTS_H_
#define COMMSCHED_SRC_EXEC_STEP_INSTRUMENTS_H_

#include <cstdint>

#include "base/clock.h"
#include "exec/launch_listener.h"
#include "exec/nvtx_ranges.h"
#include "exec/observers.h"
#include "trace/flight_record.h"
#include "trace/recorder.h"

namespace commsched {

// The instruments of a session, as its issuer and its dispatcher get them: who
// is null does not look on. All outlive whoever has them.
struct StepInstruments {
  Recorder* recorder = nullptr;  // the trace, from which blame is computed
  FlightRecord* flight = nullptr;
  Observers* observers = nullptr;
  NvtxRanges* ranges = nullptr;  // of NVIDIA's tools
  LaunchListener* listener = nullptr;
  // The watchdog's: how long a launch may take. 0: it does not look.
  int64_t launch_timeout_ns = 0;
  // The time that all of them tell. Another one only if nobody but the caller
  // pumps the issuer.
  const Clock* clock = &SystemClock::Get();
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_STEP_INSTRUMENTS_H_
