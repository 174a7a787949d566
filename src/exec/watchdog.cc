#include "exec/watchdog.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace commsched {

Watchdog::Watchdog(Spec spec)
    : LaneWatchdog({.backend = spec.backend,
                    .num_lanes = spec.program->plan->num_comm_lanes,
                    .world_rank = spec.world_rank,
                    .timeout_ns = spec.timeout_ns}),
      program_(*spec.program),
      group_ranks_(std::move(spec.group_ranks)) {}

WatchedLaunch Watchdog::Watched(uint32_t launch, uint32_t request) const {
  const LaunchProgram& of = program_.launches[launch];
  return {.lane = of.lane,
          .request = request,
          .comm = of.comm,
          .kind = of.call.kind,
          .ranks = &group_ranks_[of.group]};
}

PendingLaunch Watchdog::Pending(uint32_t launch, uint64_t step,
                                uint32_t request, int64_t now_ns) const {
  return {.launch = launch,
          .step = program_.first_step + step,
          .wait = WaitOf(Watched(launch, request), now_ns)};
}

absl::Status Watchdog::Expired(uint32_t launch, uint64_t step, uint32_t request,
                               int64_t now_ns) const {
  return LaneWatchdog::Expired(
      Watched(launch, request),
      absl::StrCat(program_.LaunchName(launch), " of step ",
                   program_.first_step + step),
      now_ns);
}

}  // namespace commsched
