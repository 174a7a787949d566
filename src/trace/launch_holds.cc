#include "trace/launch_holds.h"

#include <algorithm>

namespace commsched {
namespace {

bool Fits(const Hold& hold, const Record& launch) {
  return hold.ready_ns <= launch.begin_ns &&
         (hold.started_ns == 0 || hold.started_ns >= launch.begin_ns) &&
         hold.started_ns <= launch.end_ns;
}

}  // namespace

LaunchHolds::LaunchHolds(const Recorder& recorder) {
  for (const Record& record : recorder.SnapshotOfHolds()) {
    holds_[{record.step, record.index}].push_back(HoldOf(record));
  }
}

Hold LaunchHolds::Of(const Record& launch) const {
  const auto found = holds_.find({launch.step, launch.index});
  if (found != holds_.end()) {
    for (Hold hold : found->second) {
      if (!Fits(hold, launch)) continue;
      hold.started_ns = std::max(hold.started_ns, launch.begin_ns);
      return hold;
    }
  }
  return {.ready_ns = launch.begin_ns, .started_ns = launch.begin_ns};
}

}  // namespace commsched
