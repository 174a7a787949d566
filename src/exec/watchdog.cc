#include "exec/watchdog.h"

#include <algorithm>
#include <cstddef>
#include <utility>

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

int64_t AnswerNs(const Watchdog::Spec& spec) {
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

std::string SilentText(const std::vector<int>& ranks) {
  if (ranks.empty()) return "";
  const bool is_one = ranks.size() == 1;
  return absl::StrCat(is_one ? "; rank " : "; ranks ", RankList(ranks),
                      is_one ? " does not answer" : " do not answer");
}

Watchdog::Watchdog(Spec spec)
    : spec_(std::move(spec)),
      answer_ns_(AnswerNs(spec_)),
      lanes_(spec_.program->plan->num_comm_lanes) {}

void Watchdog::Look(int64_t now_ns) {
  for (Lane& lane : lanes_) {
    if (lane.since_ns == kRestarted) lane.since_ns = now_ns;
  }
}

int64_t Watchdog::DeadlineNs(uint32_t lane) const {
  return DeadlineAfter(lanes_[lane].since_ns, spec_.timeout_ns);
}

int64_t Watchdog::AskNs(uint32_t lane) const {
  const int64_t deadline_ns = DeadlineNs(lane);
  return deadline_ns == kNoDeadlineNs ? deadline_ns : deadline_ns - answer_ns_;
}

bool Watchdog::HasExpired(uint32_t index, uint32_t request, int64_t now_ns) {
  const LaunchProgram& launch = spec_.program->launches[index];
  if (now_ns < AskNs(launch.lane)) return false;
  Lane* const lane = &lanes_[launch.lane];
  const int64_t deadline_ns = DeadlineNs(launch.lane);
  if (lane->asked == Asked::kNobody) {
    Ask(index, request);
    lane->asked = Asked::kBefore;
    lane->silent = SilentRanks(launch, request);
    // Whoever looks late gives them time all the same.
    lane->answers_by_ns = std::max(deadline_ns, now_ns + answer_ns_ / 2);
  } else if (lane->asked == Asked::kBefore && !lane->silent.empty()) {
    // Who has answered may be asked anew, about another lane's launch.
    KeepOnly(SilentRanks(launch, request), &lane->silent);
  }
  if (now_ns < deadline_ns) {
    lane->next_look_ns = deadline_ns;
    return false;
  }
  if (HasAnswers(lane, index, request, now_ns)) return true;
  lane->next_look_ns = lane->answers_by_ns;
  return false;
}

bool Watchdog::HasAnswers(Lane* lane, uint32_t index, uint32_t request,
                          int64_t now_ns) const {
  if (lane->asked == Asked::kBefore) {
    if (!lane->silent.empty() && now_ns < lane->answers_by_ns) return false;
    Ask(index, request);
    lane->asked = Asked::kAgain;
    lane->answers_by_ns = now_ns + answer_ns_;
  }
  std::vector<int> silent =
      SilentRanks(spec_.program->launches[index], request);
  Remove(lane->silent, &silent);
  return silent.empty() || now_ns >= lane->answers_by_ns;
}

void Watchdog::Ask(uint32_t launch, uint32_t request) const {
  const commsched_backend_t& backend = *spec_.backend;
  if (backend.comm_missing == nullptr || backend.comm_silent == nullptr) return;
  backend.comm_missing(spec_.program->launches[launch].comm, request, nullptr,
                       /*capacity=*/0);
}

std::vector<int> Watchdog::RanksOf(ListRanks list, const LaunchProgram& launch,
                                   uint32_t request) const {
  if (list == nullptr) return {};
  const std::vector<int>& members = spec_.group_ranks[launch.group];
  std::vector<int32_t> found(members.size());
  const auto capacity = static_cast<uint32_t>(found.size());
  const uint32_t count =
      std::min(capacity, list(launch.comm, request, found.data(), capacity));
  std::vector<int> ranks;
  for (uint32_t i = 0; i < count; ++i) {
    const size_t member = static_cast<size_t>(found[i]);
    if (member < members.size()) ranks.push_back(members[member]);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<int> Watchdog::MissingRanks(const LaunchProgram& launch,
                                        uint32_t request) const {
  return RanksOf(spec_.backend->comm_missing, launch, request);
}

std::vector<int> Watchdog::SilentRanks(const LaunchProgram& launch,
                                       uint32_t request) const {
  return RanksOf(spec_.backend->comm_silent, launch, request);
}

// Of kinds in which not all wait for all only this rank is.
std::vector<int> Watchdog::WaitingRanks(const LaunchProgram& launch,
                                        const std::vector<int>& missing,
                                        const std::vector<int>& silent) const {
  const commsched_collective_t kind = launch.call.kind;
  if (kind == COMMSCHED_SEND || kind == COMMSCHED_BROADCAST ||
      kind == COMMSCHED_REDUCE) {
    return {spec_.world_rank};
  }
  std::vector<int> waiting = spec_.group_ranks[launch.group];
  std::sort(waiting.begin(), waiting.end());
  Remove(missing, &waiting);
  Remove(silent, &waiting);
  return waiting;
}

PendingLaunch Watchdog::Pending(uint32_t index, uint64_t step, uint32_t request,
                                int64_t now_ns) const {
  const LaunchProgram& launch = spec_.program->launches[index];
  const int64_t since_ns = lanes_[launch.lane].since_ns;
  PendingLaunch pending = {
      .launch = index,
      .step = spec_.program->first_step + step,
      .waited_ns = since_ns == kRestarted ? 0 : now_ns - since_ns,
      .missing = {},
      .silent = SilentRanks(launch, request)};
  pending.missing = MissingRanks(launch, request);
  Remove(pending.missing, &pending.silent);  // They have answered just now.
  return pending;
}

absl::Status Watchdog::Expired(uint32_t index, uint64_t step, uint32_t request,
                               int64_t now_ns) const {
  const LaunchProgram& launch = spec_.program->launches[index];
  step += spec_.program->first_step;
  const std::string name = spec_.program->LaunchName(index);
  const std::string waited = Seconds(now_ns - lanes_[launch.lane].since_ns);
  const std::string limit = Seconds(spec_.timeout_ns);
  // In this order: who answers in between is in both.
  std::vector<int> silent = SilentRanks(launch, request);
  const std::vector<int> missing = MissingRanks(launch, request);
  Remove(missing, &silent);
  if (missing.empty()) {
    return absl::DeadlineExceededError(
        absl::StrCat("launch ", name, " of step ", step,
                     " is not complete on rank ", spec_.world_rank, " after ",
                     waited, "; the limit is ", limit, SilentText(silent)));
  }
  const std::vector<int> waiting = WaitingRanks(launch, missing, silent);
  return absl::DeadlineExceededError(absl::StrCat(
      missing.size() == 1 ? "rank " : "ranks ", RankList(missing),
      missing.size() == 1 ? " has" : " have", " not issued ", name, " of step ",
      step, "; ", waiting.size() == 1 ? "rank " : "ranks ", RankList(waiting),
      waiting.size() == 1 ? " has" : " have", " waited for ", waited,
      ", the limit is ", limit, SilentText(silent)));
}

}  // namespace commsched
