#ifndef COMMSCHED_SRC_SESSION_SESSION_SPEC_H_
#define COMMSCHED_SRC_SESSION_SESSION_SPEC_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "comm/world.h"
#include "device/device.h"
#include "exec/launch_listener.h"
#include "plan/plan.h"
#include "trace/recorder.h"

namespace commsched {

// The ranks of one communicator, as this rank sees them.
struct GroupSpec {
  std::string axis;
  std::vector<int> ranks;  // world ranks in group order
  int rank = 0;            // position of this rank in `ranks`
};

// Where a session's own memory comes from (commsched/session.h).
struct Allocator {
  // Empty, and `release` too: the backend, or the device.
  std::function<absl::StatusOr<void*>(uint64_t bytes)> allocate;
  std::function<void(void* address, uint64_t bytes)> release;
  std::function<void()> trim;  // empty: nothing can be given back
};

struct SessionSpec {
  std::shared_ptr<World> world;
  int world_rank = 0;
  uint64_t instance = 0;  // number of this session on this context, from 0
  std::string who = "session";  // for messages, and names of communicators
  std::shared_ptr<const Plan> plan;
  uint32_t max_members = 1;       // of a launch, if there is no plan
  std::vector<GroupSpec> groups;  // by GroupId
  // World ranks whose loss ends it; empty: all of the world.
  std::vector<int> members;
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
  LaunchListener* listener = nullptr;  // outlives the session
  // Told the session's first failure, on whichever thread finds it.
  std::function<void(const absl::Status&)> on_failure;
  std::string flight_path;  // of the flight record; empty: none
  int64_t launch_timeout_ns = 0;
  // How long ranks may take to meet when the session is made. 0: as a launch.
  int64_t join_timeout_ns = 0;
  // How long the session's end waits for its communicators. 0: as a launch.
  int64_t end_timeout_ns = 0;
  uint64_t first_step = 0;  // Program::first_step
  Allocator allocator;
  // For tests and the simulator: no progress thread; Pump() does its work. Then
  // the lanes' streams must not block the thread that calls, so none is the
  // caller, unless the backend is INLINE; and the clock may be another one.
  bool manual = false;
  // Launches get on while a call of the session runs, on its thread. All lanes
  // are the caller.
  bool by_caller = false;
  const Clock* clock = &SystemClock::Get();

  int64_t JoinTimeoutNs() const {
    return join_timeout_ns != 0 ? join_timeout_ns : launch_timeout_ns;
  }
  int64_t EndTimeoutNs() const {
    return end_timeout_ns != 0 ? end_timeout_ns : launch_timeout_ns;
  }
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_SESSION_SESSION_SPEC_H_
