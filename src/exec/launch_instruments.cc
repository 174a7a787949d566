#include "exec/launch_instruments.h"

#include <utility>

namespace commsched {
namespace {

// Only of launches that are polled: others are issued when they are due.
bool TracesHolds(const Program& program, const StepInstruments& instruments) {
  return instruments.recorder != nullptr && !program.issue_inline &&
         !program.enqueue;
}

}  // namespace

LaunchInstruments::LaunchInstruments(const Program& program,
                                     const CodecRunner* codec,
                                     const StepInstruments& instruments)
    : program_(program),
      codec_(codec),
      told_(instruments),
      times_ends_(told_.recorder != nullptr || told_.observers != nullptr),
      listens_(times_ends_ || told_.flight != nullptr),
      holds_(static_cast<uint32_t>(program.launches.size()),
             TracesHolds(program, told_)),
      writer_(told_.recorder) {}

void LaunchInstruments::Completed(uint32_t launch, uint64_t step,
                                  int64_t started_ns, LaunchMark* mark) {
  mark->hold.started_ns = started_ns;
  if (told_.flight == nullptr) return;
  if (started_ns != 0) {
    AddFlight(FlightEvent::kStart, launch, step, started_ns);
  }
  AddFlight(FlightEvent::kComplete, launch, step, told_.clock->NowNs());
}

void LaunchInstruments::TellObservers(uint32_t launch, uint64_t step,
                                      const LaunchMark& mark, int64_t end_ns) {
  if (program_.enqueue) {
    told_.observers->Issued(launch, step, mark.begin_ns);
  }
  CodecError error;
  const bool coded = program_.plan->launches[launch].coded;
  if (coded) error = codec_->ErrorOf(launch);
  told_.observers->Retired(launch, step, mark.begin_ns, end_ns,
                           coded ? &error : nullptr);
}

void LaunchInstruments::Failed(const absl::Status& status) {
  if (told_.flight == nullptr) return;
  told_.flight->Fail(status.message(), told_.clock->NowNs());
}

void LaunchInstruments::TellFailed(const Failure& failure) {
  if (told_.observers == nullptr || !failure.failed()) return;
  if (std::exchange(told_failed_, true)) return;
  told_.observers->Failed(failure.status(), told_.clock->NowNs());
}

}  // namespace commsched
