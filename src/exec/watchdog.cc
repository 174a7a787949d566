#include "exec/watchdog.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/mutex.h"

namespace commsched {
namespace {

constexpr uint32_t kMaxNamedRanks = 256;
constexpr int kMaxRanges = 16;

// Tables of older plugins end before the function.
bool KnowsMissing(const commsched_backend_t& backend) {
  return backend.struct_size >= offsetof(commsched_backend_t, comm_missing) +
                                    sizeof(backend.comm_missing) &&
         backend.comm_missing != nullptr;
}

std::string Seconds(int64_t ns) {
  return absl::StrFormat("%.1f s", static_cast<double>(ns) * 1e-9);
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

Watchdog::Watchdog(Spec spec)
    : spec_(std::move(spec)), since_ns_(spec_.program->plan->num_comm_lanes) {}

void Watchdog::Look(int64_t now_ns) {
  std::replace(since_ns_.begin(), since_ns_.end(), kRestarted, now_ns);
}

int64_t Watchdog::DeadlineNs(uint32_t lane) const {
  return DeadlineAfter(since_ns_[lane], spec_.timeout_ns);
}

std::vector<int> Watchdog::MissingRanks(const LaunchProgram& launch,
                                        uint32_t request) const {
  if (!KnowsMissing(*spec_.backend)) return {};
  std::vector<int32_t> found(kMaxNamedRanks);
  const uint32_t count = std::min(
      kMaxNamedRanks, spec_.backend->comm_missing(
                          launch.comm, request, found.data(), kMaxNamedRanks));
  std::vector<int> ranks;
  const std::vector<int>& members = spec_.group_ranks[launch.group];
  for (uint32_t i = 0; i < count; ++i) {
    const size_t member = static_cast<size_t>(found[i]);
    if (member < members.size()) ranks.push_back(members[member]);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

PendingLaunch Watchdog::Pending(uint32_t index, uint64_t step, uint32_t request,
                                int64_t now_ns) const {
  const LaunchProgram& launch = spec_.program->launches[index];
  const int64_t since_ns = since_ns_[launch.lane];
  return {.launch = index,
          .step = spec_.program->first_step + step,
          .waited_ns = since_ns == kRestarted ? 0 : now_ns - since_ns,
          .missing = MissingRanks(launch, request)};
}

absl::Status Watchdog::Expired(uint32_t index, uint64_t step, uint32_t request,
                               int64_t now_ns) const {
  const LaunchProgram& launch = spec_.program->launches[index];
  step += spec_.program->first_step;
  const std::string name = spec_.program->LaunchName(index);
  const std::string waited = Seconds(now_ns - since_ns_[launch.lane]);
  const std::string limit = Seconds(spec_.timeout_ns);
  const std::vector<int> missing = MissingRanks(launch, request);
  if (missing.empty()) {
    return absl::DeadlineExceededError(absl::StrCat(
        "launch ", name, " of step ", step, " is not complete on rank ",
        spec_.world_rank, " after ", waited, "; the limit is ", limit));
  }
  // Of sends and receives only this rank is known to wait.
  std::vector<int> waiting = {spec_.world_rank};
  if (launch.call.kind != COMMSCHED_SEND) {
    waiting = spec_.group_ranks[launch.group];
    std::sort(waiting.begin(), waiting.end());
    waiting.erase(std::remove_if(waiting.begin(), waiting.end(),
                                 [&](int rank) {
                                   return std::binary_search(
                                       missing.begin(), missing.end(), rank);
                                 }),
                  waiting.end());
  }
  return absl::DeadlineExceededError(absl::StrCat(
      missing.size() == 1 ? "rank " : "ranks ", RankList(missing),
      missing.size() == 1 ? " has" : " have", " not issued ", name, " of step ",
      step, "; ", waiting.size() == 1 ? "rank " : "ranks ", RankList(waiting),
      waiting.size() == 1 ? " has" : " have", " waited for ", waited,
      ", the limit is ", limit));
}

}  // namespace commsched
