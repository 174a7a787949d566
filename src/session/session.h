#ifndef COMMSCHED_SRC_SESSION_SESSION_H_
#define COMMSCHED_SRC_SESSION_SESSION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "comm/world.h"
#include "device/device.h"
#include "exec/codec_runner.h"
#include "exec/late_bindings.h"
#include "exec/program.h"
#include "plan/plan.h"
#include "trace/recorder.h"

namespace commsched {

class Dispatcher;

// The ranks of one communicator, as this rank sees them.
struct GroupSpec {
  std::string axis;
  std::vector<int> ranks;  // world ranks in group order
  int rank = 0;            // position of this rank in `ranks`
};

struct SessionSpec {
  std::shared_ptr<World> world;
  int world_rank = 0;
  uint64_t instance = 0;  // number of this session on this context, from 0
  std::shared_ptr<const Plan> plan;
  std::vector<GroupSpec> groups;  // by GroupId
  struct Binding {
    BufferId buffer;
    void* address = nullptr;
    uint64_t bytes = 0;
  };
  std::vector<Binding> bindings;
  std::vector<Stream*> lanes;  // by compute lane; empty: all the caller
  // Collectives that are not due before Submit(), which may leave them out of a
  // step. Then one thread drives the session; not with Run().
  std::vector<OpId> submitted;
  Recorder* recorder = nullptr;
  std::vector<const commsched_observer_t*> observers;
  // Told the session's first failure, on whichever thread finds it.
  std::function<void(const absl::Status&)> on_failure;
  std::string flight_path;  // of the flight record; empty: none
  int64_t launch_timeout_ns = 0;
  uint64_t first_step = 0;  // Program::first_step
  // For tests and the simulator: no lane thread; Pump() does its work. Then the
  // lanes' streams must not block the thread that calls, so none is the caller,
  // unless the backend is INLINE; and the clock may be another one.
  bool manual = false;
  const Clock* clock = &SystemClock::Get();
};

struct SessionCounters {
  uint64_t steps = 0, launches = 0, collectives = 0, bytes = 0;
  uint64_t peak_launches_in_flight = 0, peak_bytes_in_flight = 0;
  uint64_t lock_contentions = 0, events_created = 0, streams_created = 0,
           registrations = 0;
  int64_t stall_due_ns = 0, stall_wait_ns = 0, stall_window_ns = 0,
          stall_tickets_ns = 0;
};

// Behind include/commsched/session.h, which states the contract of each call.
class Session {
 public:
  // Collective.
  static absl::StatusOr<std::unique_ptr<Session>> Create(SessionSpec spec);
  // All ranks of a world of this process at once, by one thread and without a
  // meeting: the plans must come from one call of the planner, which is what a
  // meeting would find out. For tests and the simulator.
  static absl::StatusOr<std::vector<std::unique_ptr<Session>>> CreateAll(
      std::vector<SessionSpec> specs);
  virtual ~Session() = default;

  virtual absl::Status StepBegin() = 0;
  virtual absl::Status StepEnd() = 0;
  virtual absl::Status Before(OpId op, Stream* stream) = 0;
  virtual absl::Status After(OpId op, Stream* stream) = 0;
  // The same for an op that writes late-bound buffers.
  virtual absl::Status AfterBound(OpId op, Stream* stream,
                                  absl::Span<const LateBinding> late) = 0;
  // Once per step for each of SessionSpec::submitted. `drop`: this rank sends
  // zeros and gets no result. Returns status().
  virtual absl::Status Submit(OpId collective, bool drop) = 0;
  // Whether all launches of `collective` are due in this step.
  virtual bool IsDue(OpId collective) const = 0;
  // Blocks until every launch that is due is complete, and all enqueued work
  // done. Within a step.
  virtual absl::Status WaitDue() = 0;
  // `compute` is called on this thread, with no lock held.
  using Compute = absl::Status (*)(void* user, OpId op, Stream* stream);
  virtual absl::Status Run(Compute compute, void* user, uint64_t num_steps) = 0;
  // Of a manual session: fails if something due is not complete.
  virtual absl::Status Drain() = 0;
  // Manual sessions only. One round of polling and issuing: whether it got on.
  virtual bool Pump() = 0;
  // When Pump() may get on by the clock alone; kNoDeadlineNs: never.
  virtual int64_t NextWakeNs() const = 0;
  virtual void Abort(absl::string_view reason) = 0;
  virtual absl::Status status() const = 0;
  virtual absl::StatusOr<void*> Address(OpId op, BufferId buffer) = 0;
  virtual absl::StatusOr<uint64_t> BufferVersion(BufferId buffer) const = 0;
  virtual absl::Status BufferRelease(BufferId buffer, Stream* stream) = 0;
  virtual absl::StatusOr<bool> BufferPoisoned(BufferId buffer) const = 0;
  virtual SessionCounters counters() const = 0;
  // By op id; 0 for compute ops.
  virtual std::vector<int64_t> CollectiveCpuNs() const = 0;
  // What encoding did to the launches of collective `op`. NotFound, naming it,
  // if it does not travel through a codec.
  virtual absl::StatusOr<CodecError> CodecErrorOf(OpId op) const = 0;
  virtual const Plan& plan() const = 0;
  // For a frozen step, which has a script to follow.
  virtual const Program& program() const = 0;
  virtual Dispatcher& dispatcher() = 0;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_SESSION_SESSION_H_
