// When a launch of a program has taken too long, and who is missing.
#ifndef COMMSCHED_SRC_EXEC_WATCHDOG_H_
#define COMMSCHED_SRC_EXEC_WATCHDOG_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "commsched/plugin.h"
#include "exec/lane_watchdog.h"
#include "exec/program.h"

namespace commsched {

// A launch that has been issued and is not complete.
struct PendingLaunch {
  uint32_t launch = 0;
  uint64_t step = 0;  // as the program counts it
  LaunchWait wait;
};

// The lanes are the program's communication lanes; launches are known by their
// place in it, and named as it names them.
//
// Owned by the issuer.
class Watchdog : public LaneWatchdog {
 public:
  struct Spec {
    const Program* program = nullptr;  // outlives the watchdog
    const commsched_backend_t* backend = nullptr;
    std::vector<std::vector<int>> group_ranks;  // by GroupId: world ranks
    int world_rank = 0;
    int64_t timeout_ns = 0;
  };

  explicit Watchdog(Spec spec);

  bool HasExpired(uint32_t launch, uint32_t request, int64_t now_ns) {
    return LaneWatchdog::HasExpired(Watched(launch, request), now_ns);
  }
  void Ask(uint32_t launch, uint32_t request) const {
    LaneWatchdog::Ask(Watched(launch, request));
  }
  PendingLaunch Pending(uint32_t launch, uint64_t step, uint32_t request,
                        int64_t now_ns) const;
  absl::Status Expired(uint32_t launch, uint64_t step, uint32_t request,
                       int64_t now_ns) const;

 private:
  WatchedLaunch Watched(uint32_t launch, uint32_t request) const;

  const Program& program_;
  const std::vector<std::vector<int>> group_ranks_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_WATCHDOG_H_
