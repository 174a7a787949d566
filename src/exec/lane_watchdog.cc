#include "exec/lane_watchdog.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/mutex.h"

namespace commsched {
namespace {

constexpr int kMaxRanges = 16;
// Who makes progress at all answers within less. Answers count for twice as
// long (comm_missing).
constexpr int64_t kMostAnswerNs = int64_t{1} * 1000 * 1000 * 1000;

std::string Seconds(int64_t ns) {
  return absl::StrFormat("%.1f s", static_cast<double>(ns) * 1e-9);
}

int64_t AnswerNs(const LaneWatchdog::Spec& spec) {
  if (spec.backend->comm_silent == nullptr) return 0;
  return std::min(kMostAnswerNs, spec.timeout_ns / 2);
}

// Takes those of `others` out. Both ascend.
void Remove(const std::vector<int>& others, std::vector<int>* ranks) {
  std::erase_if(*ranks, [&](int rank) {
    return std::binary_search(others.begin(), others.end(), rank);
  });
}

// Takes those out that are not of `others`. Both ascend.
void KeepOnly(const std::vector<int>& others, std::vector<int>* ranks) {
  std::erase_if(*ranks, [&](int rank) {
    return !std::binary_search(others.begin(), others.end(), rank);
  });
}

}  // namespace

std::string RankList(const std::vector<int>& ranks) {
  std::string text;
  int num_ranges = 0;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (num_ranges++ == kMaxRanges) {
      absl::StrAppend(&text, " and ", ranks.size() - i, " more");
      break;
    }
    absl::StrAppend(&text, text.empty() ? "" : ", ", ranks[i]);
    if (end - i > 1) absl::StrAppend(&text, "-", ranks[end - 1]);
    i = end;
  }
  return text;
}

std::string MissingText(const std::vector<int>& ranks) {
  if (ranks.empty()) return "";
  const bool is_one = ranks.size() == 1;
  return absl::StrCat(is_one ? "; rank " : "; ranks ", RankList(ranks),
                      is_one ? " has" : " have", " not issued it");
}

std::string SilentText(const std::vector<int>& ranks) {
  if (ranks.empty()) return "";
  const bool is_one = ranks.size() == 1;
  return absl::StrCat(is_one ? "; rank " : "; ranks ", RankList(ranks),
                      is_one ? " does not answer" : " do not answer");
}

LaneWatchdog::LaneWatchdog(const Spec& spec)
    : spec_(spec), answer_ns_(AnswerNs(spec_)), lanes_(spec.num_lanes) {}

void LaneWatchdog::Look(int64_t now_ns) {
  for (Lane& lane : lanes_) {
    if (lane.since_ns == kRestarted) lane.since_ns = now_ns;
  }
}

int64_t LaneWatchdog::DeadlineNs(uint32_t lane) const {
  return DeadlineAfter(lanes_[lane].since_ns, spec_.timeout_ns);
}

int64_t LaneWatchdog::AskNs(uint32_t lane) const {
  const int64_t deadline_ns = DeadlineNs(lane);
  return deadline_ns == kNoDeadlineNs ? deadline_ns : deadline_ns - answer_ns_;
}

bool LaneWatchdog::HasExpired(const WatchedLaunch& launch, int64_t now_ns) {
  if (now_ns < AskNs(launch.lane)) return false;
  Lane* const lane = &lanes_[launch.lane];
  const int64_t deadline_ns = DeadlineNs(launch.lane);
  if (lane->asked == Asked::kNobody) {
    Ask(launch);
    lane->asked = Asked::kBefore;
    lane->silent = SilentRanks(launch);
    // Whoever looks late gives them time all the same.
    lane->answers_by_ns = std::max(deadline_ns, now_ns + answer_ns_ / 2);
  } else if (lane->asked == Asked::kBefore && !lane->silent.empty()) {
    // Who has answered may be asked anew, about another lane's launch.
    KeepOnly(SilentRanks(launch), &lane->silent);
  }
  if (now_ns < deadline_ns) {
    lane->next_look_ns = deadline_ns;
    return false;
  }
  if (HasAnswers(lane, launch, now_ns)) return true;
  lane->next_look_ns = lane->answers_by_ns;
  return false;
}

bool LaneWatchdog::HasAnswers(Lane* lane, const WatchedLaunch& launch,
                              int64_t now_ns) const {
  if (lane->asked == Asked::kBefore) {
    if (!lane->silent.empty() && now_ns < lane->answers_by_ns) return false;
    Ask(launch);
    lane->asked = Asked::kAgain;
    lane->answers_by_ns = now_ns + answer_ns_;
  }
  std::vector<int> silent = SilentRanks(launch);
  Remove(lane->silent, &silent);
  return silent.empty() || now_ns >= lane->answers_by_ns;
}

void LaneWatchdog::Ask(const WatchedLaunch& launch) const {
  const commsched_backend_t& backend = *spec_.backend;
  if (backend.comm_missing == nullptr || backend.comm_silent == nullptr) return;
  backend.comm_missing(launch.comm, launch.request, nullptr, /*capacity=*/0);
}

std::vector<int> LaneWatchdog::RanksOf(ListRanks list,
                                       const WatchedLaunch& launch) {
  if (list == nullptr) return {};
  const std::vector<int>& members = *launch.ranks;
  std::vector<int32_t> found(members.size());
  const auto capacity = static_cast<uint32_t>(found.size());
  const uint32_t count = std::min(
      capacity, list(launch.comm, launch.request, found.data(), capacity));
  std::vector<int> ranks;
  for (uint32_t i = 0; i < count; ++i) {
    const size_t member = static_cast<size_t>(found[i]);
    if (member < members.size()) ranks.push_back(members[member]);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<int> LaneWatchdog::MissingRanks(const WatchedLaunch& launch) const {
  return RanksOf(spec_.backend->comm_missing, launch);
}

std::vector<int> LaneWatchdog::SilentRanks(const WatchedLaunch& launch) const {
  return RanksOf(spec_.backend->comm_silent, launch);
}

// Of kinds in which not all wait for all only this rank is.
std::vector<int> LaneWatchdog::WaitingRanks(
    const WatchedLaunch& launch, const std::vector<int>& missing,
    const std::vector<int>& silent) const {
  const commsched_collective_t kind = launch.kind;
  if (kind == COMMSCHED_SEND || kind == COMMSCHED_BROADCAST ||
      kind == COMMSCHED_REDUCE) {
    return {spec_.world_rank};
  }
  std::vector<int> waiting = *launch.ranks;
  std::sort(waiting.begin(), waiting.end());
  Remove(missing, &waiting);
  Remove(silent, &waiting);
  return waiting;
}

LaunchWait LaneWatchdog::WaitOf(const WatchedLaunch& launch,
                                int64_t now_ns) const {
  const int64_t since_ns = lanes_[launch.lane].since_ns;
  LaunchWait wait = {
      .waited_ns = since_ns == kRestarted ? 0 : now_ns - since_ns,
      .missing = {},
      .silent = SilentRanks(launch)};
  wait.missing = MissingRanks(launch);
  Remove(wait.missing, &wait.silent);  // They have answered just now.
  return wait;
}

absl::Status LaneWatchdog::Expired(const WatchedLaunch& launch,
                                   absl::string_view what,
                                   int64_t now_ns) const {
  const std::string waited = Seconds(now_ns - lanes_[launch.lane].since_ns);
  const std::string limit = Seconds(spec_.timeout_ns);
  // In this order: who answers in between is in both.
  std::vector<int> silent = SilentRanks(launch);
  const std::vector<int> missing = MissingRanks(launch);
  Remove(missing, &silent);
  if (missing.empty()) {
    return absl::DeadlineExceededError(absl::StrCat(
        "launch ", what, " is not complete on rank ", spec_.world_rank,
        " after ", waited, "; the limit is ", limit, SilentText(silent)));
  }
  const std::vector<int> waiting = WaitingRanks(launch, missing, silent);
  return absl::DeadlineExceededError(absl::StrCat(
      missing.size() == 1 ? "rank " : "ranks ", RankList(missing),
      missing.size() == 1 ? " has" : " have", " not issued ", what, "; ",
      waiting.size() == 1 ? "rank " : "ranks ", RankList(waiting),
      waiting.size() == 1 ? " has" : " have", " waited for ", waited,
      ", the limit is ", limit, SilentText(silent)));
}

}  // namespace commsched
