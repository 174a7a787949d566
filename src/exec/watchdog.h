// When a launch has taken too long, and who is missing.
#ifndef COMMSCHED_SRC_EXEC_WATCHDOG_H_
#define COMMSCHED_SRC_EXEC_WATCHDOG_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "commsched/plugin.h"
#include "exec/program.h"

namespace commsched {

// "0-2, 5": ranks in increasing order, at most 16 ranges.
std::string RankList(const std::vector<int>& ranks);

// A launch that has been issued and is not complete.
struct PendingLaunch {
  uint32_t launch = 0;
  uint64_t step = 0;  // as the program counts it
  int64_t waited_ns = 0;
  std::vector<int> missing;  // world ranks that have not issued it, if known
};

// A launch has `timeout_ns` from its predecessor's completion, not from its
// issue: hosts run ahead. Completions are seen per communication lane. Times
// are those of base/running_clock.h.
//
// Owned by the issuer.
class Watchdog {
 public:
  struct Spec {
    const Program* program = nullptr;  // outlives the watchdog
    const commsched_backend_t* backend = nullptr;
    std::vector<std::vector<int>> group_ranks;  // by GroupId: world ranks
    int world_rank = 0;
    int64_t timeout_ns = 0;
  };

  explicit Watchdog(Spec spec);

  // A launch of `lane` has become its oldest in flight. Its time runs from the
  // next Look(): launches that come and go in between cost no clock.
  void Restart(uint32_t lane) { since_ns_[lane] = kRestarted; }
  void Look(int64_t now_ns);

  // When the oldest launch in flight of `lane` has taken too long; never before
  // it has been looked at.
  int64_t DeadlineNs(uint32_t lane) const;

  // What Expired() would be about, for who asks.
  PendingLaunch Pending(uint32_t launch, uint64_t step, uint32_t request,
                        int64_t now_ns) const;

  // The error for such a launch. Names the ranks that have not issued it, if
  // the backend knows them.
  absl::Status Expired(uint32_t launch, uint64_t step, uint32_t request,
                       int64_t now_ns) const;

 private:
  std::vector<int> MissingRanks(const LaunchProgram& launch,
                                uint32_t request) const;

  static constexpr int64_t kRestarted = std::numeric_limits<int64_t>::max();

  const Spec spec_;
  std::vector<int64_t> since_ns_;  // by communication lane
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_WATCHDOG_H_
