#include "session/agreement.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "plan/identity/fingerprint.h"
#include "session/group_members.h"
#include "xxhash.h"

namespace commsched {
namespace {

// First byte of a rank's payload.
constexpr char kFine[] = "=";    // what is to be equal follows
constexpr char kFailed[] = "!";  // an error message follows

// The first meeting of a session, and where ranks that do not match show what
// they have.
constexpr char kFingerprint[] = "fingerprint";
constexpr char kSummaries[] = "summaries";

constexpr size_t kHashBytes = sizeof(Fingerprint);

std::string MeetingKey(const SessionSpec& spec, absl::string_view subject) {
  return absl::StrCat("session ", spec.instance, " ", subject);
}

absl::StatusOr<std::vector<std::string>> Gather(const SessionSpec& spec,
                                                absl::string_view subject,
                                                std::string mine) {
  return spec.world->meeting()->AllGather(MeetingKey(spec, subject),
                                          spec.world_rank, std::move(mine),
                                          spec.JoinTimeoutNs());
}

// What a rank that has failed claims, and one that has not: the same of nobody.
Claim ClaimOf(const absl::Status& local) {
  return Claim::Of("bound",
                   local.ok() ? absl::string_view(kFine) : local.message());
}

// Whether what the ranks claim of `subject` holds together.
absl::StatusOr<bool> Match(const SessionSpec& spec, absl::string_view subject,
                           absl::Span<const Claim> claims) {
  return spec.world->meeting()->Match(
      MeetingKey(spec, subject), spec.world_rank, claims, spec.JoinTimeoutNs());
}

// Shows all ranks `mine`, or this rank's failure, and returns what they show. A
// failure of any rank is an error of all.
absl::StatusOr<std::vector<std::string>> ShowAll(const SessionSpec& spec,
                                                 absl::string_view subject,
                                                 const absl::Status& local,
                                                 const std::string& mine) {
  ASSIGN_OR_RETURN(std::vector<std::string> all,
                   Gather(spec, subject,
                          local.ok() ? absl::StrCat(kFine, mine)
                                     : absl::StrCat(kFailed, local.message())));
  RETURN_IF_ERROR(local);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank][0] == kFine[0]) {
      all[rank].erase(0, 1);
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "session: rank ", rank, " cannot bind: ", all[rank].substr(1)));
  }
  return all;
}

// Little endian, so that hosts may differ.
template <typename Number>
std::string Bytes(Number value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(value); ++i) {
    bytes.push_back(static_cast<char>(value >> (8 * i)));
  }
  return bytes;
}

uint64_t HashOf(const std::string& text) {
  return XXH3_64bits(text.data(), text.size());
}

std::string BytesOf(const Fingerprint& fingerprint) {
  return std::string(fingerprint.begin(), fingerprint.end());
}

// A communicator as all its members know it: the axis, the world ranks and the
// name in the graphs, as several may hold the same ranks.
std::string GroupText(const SessionSpec& spec, size_t index) {
  const GroupSpec& group = spec.groups[index];
  return absl::StrCat(
      group.axis, "\n", absl::StrJoin(group.ranks, " "), "\n",
      spec.plan->graph->group(GroupId(static_cast<uint32_t>(index))).name);
}

std::string IdentityOf(const SessionSpec& spec, size_t index) {
  return Bytes(HashOf(GroupText(spec, index)));
}

constexpr size_t kIdentityBytes = sizeof(uint64_t);

std::string GroupsOf(const SessionSpec& spec) {
  std::vector<std::string> names;
  for (const Group& group : spec.plan->graph->groups()) {
    names.push_back(group.name);
  }
  return ShowGroups(names, spec.groups);
}

// What a rank shows of its plan: its role, the fingerprint of its plan, and for
// each of its groups who that is and the group's fingerprint. Bounded by the
// number of groups.
std::string Summary(const SessionSpec& spec) {
  const Plan& plan = *spec.plan;
  std::string summary = absl::StrCat(Bytes(plan.role), Bytes(plan.num_roles),
                                     BytesOf(plan.fingerprint));
  for (size_t g = 0; g < spec.groups.size(); ++g) {
    absl::StrAppend(&summary, IdentityOf(spec, g),
                    BytesOf(plan.group_fingerprints[g]));
  }
  return summary;
}

// What holds together if and only if ranks of one role have equal plans, and
// all members of a group have it and agree on it.
std::vector<Claim> ClaimsOf(const SessionSpec& spec) {
  const Plan& plan = *spec.plan;
  std::vector<Claim> claims = {
      ClaimOf(absl::OkStatus()),
      Claim::Of(absl::StrCat("role ", plan.role, " of ", plan.num_roles),
                BytesOf(plan.fingerprint))};
  for (size_t g = 0; g < spec.groups.size(); ++g) {
    claims.push_back(
        Claim::Of(absl::StrCat("group ", GroupText(spec, g)),
                  BytesOf(plan.group_fingerprints[g]),
                  static_cast<uint32_t>(spec.groups[g].ranks.size())));
  }
  return claims;
}

constexpr size_t kRoleBytes = 2 * sizeof(uint32_t);
constexpr size_t kSummaryBytes = kRoleBytes + kHashBytes;

// A summary, and behind it the groups.
struct Shown {
  std::vector<std::string> summaries;
  std::vector<absl::string_view> groups;
};

std::string SummaryAndGroups(const SessionSpec& spec) {
  const std::string summary = Summary(spec);
  return absl::StrCat(Bytes(static_cast<uint32_t>(summary.size())), summary,
                      GroupsOf(spec));
}

Shown Separate(const std::vector<std::string>& all) {
  Shown shown;
  for (const std::string& each : all) {
    uint32_t size = 0;
    for (size_t i = sizeof(size); i-- > 0;) {
      size = size << 8 | static_cast<uint8_t>(each[i]);
    }
    shown.summaries.push_back(each.substr(sizeof(size), size));
    shown.groups.push_back(absl::string_view(each).substr(sizeof(size) + size));
  }
  return shown;
}

// Where two ranks' plans part. Every rank finds the same from what all show.
struct Difference {
  int first = 0;
  int other = 0;
  std::string identity;  // of the group; empty: the whole plan
};

// What ranks of one role must have in common, then what members of one group
// must. False if all agree.
bool FindDifference(const std::vector<std::string>& all, Difference* found) {
  std::map<std::string, int> of_role, of_group;
  for (int rank = 0; rank < static_cast<int>(all.size()); ++rank) {
    const auto [it, is_new] =
        of_role.insert({all[rank].substr(0, kRoleBytes), rank});
    if (is_new || all[rank] == all[it->second]) continue;
    if (all[rank].compare(0, kSummaryBytes, all[it->second], 0,
                          kSummaryBytes) == 0) {
      continue;  // other groups of equal form
    }
    *found = {it->second, rank, ""};
    return true;
  }
  for (int rank = 0; rank < static_cast<int>(all.size()); ++rank) {
    const std::string& mine = all[rank];
    for (size_t at = kSummaryBytes; at < mine.size();
         at += kIdentityBytes + kHashBytes) {
      const std::string identity = mine.substr(at, kIdentityBytes);
      const auto [it, is_new] = of_group.insert({identity, rank});
      if (is_new) continue;
      const std::string& theirs = all[it->second];
      for (size_t to = kSummaryBytes; to < theirs.size();
           to += kIdentityBytes + kHashBytes) {
        if (theirs.compare(to, kIdentityBytes, identity) != 0) continue;
        if (theirs.compare(to + kIdentityBytes, kHashBytes, mine,
                           at + kIdentityBytes, kHashBytes) == 0) {
          continue;
        }
        *found = {it->second, rank, identity};
        return true;
      }
    }
  }
  return false;
}

// This rank's account of what differs; empty if it is neither of the two.
std::vector<std::string> LinesOf(const SessionSpec& spec,
                                 const Difference& difference) {
  if (spec.world_rank != difference.first &&
      spec.world_rank != difference.other) {
    return {};
  }
  if (difference.identity.empty()) return CanonicalLines(*spec.plan);
  for (uint32_t g = 0; g < spec.groups.size(); ++g) {
    if (IdentityOf(spec, g) == difference.identity) {
      return GroupLines(*spec.plan, GroupId(g));
    }
  }
  return {};
}

// The two ranks show a hash of each line, then the first line that differs: a
// plan in words may be large.
absl::Status NameTheDifference(const SessionSpec& spec,
                               const Difference& difference) {
  const std::vector<std::string> lines = LinesOf(spec, difference);
  std::string hashes;
  for (const std::string& line : lines) {
    absl::StrAppend(&hashes, Bytes(HashOf(line)));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   Gather(spec, "plan", std::move(hashes)));
  const std::string& a = all[static_cast<size_t>(difference.first)];
  const std::string& b = all[static_cast<size_t>(difference.other)];
  const size_t equal = static_cast<size_t>(
      std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  const size_t at = equal / sizeof(uint64_t);
  ASSIGN_OR_RETURN(const std::vector<std::string> shown,
                   Gather(spec, "line",
                          at < lines.size() ? absl::StrCat("<", lines[at], ">")
                                            : "nothing more"));
  const bool whole = difference.identity.empty();
  // A line for every field that is hashed, unless one library hashes others.
  if (shown[static_cast<size_t>(difference.first)] ==
      shown[static_cast<size_t>(difference.other)]) {
    return absl::FailedPreconditionError(
        absl::StrCat("session: the fingerprints of ranks ", difference.first,
                     " and ", difference.other,
                     " differ, but nothing that they are made of: the "
                     "ranks may run different versions of the library"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "session: the ranks' plans differ", whole ? "" : " on a group they share",
      ": first difference at line ", at, ": rank ", difference.first, " has ",
      shown[static_cast<size_t>(difference.first)], ", rank ", difference.other,
      " has ", shown[static_cast<size_t>(difference.other)]));
}

}  // namespace

absl::Status AgreeOnPlan(const SessionSpec& spec, const absl::Status& bound) {
  const std::vector<Claim> claims =
      bound.ok() ? ClaimsOf(spec) : std::vector<Claim>{ClaimOf(bound)};
  ASSIGN_OR_RETURN(const bool matches, Match(spec, kFingerprint, claims));
  if (matches) return bound;
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   ShowAll(spec, kSummaries, bound,
                           bound.ok() ? SummaryAndGroups(spec) : ""));
  const Shown shown = Separate(all);
  // Every rank sees the same payloads, so all of them go on or none does.
  Difference difference;
  if (FindDifference(shown.summaries, &difference)) {
    return NameTheDifference(spec, difference);
  }
  return CheckGroupsAgree("session", shown.groups);
}

void DeclineToAgree(const SessionSpec& spec, const absl::Status& why) {
  spec.world->meeting()->Decline(MeetingKey(spec, kFingerprint),
                                 spec.world_rank, why);
}

absl::Status AgreeOnReadiness(const SessionSpec& spec,
                              const absl::Status& ready) {
  ASSIGN_OR_RETURN(const bool matches,
                   Match(spec, "readiness", {ClaimOf(ready)}));
  if (matches) return ready;
  return ShowAll(spec, "failures", ready, "").status();
}

}  // namespace commsched
