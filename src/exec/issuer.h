// Issues launches in key order and retires them.
#ifndef COMMSCHED_SRC_EXEC_ISSUER_H_
#define COMMSCHED_SRC_EXEC_ISSUER_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "comm/backend_rank.h"
#include "device/device.h"
#include "exec/hold_clock.h"
#include "exec/inflight_window.h"
#include "exec/issue_mode.h"
#include "exec/issue_state.h"
#include "exec/issuer_spec.h"

namespace commsched {

// The one place from which a rank's launches go to the backend (I1): number 0,
// 1, 2, ... over all steps, launch `number % launches per step` of the program.
// Numbers are 64 bits and never wrap.
//
// How they are issued is the program's: inline (InlineMode), on streams of a
// device (EnqueuedMode), or else polled (PolledMode). What is polled is pumped
// from Start() on by the progress thread of the rank, which is parked whenever
// there is nothing to do, or by callers in its place (BackendRank); or, if
// `by_caller`, by MakeDue() and Await() on their callers' threads; or, if
// `manual`, by who calls Pump(). What is enqueued is pumped by the progress
// thread; what is inline, by nobody.
class Issuer final : public Pumped {
 public:
  explicit Issuer(const IssuerSpec& spec);
  // Not pumped from here on. Nothing may be in flight unless failed.
  ~Issuer() override;
  Issuer(const Issuer&) = delete;
  Issuer& operator=(const Issuer&) = delete;

  // Hands it to who pumps it. As of BackendRank::Attach.
  absl::Status Start();

  // One round of polling and issuing; whether it got on. False once failed. If
  // `manual` only (and who pumps the rank). Without memory for it, it fails.
  bool Pump() override;

  // When Pump() may get on though nothing else happens: the next deadline, or
  // an end that the backend foretold. Before, if that is far and the time that
  // counts has to be looked at. kNoDeadlineNs if there is none. As Pump().
  int64_t NextWakeNs() const override {
    return state_.failed() ? kNoDeadlineNs : mode_->NextWakeNs();
  }

  bool HasWork() const override { return !state_.failed() && mode_->HasWork(); }

  // Launches below `number` are due. Numbers only grow; the dispatcher's token
  // holder, one at a time.
  //
  // `now_ns`: the current time if the caller has just read it for the trace,
  // else 0. Returns when the last launch that went out inline was complete, if
  // that was just read, else 0.
  int64_t MakeDue(uint64_t number, int64_t now_ns) {
    state_.instruments.Due(number);
    return mode_->MakeDue(number, now_ns);
  }

  // For the trace, before MakeDue(): a producer of `launch` has had its `after`
  // in `step`. Any thread.
  bool notes_ready() const { return state_.instruments.notes_ready(); }
  void NoteReady(uint32_t launch, uint64_t step, int64_t now_ns) {
    state_.instruments.NoteReady(launch, step, now_ns);
  }

  // Blocks until `event`, of one of the launches, is complete in `generation`.
  // Any thread.
  void Await(Event* event, uint64_t generation) {
    if (ABSL_PREDICT_FALSE(state_.spec.by_caller)) {
      state_.spec.rank->DriveUntil(*event, generation);
    } else if (state_.program.enqueue) {
      event->Synchronize(generation);
    } else {
      state_.spec.rank->Await(event, generation);
    }
  }

  // The same, but gives up at `deadline_ns` of SystemClock: whether `event` is
  // complete, or the session has failed. Not of what goes out inline.
  bool AwaitBy(Event* event, uint64_t generation, int64_t deadline_ns);

  // Launches below this number are due; if inline, complete; if enqueued, on
  // their streams. Acquire. Any thread.
  uint64_t due() const { return state_.due.load(std::memory_order_acquire); }

  // Steps in which `launch` has completed. Acquire. Any thread.
  uint64_t CompletedGenerations(uint32_t launch) const {
    return state_.completed[launch].load(std::memory_order_acquire);
  }

  // Whether `launch` has completed in `generation`, also where nobody has
  // retired it yet. Any thread.
  bool HasCompleted(uint32_t launch, uint64_t generation) const {
    if (ABSL_PREDICT_TRUE(CompletedGenerations(launch) >= generation)) {
      return true;
    }
    return state_.program.enqueue &&
           state_.program.launches[launch].event->IsComplete(generation);
  }
  // What is polled and not complete, in issue order. Any thread that has not
  // the rank's turn: takes it. Nothing if it is not to be had by `deadline_ns`.
  // Blocks no longer than that: for the answers of ranks that are asked whether
  // they have issued it.
  std::vector<PendingLaunch> PendingBy(int64_t deadline_ns);
  // If enqueued: blocks until all launches of the first `steps` steps have
  // retired, or the session has failed. One thread.
  void AwaitRetired(uint64_t steps);

  // First failure: wakes every waiter, aborts the communicators on all ranks
  // (I7). Later calls do nothing. Any thread.
  void Fail(absl::Status status) { state_.Fail(std::move(status)); }

  // Statistics, of what has completed. Any thread; exact when nothing runs.
  struct Totals {
    uint64_t launches = 0, collectives = 0, bytes = 0;
  };
  Totals totals() const;
  const InflightWindow& window() const { return state_.window; }
  int64_t StallNs(StallCause cause) const {
    return state_.instruments.StallNs(cause);
  }
  int64_t CpuNs(uint32_t launch) const {
    return state_.cpu_ns[launch].load(std::memory_order_relaxed);
  }

 private:
  bool LookUntil(const Event* event, uint64_t generation,
                 int64_t deadline_ns) const;

  IssueState state_;
  const std::unique_ptr<IssueMode> mode_;
  bool attached_ = false;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_ISSUER_H_
