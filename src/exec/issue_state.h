// What all modes of issuing share.
#ifndef COMMSCHED_SRC_EXEC_ISSUE_STATE_H_
#define COMMSCHED_SRC_EXEC_ISSUE_STATE_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "base/running_clock.h"
#include "comm/plugin/table_support.h"
#include "commsched/plugin.h"
#include "device/waitable_counter.h"
#include "exec/inflight_window.h"
#include "exec/issuer_spec.h"
#include "exec/launch_instruments.h"
#include "exec/program.h"
#include "exec/watchdog.h"

namespace commsched {

// The launches of a rank as others see them: how many are due, which are
// complete, and what failed; and what a mode does to a launch whatever the
// mode is.
//
// "The issuing thread" is the one that the mode issues on, one at a time.
struct IssueState {
  explicit IssueState(const IssuerSpec& s);
  IssueState(const IssueState&) = delete;
  IssueState& operator=(const IssueState&) = delete;

  // ---- Failure ----

  // First failure: wakes every waiter, aborts the communicators on all ranks
  // (I7). Later calls do nothing. Any thread.
  void Fail(absl::Status status);
  bool failed() const { return spec.failure->failed(); }
  // What is wrong with `launch`, and with the call on it that said so.
  absl::Status LaunchError(uint32_t launch, uint64_t step,
                           const absl::Status& error) const;
  absl::Status BackendError(const char* call, commsched_status_t code,
                            uint32_t launch, uint64_t step,
                            const PluginMessage& message) const;
  // Fails if a communicator has: where nothing is polled, another rank's
  // failure shows here. Who calls the backend.
  void CheckCommunicators();

  // ---- Deadlines ----

  Watchdog::Spec ForWatchdog() const;
  // On the clock that deadlines are on.
  int64_t NowForDeadlinesNs() const {
    return running == nullptr ? spec.instruments.clock->NowNs()
                              : running->NowNs();
  }

  // ---- A launch ----

  // Takes over what the step has bound. False if the session has failed. The
  // issuing thread.
  bool BindLate(uint32_t launch, uint64_t step);
  // The first wait that is not complete, or null.
  const ProgramWait* FirstWait(const LaunchProgram& launch,
                               uint64_t step) const;
  // From here on `launch` counts as complete in `step`. One thread.
  void MarkComplete(uint32_t launch, uint64_t step) {
    // Released here, acquired in Issuer::CompletedGenerations().
    completed[launch].store(step + 1, std::memory_order_release);
  }

  // ---- A launch on memory of the host: the issuing thread ----

  // Whether some of its members are left out of `step`.
  bool HasDrops(uint32_t launch, uint64_t step) const {
    return spec.drops != nullptr && spec.drops->Any(launch, step + 1);
  }
  // What to hand to the backend, staged and encoded.
  const commsched_launch_t* Prepare(uint32_t index, uint64_t step, bool drops) {
    LaunchProgram& launch = spec.program->launches[index];
    launch.call.step = program.first_step + step;
    if (ABSL_PREDICT_FALSE(drops)) return spec.drops->Begin(index, step + 1);
    if (launch.staging_in.count != 0) Stage(launch.staging_in, index);
    if (launch.coded_in.count != 0) {
      Code(launch.coded_in, index, /*encode=*/true);
    }
    return &launch.call;
  }
  // What there is to do once the backend is done with it: the reverse.
  void Finish(uint32_t index, bool drops) {
    const LaunchProgram& launch = program.launches[index];
    if (ABSL_PREDICT_FALSE(drops)) {
      spec.drops->End();
    } else if (launch.staging_out.count != 0) {
      Stage(launch.staging_out, index);
    } else if (launch.coded_out.count != 0) {
      Code(launch.coded_out, index, /*encode=*/false);
    }
  }
  // CPU time that the backend has spent on it.
  void ChargeCpu(uint32_t launch, int64_t spent_ns) {
    // One writer at a time: a load and a store, not a locked add.
    std::atomic<int64_t>& total = cpu_ns[launch];
    total.store(total.load(std::memory_order_relaxed) + spent_ns,
                std::memory_order_relaxed);
  }

  // Constant after construction.
  const IssuerSpec spec;
  const Program& program;
  const uint32_t launches_per_step;
  // What deadlines are on; null: that of the
  // instruments, which nobody can stop.
  const RunningClock* const running;

  LaunchInstruments instruments;
  InflightWindow window;  // the issuing thread's

  // Launches below it are due; if inline, complete; if enqueued, on their
  // streams. Written by the token holder. Released in IssueMode::MakeDue(),
  // acquired in Issuer::due().
  std::atomic<uint64_t> due{0};
  // If enqueued: launches below it have retired; WaitableCounter::kEnd once the
  // session has failed.
  WaitableCounter retired;
  // If enqueued: of the last launch of each lane. A lane is a stream, so once
  // they are complete in a step all its launches are. Constant.
  std::vector<Event*> last_of_lanes;

  // By launch. Written by one thread at a time, read by any.
  std::vector<std::atomic<uint64_t>> completed;  // in so many steps
  std::vector<std::atomic<int64_t>> cpu_ns;

 private:
  // Both charge their CPU time to `launch`.
  void Stage(Span32 span, uint32_t launch);
  void Code(Span32 span, uint32_t launch, bool encode);
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_ISSUE_STATE_H_
