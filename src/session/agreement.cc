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
constexpr char kBound = '=';     // the fingerprint follows
constexpr char kNotBound = '!';  // an error message follows

std::string Payload(const Plan& plan, const absl::Status& bound) {
  if (!bound.ok())
    return absl::StrCat(std::string(1, kNotBound), bound.message());
  std::string payload(1, kBound);
  payload.append(plan.fingerprint.begin(), plan.fingerprint.end());
  return payload;
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
  ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      spec.world->meeting()->AllGather(
          absl::StrCat("session ", spec.instance, " fingerprint"),
          spec.world_rank, Payload(*spec.plan, bound), spec.launch_timeout_ns));
  RETURN_IF_ERROR(bound);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank][0] == kBound) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "session: rank ", rank, " cannot bind: ", all[rank].substr(1)));
  }
  // Every rank sees the same payloads, so all of them go on or none does.
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] != all[0]) {
      return NameTheDifference(spec, static_cast<int>(rank));
    }
  }
  return absl::OkStatus();
}

}  // namespace commsched
