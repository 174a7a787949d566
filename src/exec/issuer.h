// Issues launches in key order and retires them.
#ifndef COMMSCHED_SRC_EXEC_ISSUER_H_
#define COMMSCHED_SRC_EXEC_ISSUER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/running_clock.h"
#include "comm/backend_rank.h"
#include "comm/table_support.h"
#include "commsched/plugin.h"
#include "exec/drops.h"
#include "exec/failure.h"
#include "exec/hold_clock.h"
#include "exec/inflight_window.h"
#include "exec/late_bindings.h"
#include "exec/observers.h"
#include "exec/program.h"
#include "exec/watchdog.h"
#include "trace/flight_record.h"
#include "trace/recorder.h"

namespace commsched {

struct IssuerSpec {
  Program* program = nullptr;   // outlives the issuer
  BackendRank* rank = nullptr;  // likewise; its thread pumps the issuer
  const commsched_backend_t* backend = nullptr;
  std::vector<void*> comms;  // by GroupId
  // Fails `comms` here, and what they are to the other ranks there.
  std::function<void(const absl::Status&)> abort;
  std::vector<std::vector<int>> group_ranks;  // by GroupId: world ranks
  LateBindings* late = nullptr;               // null if nothing is late-bound
  Drops* drops = nullptr;          // what may be left out of a step; or null
  CodecRunner* codec = nullptr;    // null if no launch is coded
  Observers* observers = nullptr;  // null if nobody looks on
  Recorder* recorder = nullptr;
  FlightRecord* flight = nullptr;
  Failure* failure = nullptr;
  const Clock* clock = &SystemClock::Get();  // another one only if `manual`
  int world_rank = 0;
  int64_t launch_timeout_ns = 0;
  // The rank's thread does not: who owns the issuer calls Pump().
  bool manual = false;
  // Nor does it, but who calls MakeDue() and Await().
  bool by_caller = false;
};

// The one place from which a rank's launches go to the backend (I1): number 0,
// 1, 2, ... over all steps, launch `number % launches per step` of the program.
//
// A launch is issued when it is due, its waits are complete and the window has
// room; while one cannot be, none after it is. Issued launches progress side by
// side; completions are retired in issue order per communication lane, which is
// what the planner takes a lane to guarantee. Numbers are 64 bits and never
// wrap.
//
// Four modes. Threaded: from Start() on the progress thread of the rank issues
// and polls, parked whenever there is nothing to do. By the caller: MakeDue()
// and Await() do that on their callers' threads. Inline
// (Program::issue_inline): MakeDue() issues on the caller's thread, which then
// must be one at a time; nothing is ever in flight. Manual: Pump() does what
// the progress thread would, on its caller's thread.
class Issuer final : public Pumped {
 public:
  // Launches posted and not yet done, per rank, whatever the plan allows.
  static constexpr uint32_t kMaxInFlight = 64;
  // What comm_create is told: the plan's cap on launches, if lower.
  static uint32_t RequestsFor(const Plan& plan);

  explicit Issuer(const IssuerSpec& spec);
  // Not pumped from here on. Nothing may be in flight unless failed.
  ~Issuer() override;
  Issuer(const Issuer&) = delete;
  Issuer& operator=(const Issuer&) = delete;

  // Hands it to the progress thread; does nothing in the other modes.
  void Start();

  // One round of polling and issuing; whether it got on. False once failed.
  // Manual mode only (and the progress thread).
  bool Pump() override;

  // When Pump() may get on though nothing else happens: the next deadline, or
  // an end that the backend foretold. Before, if that is far and the time that
  // counts has to be looked at. kNoDeadlineNs if there is none. As Pump().
  int64_t NextWakeNs() const override;

  // Launches below `number` are due. Numbers only grow; the dispatcher's token
  // holder, one at a time.
  //
  // `now_ns`: the current time if the caller has just read it for the trace,
  // else 0. Returns when the last launch that went out inline was complete, if
  // that was just read, else 0.
  int64_t MakeDue(uint64_t number, int64_t now_ns);

  // For the trace, before MakeDue(): a producer of `launch` has had its `after`
  // in `step`. Any thread.
  bool notes_ready() const { return holds_.traces(); }
  void NoteReady(uint32_t launch, uint64_t step, int64_t now_ns) {
    holds_.NoteReady(launch, step, now_ns);
  }

  // Blocks until `event`, of one of the launches, is complete in `generation`.
  // Any thread.
  void Await(Event* event, uint64_t generation) {
    if (ABSL_PREDICT_FALSE(spec_.by_caller)) {
      spec_.rank->DriveUntil(*event, generation);
    } else {
      event->Synchronize(generation);
    }
  }

  // Launches below this number are due; if inline, complete. Acquire. Any
  // thread.
  uint64_t due() const { return due_.load(std::memory_order_acquire); }

  // Steps in which `launch` has completed. Acquire. Any thread.
  uint64_t CompletedGenerations(uint32_t launch) const {
    return completed_[launch].load(std::memory_order_acquire);
  }

  // First failure: wakes every waiter, aborts the communicators on all ranks
  // (I7). Later calls do nothing. Any thread.
  void Fail(absl::Status status);

  // Statistics, of what has completed. Any thread; exact when nothing runs.
  struct Totals {
    uint64_t launches = 0, collectives = 0, bytes = 0;
  };
  Totals totals() const;
  const InflightWindow& window() const { return window_; }
  int64_t StallNs(StallCause cause) const { return holds_.StallNs(cause); }
  int64_t CpuNs(uint32_t launch) const {
    return cpu_ns_[launch].load(std::memory_order_relaxed);
  }

 private:
  struct InFlight {
    uint64_t number = 0;
    uint32_t launch = 0;
    uint32_t request = 0;
    bool done = false;
    bool drops = false;    // some members are left out
    int64_t begin_ns = 0;  // if traced or observed
    int64_t wake_at_ns = 0;
    uint64_t window_bytes = 0;  // in flight when issued, itself included
    Hold hold = {};             // if traced
  };

  void TellRetired(uint32_t launch, uint64_t step, int64_t begin_ns);
  void TellFailed();
  int64_t IssueInline(uint64_t number, int64_t now_ns);
  // Issues the next launch. If it cannot be yet, says why in stall_cause_.
  bool TryIssue();
  // Takes over what the step has bound. False if the session has failed.
  bool BindLate(uint32_t launch, uint64_t step);
  bool MayIssue(const LaunchProgram& launch, uint64_t step);
  // The first wait that is not complete, or null.
  const ProgramWait* FirstWait(const LaunchProgram& launch,
                               uint64_t step) const;
  bool PollInFlight();
  absl::Status Poll(InFlight* entry);
  void RetireInOrder();
  void Retire(const InFlight& entry);
  // But for `value`.
  Record RecordOf(uint32_t launch, uint64_t step, int64_t begin,
                  int64_t end) const;
  // What this rank has to do when the backend is done with a launch.
  void Finish(const LaunchProgram& launch, uint32_t index, bool drops);
  // From here on `launch` counts as complete in `step`.
  void MarkComplete(uint32_t launch, uint64_t step) {
    // Released here, acquired in CompletedGenerations().
    completed_[launch].store(step + 1, std::memory_order_release);
    Note(FlightEvent::kRetire, step * launches_per_step_ + launch);
  }
  // Encodes before `launch`, or decodes after it; charged likewise.
  void RunCodedOf(Span32 span, uint32_t launch, bool encode);
  // Runs the staging steps of `span` and charges their CPU time to `launch`.
  void RunStagingOf(Span32 span, uint32_t launch);
  bool HasDrops(uint32_t launch, uint64_t step) const {
    return spec_.drops != nullptr && spec_.drops->Any(launch, step + 1);
  }
  // What to hand to the backend, staged.
  const commsched_launch_t* Prepare(uint32_t launch, uint64_t step, bool drops);
  bool LaneIsEmpty(uint32_t lane) const;
  void CheckDeadlines();
  void CheckCommunicators();
  // What is wrong with launch `number`, and with the call that said so.
  absl::Status LaunchError(uint64_t number, const absl::Status& error) const;
  absl::Status BackendError(const char* call, commsched_status_t code,
                            uint64_t number) const;
  // Whether anybody is told when launches began and ended.
  bool times_launches() const {
    return spec_.recorder != nullptr || spec_.observers != nullptr;
  }
  void Note(FlightEvent event, uint64_t number) {
    if (ABSL_PREDICT_TRUE(spec_.flight == nullptr)) return;
    spec_.flight->Add(event, number, spec_.clock->NowNs());
  }

  // Constant after construction.
  const IssuerSpec spec_;
  // What deadlines are on; null: spec_.clock, which nobody can stop.
  const RunningClock* const running_;
  const Program& program_;
  const uint32_t launches_per_step_;
  const uint32_t requests_;

  // Written by the token holder, read by the issuing thread and by `before`.
  // Released in MakeDue(), acquired in due().
  std::atomic<uint64_t> due_{0};

  // Owned by the issuing thread.
  uint64_t issued_ = 0;
  Recorder::Writer writer_;            // if there is a recorder
  std::vector<InFlight> in_flight_;    // in issue order
  std::vector<uint64_t> comm_issued_;  // by GroupId: launches so far
  PluginMessage message_;              // of the backend's latest call
  Watchdog watchdog_;
  InflightWindow window_;
  StallCause stall_cause_ = StallCause::kDue;
  HoldClock holds_;

  // Written by the issuing thread, read by any.
  std::vector<std::atomic<uint64_t>> completed_;  // by launch
  std::vector<std::atomic<int64_t>> cpu_ns_;      // by launch

  bool attached_ = false;
  bool told_failed_ = false;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_ISSUER_H_
