#ifndef COMMSCHED_SRC_TRACE_STAMPER_H_
#define COMMSCHED_SRC_TRACE_STAMPER_H_

#include <cstdint>

#include "base/clock.h"
#include "base/ticks.h"
#include "trace/recorder.h"

namespace commsched {

// Where the times of records come from: a clock, or what is cheaper and will do
// because records are read later.
//
// Thread-safe.
class Stamper {
 public:
  // Of a clock's nanoseconds. `clock` outlives the stamper.
  explicit Stamper(const Clock& clock) : clock_(&clock) {}
  // Of ticks instead, if they can stand in for `clock`. For stamps that only
  // the recorder sees.
  static Stamper InTicks(const Clock& clock) {
    Stamper stamper(clock);
    stamper.in_ticks_ = &clock == &SystemClock::Get() && HasTicks();
    return stamper;
  }

  // Record::in_ticks for what is stamped.
  bool in_ticks() const { return in_ticks_; }
  int64_t Now() const { return in_ticks_ ? ReadTicks() : clock_->NowNs(); }
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
      record.begin_ns = clock_->NowNs();
    }
    return record;
  }

 private:
  const Clock* clock_;
  bool in_ticks_ = false;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_TRACE_STAMPER_H_
