#include "exec/launch_instruments.h"

#include <utility>

namespace commsched {
namespace {

// Only of launches that are polled: others are issued when they are due.
bool TracesHolds(const LaunchInstruments::Spec& spec) {
  return spec.recorder != nullptr && !spec.program->issue_inline &&
         !spec.program->enqueue;
}

}  // namespace

LaunchInstruments::LaunchInstruments(const Spec& spec)
    : spec_(spec),
      program_(*spec.program),
      times_ends_(spec.recorder != nullptr || spec.observers != nullptr),
      listens_(times_ends_ || spec.flight != nullptr),
      holds_(static_cast<uint32_t>(program_.launches.size()),
             TracesHolds(spec)),
      writer_(spec.recorder) {}

void LaunchInstruments::Completed(uint32_t launch, uint64_t step,
                                  int64_t started_ns, LaunchMark* mark) {
  mark->hold.started_ns = started_ns;
  if (spec_.flight == nullptr) return;
  if (started_ns != 0) {
    AddFlight(FlightEvent::kStart, launch, step, started_ns);
  }
  AddFlight(FlightEvent::kComplete, launch, step, spec_.clock->NowNs());
}

void LaunchInstruments::TellObservers(uint32_t launch, uint64_t step,
                                      const LaunchMark& mark, int64_t end_ns) {
  if (program_.enqueue) {
    spec_.observers->Issued(launch, step, mark.begin_ns);
  }
  CodecError error;
  const bool coded = program_.plan->launches[launch].coded;
  if (coded) error = spec_.codec->ErrorOf(launch);
  spec_.observers->Retired(launch, step, mark.begin_ns, end_ns,
                           coded ? &error : nullptr);
}

void LaunchInstruments::Failed(const absl::Status& status) {
  if (spec_.flight == nullptr) return;
  spec_.flight->Fail(status.message(), spec_.clock->NowNs());
}

void LaunchInstruments::TellFailed(const Failure& failure) {
  if (spec_.observers == nullptr || !failure.failed()) return;
  if (std::exchange(told_failed_, true)) return;
  spec_.observers->Failed(failure.status(), spec_.clock->NowNs());
}

}  // namespace commsched
