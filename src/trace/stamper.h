#ifndef COMMSCHED_SRC_TRACE_STAMPER_H_
#define COMMSCHED_SRC_TRACE_STAMPER_H_

#include <cstdint>

#include "base/clock.h"
#include "base/ticks.h"
#include "trace/recorder.h"

namespace commsched {

// Where the times of records come from: a clock, or, where they can stand in
// for it, ticks, which are cheaper and will do because records are read later.
// For what only the recorder sees.
//
// Thread-safe.
class Stamper {
 public:
  // `clock` outlives the stamper.
  explicit Stamper(const Clock& clock)
      : clock_(clock), in_ticks_(&clock == &SystemClock::Get() && HasTicks()) {}

  // Record::in_ticks for what is stamped.
  bool in_ticks() const { return in_ticks_; }
  int64_t Now() const { return in_ticks_ ? ReadTicks() : clock_.NowNs(); }
  // The record of a step that begins at this moment.
  Record StepBegin(uint64_t step) const {
    Record record;
    record.kind = RecordKind::kStepBegin;
    record.step = step;
    if (in_ticks_) {
      const TickAnchor now = ReadTickAnchor();
      record.begin_ns = now.ns;
      record.value = static_cast<uint64_t>(now.ticks);
    } else {
      record.begin_ns = clock_.NowNs();
    }
    return record;
  }

 private:
  const Clock& clock_;
  const bool in_ticks_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_TRACE_STAMPER_H_
