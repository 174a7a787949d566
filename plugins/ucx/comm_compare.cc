// Whether members launch the same (launch_log.h). Each tells the next one, in a
// ring, now and then; who waits for long, those that it waits for, who answer.
#include <optional>
#include <utility>

#include "ucx/comm.h"

namespace commsched::ucx {

// Of the collectives in flight, the oldest that is not done.
uint64_t Comm::FirstOpen() const {
  for (const uint32_t request : order_) {
    const Operation& operation = operations_[request];
    if (operation.kind != COMMSCHED_SEND && !operation.IsDone()) {
      return operation.number;
    }
  }
  return num_collectives_;
}

void Comm::LogLaunch(const commsched_launch_t& launch) {
  log_.Add(launch);
  if (ahead_.has_value() && ahead_->end() <= log_.num()) {
    CompareLaunches(*std::exchange(ahead_, std::nullopt), ahead_of_);
  }
  if (size() == 1 || !failure_.ok() || !log_.IsToBeTold()) return;
  // Nobody is connected for this alone.
  const int next = (rank_ + 1) % size();
  if (!peers_[static_cast<size_t>(next)].is_open) return;
  Notice notice;
  notice.kind = Notice::kLaunched;
  notice.SetLaunches(log_.Report());
  Tell(notice, next);
}

// What this member has not launched yet is looked at once it has.
void Comm::CompareLaunches(const LaunchReport& report, int peer) {
  const std::string difference =
      log_.DifferenceFrom(report, Name(peer), Name(rank_));
  if (!difference.empty()) {
    return FailLocked(COMMSCHED_INVALID_ARGUMENT,
                      "axis '" + axis_ + "', " + difference);
  }
  if (report.end() <= log_.num()) return;
  ahead_ = report;
  ahead_of_ = peer;
}

}  // namespace commsched::ucx
