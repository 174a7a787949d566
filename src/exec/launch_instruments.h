// Who is told what becomes of launches.
#ifndef COMMSCHED_SRC_EXEC_LAUNCH_INSTRUMENTS_H_
#define COMMSCHED_SRC_EXEC_LAUNCH_INSTRUMENTS_H_

#include <cstdint>

#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "exec/codec_runner.h"
#include "exec/failure.h"
#include "exec/hold_clock.h"
#include "exec/program.h"
#include "exec/step_instruments.h"
#include "trace/recorder.h"

namespace commsched {

// What the instruments remember of a launch between its issue and its end. Who
// issues it keeps the mark for them.
struct LaunchMark {
  int64_t begin_ns = 0;       // 0: nobody asked for the time
  uint64_t window_bytes = 0;  // in flight at its issue, itself included
  Hold hold;                  // if holds are traced
};

// The instruments of an issuer: the trace (Recorder), what held launches back
// (HoldClock), the flight record, the observers and the ranges of NVIDIA's
// tools; and who has to know of ends (LaunchListener). Issue modes tell this
// class what happens and know none of the six; a new instrument is a member
// here.
//
// The clock is read only if somebody wants the time, which the caller may have
// read already. Steps count from 0, whatever the program calls the first.
//
// Due, NoteReady, Failed, StallNs: any thread. Issuing, Replaying, Issued: the
// thread that issues. All else: the thread that retires, which is the same one
// unless the program is enqueued.
class LaunchInstruments {
 public:
  // `codec`: of a program with coded launches. All outlive the instruments.
  LaunchInstruments(const Program& program, const CodecRunner* codec,
                    const StepInstruments& instruments);
  LaunchInstruments(const LaunchInstruments&) = delete;
  LaunchInstruments& operator=(const LaunchInstruments&) = delete;

  // Whether anybody wants to know soon that launches have ended.
  bool tells_ends() const { return times_ends_ || told_.listener != nullptr; }
  // Whether anything is to be marked of a launch.
  bool listens() const { return listens_; }

  // ---- The host ----

  // Launches below `number` are about to be due.
  void Due(uint64_t number) {
    if (ABSL_PREDICT_TRUE(told_.flight == nullptr)) return;
    told_.flight->Add(FlightEvent::kDue, number, told_.clock->NowNs());
  }
  // Whether NoteReady() is wanted.
  bool notes_ready() const { return holds_.traces(); }
  // A producer of `launch` has had its `after` in `step`. Before Due().
  void NoteReady(uint32_t launch, uint64_t step, int64_t now_ns) {
    holds_.NoteReady(launch, step, now_ns);
  }

  // ---- A launch ----

  // It is about to be staged and handed to the backend. `now_ns`: the current
  // time if the caller has just read it, else 0.
  LaunchMark Issuing(uint32_t launch, uint64_t step, uint64_t window_bytes,
                     int64_t now_ns) {
    if (ABSL_PREDICT_FALSE(told_.ranges != nullptr)) {
      told_.ranges->LaunchBegun(launch);
    }
    return Replaying(launch, step, window_bytes, now_ns);
  }
  // The same for one that a graph hands to the device.
  LaunchMark Replaying(uint32_t launch, uint64_t step, uint64_t window_bytes,
                       int64_t now_ns) {
    LaunchMark mark;
    if (ABSL_PREDICT_TRUE(!listens_)) return mark;
    mark.begin_ns = now_ns == 0 ? told_.clock->NowNs() : now_ns;
    mark.window_bytes = window_bytes;
    if (holds_.traces()) {
      mark.hold = holds_.Issued(launch, step, mark.begin_ns);
    }
    AddFlight(FlightEvent::kIssue, launch, step, mark.begin_ns);
    return mark;
  }
  // The backend has taken it.
  void Issued(uint32_t launch, uint64_t step, const LaunchMark& mark) {
    if (ABSL_PREDICT_FALSE(told_.ranges != nullptr)) {
      told_.ranges->LaunchEnded();
    }
    if (ABSL_PREDICT_TRUE(told_.observers == nullptr)) return;
    // What is enqueued is retired by another thread than issues it, and
    // observers are called by one.
    if (program_.enqueue) return;
    told_.observers->Issued(launch, step, mark.begin_ns);
  }
  // The backend says that it is done, and that its members had met at
  // `started_ns`, if that is not 0. Not of launches that are done when the
  // backend has taken them, nor of those on a device.
  void Completed(uint32_t launch, uint64_t step, int64_t started_ns,
                 LaunchMark* mark);
  // When they had, the backend has found out later. Whether anybody wants to
  // know; `step` as the program calls it.
  bool wants_starts() const { return holds_.traces(); }
  void Started(uint32_t launch, uint64_t step, const Start& start) {
    writer_.Add(StartRecord(start, step, launch));
  }
  // It is over, and its result in place. Returns when that was, for the trace
  // of what follows at once; 0 if there is none, or if observers, whose time is
  // no launch's, were told since.
  int64_t Retired(uint32_t launch, uint64_t step, const LaunchMark& mark) {
    if (ABSL_PREDICT_TRUE(!listens_)) return 0;
    const int64_t end_ns = told_.clock->NowNs();
    if (told_.recorder != nullptr) AddRecords(launch, step, mark, end_ns);
    AddFlight(FlightEvent::kRetire, launch, step, end_ns);
    if (told_.observers != nullptr) {
      TellObservers(launch, step, mark, end_ns);
      return 0;
    }
    return told_.recorder != nullptr ? end_ns : 0;
  }

  // Everybody can see that it is complete.
  void Ended(uint32_t launch, uint64_t step) {
    if (ABSL_PREDICT_TRUE(told_.listener == nullptr)) return;
    told_.listener->LaunchEnded(launch, step);
  }

  // ---- Pauses ----

  // The next launch cannot be issued now.
  void Stalled(StallCause cause) {
    holds_.BeginStall(cause, told_.clock->NowNs());
  }
  // That may be over.
  void Resumed() {
    if (!holds_.stalled()) return;
    holds_.EndStall(told_.clock->NowNs());
    CatchUp();
  }
  // In all stalls of `cause` that are over.
  int64_t StallNs(StallCause cause) const { return holds_.StallNs(cause); }
  // Nothing was retired for a while.
  void CatchUp() {
    if (told_.recorder != nullptr) writer_.CatchUp();
  }

  // ---- Failure ----

  // The session has failed. Once.
  void Failed(const absl::Status& status);
  // Tells observers of the failure, which their thread has come across. The
  // first call counts.
  void TellFailed(const Failure& failure);

 private:
  // Flight records number launches over all steps.
  void AddFlight(FlightEvent event, uint32_t launch, uint64_t step,
                 int64_t now_ns) {
    if (ABSL_PREDICT_TRUE(told_.flight == nullptr)) return;
    told_.flight->Add(event, step * program_.launches.size() + launch, now_ns);
  }
  void AddRecords(uint32_t launch, uint64_t step, const LaunchMark& mark,
                  int64_t end_ns) {
    const uint8_t lane = static_cast<uint8_t>(program_.launches[launch].lane);
    step += program_.first_step;
    writer_.Add({.begin_ns = mark.begin_ns,
                 .end_ns = end_ns,
                 .step = step,
                 .value = mark.window_bytes,
                 .index = launch,
                 .kind = RecordKind::kLaunch,
                 .lane = lane});
    if (holds_.traces()) {
      writer_.Add(HoldRecord(mark.hold, step, launch, lane));
    }
  }
  void TellObservers(uint32_t launch, uint64_t step, const LaunchMark& mark,
                     int64_t end_ns);

  // Constant after construction.
  const Program& program_;
  const CodecRunner* const codec_;
  const StepInstruments told_;
  const bool times_ends_;
  const bool listens_;  // any of them, but for the sums of the holds

  HoldClock holds_;
  // Owned by the thread that retires.
  Recorder::Writer writer_;  // if there is a recorder
  bool told_failed_ = false;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_LAUNCH_INSTRUMENTS_H_
