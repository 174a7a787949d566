#include "session/join_wait.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/running_clock.h"

namespace commsched {
namespace {

constexpr int64_t kNsPerMs = int64_t{1} * 1000 * 1000;

std::string Or(const std::string& text, absl::string_view other) {
  return text.empty() ? std::string(other) : text;
}

}  // namespace

JoinWait::JoinWait(int rank, int64_t limit_ns)
    : rank_(rank),
      limit_ns_(limit_ns),
      begin_ns_(RunningClock::Get().NowNs()),
      looked_ns_(SystemClock::Get().NowNs()) {}

int64_t JoinWait::WaitedNs() const {
  return RunningClock::Get().NowNs() - begin_ns_;
}

bool JoinWait::IsOver() const { return WaitedNs() >= limit_ns_; }

void JoinWait::OnMissing(absl::string_view axis, absl::string_view missing) {
  Looked();
  axis_.assign(axis.data(), axis.size());
  missing_.assign(missing.data(), missing.size());
  const int64_t waited_ns = WaitedNs();
  if (has_warned_ || waited_ns < limit_ns_ / 2) return;
  has_warned_ = true;
  Log(LogLevel::kWarning, "session: rank ", rank_, " has waited ",
      waited_ns / kNsPerMs, " of ", limit_ns_ / kNsPerMs,
      " ms for the communicator of axis ", axis_, ": ",
      Or(missing_, "it is not ready"), "; ", LookedText());
}

void JoinWait::OnOtherFailed() {
  Looked();
  Log(LogLevel::kWarning, "session: rank ", rank_,
      " ends its wait for communicators as another rank has failed, after ",
      WaitedNs() / kNsPerMs, " of ", limit_ns_ / kNsPerMs, " ms",
      axis_.empty() ? ""
                    : absl::StrCat("; it waited for axis ", axis_, ": ",
                                   Or(missing_, "it was not ready")),
      "; ", LookedText());
}

void JoinWait::Looked() {
  const int64_t now_ns = SystemClock::Get().NowNs();
  longest_ns_ = std::max(longest_ns_, now_ns - looked_ns_);
  looked_ns_ = now_ns;
  ++num_looks_;
}

std::string JoinWait::LookedText() const {
  return absl::StrCat("it looked ", num_looks_, " times, the longest after ",
                      longest_ns_ / kNsPerMs, " ms");
}

}  // namespace commsched
