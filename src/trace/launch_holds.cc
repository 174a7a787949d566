#include "trace/launch_holds.h"

#include <algorithm>

namespace commsched {
namespace {

bool Fits(const Hold& hold, const Record& launch) {
  return hold.ready_ns <= launch.begin_ns &&
         (hold.started_ns == 0 || hold.started_ns >= launch.begin_ns) &&
         hold.started_ns <= launch.end_ns;
}

// Clocks of hosts may be a little apart.
bool Fits(const Start& start, const Record& launch) {
  return start.started_ns + start.error_ns >= launch.begin_ns &&
         start.started_ns - start.error_ns <= launch.end_ns;
}

}  // namespace

LaunchHolds::LaunchHolds(const Recorder& recorder)
    : rank_(recorder.names().rank) {
  for (const Record& record : recorder.SnapshotOfHolds()) {
    holds_[{record.step, record.index}].push_back(HoldOf(record));
  }
  for (const Record& record : recorder.SnapshotOfStarts()) {
    starts_[{record.step, record.index}].push_back(commsched::StartOf(record));
  }
}

const Start* LaunchHolds::StartOf(const Record& launch) const {
  const auto found = starts_.find({launch.step, launch.index});
  if (found == starts_.end()) return nullptr;
  for (const Start& start : found->second) {
    if (Fits(start, launch)) return &start;
  }
  return nullptr;
}

int LaunchHolds::LastRankOf(const Record& launch) const {
  const Start* const start = StartOf(launch);
  return start == nullptr ? -1 : start->last_rank;
}

Hold LaunchHolds::Of(const Record& launch) const {
  Hold of_launch = {.ready_ns = launch.begin_ns};
  const auto found = holds_.find({launch.step, launch.index});
  if (found != holds_.end()) {
    for (const Hold& hold : found->second) {
      if (!Fits(hold, launch)) continue;
      of_launch = hold;
      break;
    }
  }
  const Start* const start = StartOf(launch);
  if (of_launch.started_ns == 0 && start != nullptr) {
    of_launch.started_ns =
        start->last_rank == rank_ ? launch.begin_ns : start->started_ns;
  }
  of_launch.started_ns =
      std::clamp(of_launch.started_ns, launch.begin_ns, launch.end_ns);
  return of_launch;
}

}  // namespace commsched
