#include "channel/channel_meeting.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "xxhash.h"

namespace commsched {
namespace {

// First byte of what a rank shows.
constexpr char kFine[] = "=";    // what is to be equal follows
constexpr char kFailed[] = "!";  // an error message follows

std::string RanksText(const ChannelSpec& spec) {
  return absl::StrCat("[", absl::StrJoin(spec.group.ranks, ", "), "]");
}

uint64_t HashOf(const std::string& text) {
  return XXH3_64bits(text.data(), text.size());
}

// Of many ranks errors name a hash.
std::string RanksOfId(const ChannelSpec& spec) {
  constexpr size_t kMostNamed = 16;
  const std::string ranks = absl::StrJoin(spec.group.ranks, ",");
  if (spec.group.ranks.size() <= kMostNamed) return ranks;
  return absl::StrCat(spec.group.ranks.size(), " ranks (",
                      absl::Hex(HashOf(ranks)), ")");
}

// What all members show, each behind kFine. A failure of any is one of all.
absl::StatusOr<std::vector<std::string>> ShowAll(const ChannelSpec& spec,
                                                 absl::string_view subject,
                                                 const absl::Status& local,
                                                 const std::string& mine) {
  ASSIGN_OR_RETURN(
      std::vector<std::string> all,
      spec.world->meeting()->AllGatherAmong(
          spec.group.ranks, absl::StrCat(ChannelId(spec), ", ", subject),
          spec.world_rank,
          local.ok() ? absl::StrCat(kFine, mine)
                     : absl::StrCat(kFailed, local.message()),
          spec.launch_timeout_ns));
  RETURN_IF_ERROR(local);
  for (size_t member = 0; member < all.size(); ++member) {
    if (all[member].substr(0, 1) == kFine) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(ChannelId(spec), ": rank ", spec.group.ranks[member],
                     " cannot take part: ", all[member].substr(1)));
  }
  return all;
}

}  // namespace

std::string ChannelId(const ChannelSpec& spec) {
  return absl::StrCat("channel ", spec.number, " on axis ", spec.group.axis,
                      " of ranks ", RanksOfId(spec));
}

// Sessions have small numbers, and parts of a job the greatest bit.
uint64_t ChannelScope(const ChannelSpec& spec) {
  return uint64_t{1} << 62 | HashOf(ChannelId(spec)) >> 2;
}

absl::Status MeetMembers(const ChannelSpec& spec,
                         const absl::Status& described) {
  const std::string id = ChannelId(spec);
  RETURN_IF_ERROR(spec.world->meeting()->Split(
      spec.group.ranks, id, spec.world_rank, /*family=*/"channels",
      absl::StrCat("creates channel ", spec.number, " on axis '",
                   spec.group.axis, "' of ranks ", RanksText(spec)),
      spec.launch_timeout_ns));
  ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      ShowAll(spec, "limits", described,
              absl::StrCat("max_in_flight ", spec.max_in_flight,
                           " and max_transfers ", spec.max_transfers)));
  for (size_t member = 1; member < all.size(); ++member) {
    if (all[member] == all[0]) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        id, ": rank ", spec.group.ranks[0], " has ", all[0].substr(1),
        ", rank ", spec.group.ranks[member], " has ", all[member].substr(1),
        "; give all members the same"));
  }
  return absl::OkStatus();
}

absl::Status MeetReady(const ChannelSpec& spec, const absl::Status& ready) {
  return ShowAll(spec, "ready", ready, "").status();
}

void DeclineToMeet(const ChannelSpec& spec, const absl::Status& why) {
  spec.world->meeting()->DeclineAmong(spec.group.ranks, ChannelId(spec),
                                      spec.world_rank, why);
}

}  // namespace commsched
