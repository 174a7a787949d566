#include "session/agreement.h"

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "plan/fingerprint.h"

namespace commsched {
namespace {

// First byte of a rank's payload.
constexpr char kFine[] = "=";    // what is to be equal follows
constexpr char kFailed[] = "!";  // an error message follows

// Shows all ranks `mine`, or this rank's failure, and returns what they show. A
// failure of any rank is an error of all.
absl::StatusOr<std::vector<std::string>> ShowAll(const SessionSpec& spec,
                                                 absl::string_view subject,
                                                 const absl::Status& local,
                                                 const std::string& mine) {
  const std::string payload = local.ok()
                                  ? absl::StrCat(kFine, mine)
                                  : absl::StrCat(kFailed, local.message());
  ASSIGN_OR_RETURN(std::vector<std::string> all,
                   spec.world->meeting()->AllGather(
                       absl::StrCat("session ", spec.instance, " ", subject),
                       spec.world_rank, payload, spec.launch_timeout_ns));
  RETURN_IF_ERROR(local);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank][0] == kFine[0]) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "session: rank ", rank, " cannot bind: ", all[rank].substr(1)));
  }
  return all;
}

absl::Status NameTheDifference(const SessionSpec& spec, int other_rank) {
  const std::vector<std::string> lines = CanonicalLines(*spec.plan);
  ASSIGN_OR_RETURN(
      const std::vector<std::string> texts,
      spec.world->meeting()->AllGather(
          absl::StrCat("session ", spec.instance, " plan"), spec.world_rank,
          absl::StrJoin(lines, "\n"), spec.launch_timeout_ns));
  const std::vector<std::string> first = absl::StrSplit(texts[0], '\n');
  const std::vector<std::string> other =
      absl::StrSplit(texts[other_rank], '\n');
  return absl::FailedPreconditionError(
      absl::StrCat("session: the ranks' plans differ: ",
                   DescribeDifference(first, 0, other, other_rank)));
}

}  // namespace

absl::Status AgreeOnPlan(const SessionSpec& spec, const absl::Status& bound) {
  const auto& fingerprint = spec.plan->fingerprint;
  ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      ShowAll(spec, "fingerprint", bound,
              std::string(fingerprint.begin(), fingerprint.end())));
  // Every rank sees the same payloads, so all of them go on or none does.
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] != all[0]) {
      return NameTheDifference(spec, static_cast<int>(rank));
    }
  }
  return absl::OkStatus();
}

absl::Status AgreeOnReadiness(const SessionSpec& spec,
                              const absl::Status& ready) {
  return ShowAll(spec, "readiness", ready, "").status();
}

}  // namespace commsched
