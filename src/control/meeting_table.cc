#include "control/meeting_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace commsched {
namespace {

constexpr size_t kNoMember = ~size_t{0};

size_t IndexOf(absl::Span<const int> members, int rank) {
  const auto found = std::find(members.begin(), members.end(), rank);
  if (found == members.end()) return kNoMember;
  return static_cast<size_t>(found - members.begin());
}

// What messages call a member of it.
int NameOf(const MeetingTable::Meeting& meeting, size_t member) {
  return meeting.names.empty() ? meeting.members[member]
                               : meeting.names[member];
}

int NameOf(const MeetingMembers& members, size_t member) {
  return members.names.empty() ? members.ranks[member] : members.names[member];
}

// "1, 2, 5 and 9 more".
std::string MissingRanks(const MeetingTable::Meeting& meeting) {
  constexpr size_t kMaxNamed = 16;
  std::vector<int> missing;
  for (size_t i = 0; i < meeting.members.size(); ++i) {
    if (!meeting.has_come[i]) missing.push_back(NameOf(meeting, i));
  }
  if (missing.size() <= kMaxNamed) return absl::StrJoin(missing, ", ");
  const size_t more = missing.size() - kMaxNamed;
  missing.resize(kMaxNamed);
  return absl::StrCat(absl::StrJoin(missing, ", "), " and ", more, " more");
}

absl::string_view KindName(MeetingKind kind) {
  switch (kind) {
    case MeetingKind::kGather:
      return "gather";
    case MeetingKind::kAgree:
      return "agree";
    case MeetingKind::kBroadcast:
      return "broadcast";
    case MeetingKind::kMatch:
      return "match";
    case MeetingKind::kSplit:
      return "split";
  }
  return "unknown";
}

// A payload as a message shows it.
std::string Shown(absl::string_view payload) {
  constexpr size_t kMaxShown = 64;
  return absl::StrCat("'", absl::CHexEscape(payload.substr(0, kMaxShown)),
                      payload.size() > kMaxShown ? "..." : "", "'");
}

absl::Status Declined(absl::string_view key, int name, bool has_come,
                      const absl::Status& why, absl::string_view where = "") {
  return absl::Status(why.code() == absl::StatusCode::kAborted
                          ? absl::StatusCode::kAborted
                          : absl::StatusCode::kFailedPrecondition,
                      absl::StrCat("meeting '", key, "': rank ", name,
                                   has_come ? " left: " : " will not come: ",
                                   where, why.message()));
}

// The same of a rank that is gone, which `why` names as the job does.
absl::Status Gone(absl::string_view key, const MeetingTable::Meeting& meeting,
                  size_t member, const absl::Status& why) {
  return Declined(key, NameOf(meeting, member), meeting.has_come[member], why,
                  meeting.names.empty() ? "" : "in the job, ");
}

absl::Status CheckNames(absl::string_view key, const MeetingMembers& members) {
  if (members.names.empty() || members.names.size() == members.ranks.size()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("meeting '", key, "': ", members.names.size(), " names of ",
                   members.ranks.size(), " members"));
}

// A family and a sentence.
struct Split {
  absl::string_view family;
  absl::string_view sentence;
};

Split SplitOf(absl::string_view payload) {
  const size_t end = payload.find('\n');
  return {payload.substr(0, end), payload.substr(end + 1)};
}

bool IsWaiting(const MeetingTable::Meeting& meeting, size_t member) {
  return meeting.has_come[member] && !meeting.has_left[member];
}

void Fail(absl::Status failure, MeetingTable::Meeting* meeting) {
  meeting->decided = true;
  meeting->failure = std::move(failure);
}

}  // namespace

MeetingTable::MeetingTable(int size) : size_(size) {}

std::string MeetingTable::SplitPayload(absl::string_view family,
                                       absl::string_view sentence) {
  return absl::StrCat(family, "\n", sentence);
}

absl::Status MeetingTable::CheckMembers(absl::string_view key,
                                        const MeetingMembers& members) const {
  RETURN_IF_ERROR(CheckNames(key, members));
  std::vector<bool> seen(static_cast<size_t>(size_));
  for (const int rank : members.ranks) {
    if (rank < 0 || rank >= size_) {
      return absl::InvalidArgumentError(absl::StrCat(
          "meeting '", key, "': member ", rank, " is not in 0..", size_ - 1));
    }
    if (seen[static_cast<size_t>(rank)]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "meeting '", key, "': member ", rank, " is named twice"));
    }
    seen[static_cast<size_t>(rank)] = true;
  }
  return absl::OkStatus();
}

MeetingTable::Meeting& MeetingTable::Open(absl::string_view key,
                                          const MeetingMembers& members) {
  const auto [at, is_new] =
      meetings_.try_emplace(std::string(key.data(), key.size()));
  Meeting& meeting = at->second;
  if (is_new) {
    const absl::Span<const int> ranks = members.ranks;
    meeting.members.assign(ranks.begin(), ranks.end());
    meeting.names.assign(members.names.begin(), members.names.end());
    meeting.payloads.resize(ranks.size());
    meeting.has_come.resize(ranks.size());
    meeting.has_left.resize(ranks.size());
    for (size_t i = 0; i < ranks.size(); ++i) {
      const auto lost = lost_.find(ranks[i]);
      if (lost == lost_.end()) continue;
      Fail(Gone(key, meeting, i, lost->second), &meeting);
      break;
    }
    LeaveLost(&meeting);
  }
  return meeting;
}

void MeetingTable::LeaveLost(Meeting* meeting) {
  for (size_t i = 0; i < meeting->members.size(); ++i) {
    if (meeting->has_left[i] || !lost_.contains(meeting->members[i])) continue;
    if (!meeting->has_come[i]) ++meeting->num_come;
    meeting->has_come[i] = true;
    meeting->has_left[i] = true;
    ++meeting->num_left;
  }
}

void MeetingTable::EraseIfEmpty(absl::string_view key) {
  const auto at = meetings_.find(key);
  if (at == meetings_.end()) return;
  if (at->second.num_left == at->second.members.size()) meetings_.erase(at);
}

void MeetingTable::DecideIfDue(absl::string_view key, size_t member,
                               Meeting* meeting) {
  const bool all_here = meeting->num_come == meeting->members.size();
  switch (*meeting->kind) {
    case MeetingKind::kGather:
      if (!all_here) return;
      meeting->decided = true;
      meeting->results = std::move(meeting->payloads);
      return;
    case MeetingKind::kAgree: {
      // Each that comes is compared with one that came before it.
      const auto other = static_cast<size_t>(
          std::find_if(meeting->has_come.begin(), meeting->has_come.end(),
                       [&, i = size_t{0}](bool come) mutable {
                         return i++ != member && come;
                       }) -
          meeting->has_come.begin());
      if (other < meeting->members.size() &&
          meeting->payloads[other] != meeting->payloads[member]) {
        const auto [low, high] = std::minmax(other, member);
        Fail(absl::FailedPreconditionError(absl::StrCat(
                 "meeting '", key, "': rank ", NameOf(*meeting, low), " has ",
                 Shown(meeting->payloads[low]), ", rank ",
                 NameOf(*meeting, high), " has ",
                 Shown(meeting->payloads[high]))),
             meeting);
        return;
      }
      if (!all_here) return;
      meeting->decided = true;
      meeting->results = {std::move(meeting->payloads[member])};
      return;
    }
    case MeetingKind::kBroadcast:
      if (member != 0) return;
      meeting->decided = true;
      meeting->results = {std::move(meeting->payloads[0])};
      return;
    case MeetingKind::kMatch:
      if (!all_here) return;
      meeting->decided = true;
      meeting->results = {meeting->tally.Hold() ? kMatches : kDiffers};
      return;
    case MeetingKind::kSplit:
      meeting->decided = all_here;
      return;
  }
}

absl::Status MeetingTable::CheckSplit(absl::string_view key, int rank, int name,
                                      absl::string_view payload) const {
  if (!absl::StrContains(payload, '\n')) {
    return absl::InvalidArgumentError(
        absl::StrCat("meeting '", key, "': rank ", name,
                     " comes to split without a family"));
  }
  const Split mine = SplitOf(payload);
  for (const auto& [other_key, other] : meetings_) {
    if (other.kind != MeetingKind::kSplit || other.decided) continue;
    const size_t member = IndexOf(other.members, rank);
    if (member == kNoMember || !IsWaiting(other, member)) continue;
    const Split open = SplitOf(other.payloads[member]);
    if (open.family != mine.family) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", name, " ", mine.sentence, ", but another of its threads ",
        open.sentence, " and waits: one after the other"));
  }
  return absl::OkStatus();
}

// `member`, which has come to `meeting` to split, may be waited for by one that
// it waits for.
void MeetingTable::FailCrossing(absl::string_view key, size_t member,
                                Meeting* meeting,
                                std::vector<std::string>* decided) {
  const Split mine = SplitOf(meeting->payloads[member]);
  const int rank = meeting->members[member];
  for (auto& [other_key, other] : meetings_) {
    if (other.kind != MeetingKind::kSplit || other.decided) continue;
    if (other_key == key || IndexOf(other.members, rank) == kNoMember) continue;
    for (size_t i = 0; i < other.members.size(); ++i) {
      if (!IsWaiting(other, i)) continue;
      if (IndexOf(meeting->members, other.members[i]) == kNoMember) continue;
      const Split theirs = SplitOf(other.payloads[i]);
      if (theirs.family != mine.family) break;
      const absl::Status failure = absl::FailedPreconditionError(
          absl::StrCat("rank ", NameOf(other, i), " ", theirs.sentence,
                       ", while rank ", NameOf(*meeting, member), " ",
                       mine.sentence, ": each waits for the other"));
      if (!meeting->decided) Fail(failure, meeting);
      Fail(failure, &other);
      if (decided != nullptr) decided->push_back(other_key);
      break;
    }
  }
}

absl::Status MeetingTable::Come(MeetingKind kind, absl::string_view key,
                                const MeetingMembers& of, int rank,
                                std::string payload,
                                std::vector<std::string>* decided) {
  const absl::Span<const int> members = of.ranks;
  if (rank < 0 || rank >= size_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "meeting '", key, "': rank ", rank, " is not in 0..", size_ - 1));
  }
  const size_t member = IndexOf(members, rank);
  if (member == kNoMember) {
    return absl::InvalidArgumentError(
        absl::StrCat("meeting '", key, "': rank ", rank, " is not among ",
                     absl::StrJoin(members, ", ")));
  }
  RETURN_IF_ERROR(CheckNames(key, of));
  if (const Meeting* open = Find(key); open != nullptr) {
    if (open->kind.value_or(kind) != kind || open->members != members) {
      return absl::InvalidArgumentError(absl::StrCat(
          "meeting '", key, "': rank ", rank, " came to one of kind ",
          KindName(kind), " of ranks ", absl::StrJoin(members, ", "),
          "; the meeting is of kind ", KindName(open->kind.value_or(kind)),
          " of ranks ", absl::StrJoin(open->members, ", ")));
    }
    if (open->has_come[member]) {
      return absl::AlreadyExistsError(absl::StrCat(
          "rank ", rank, " is already in the meeting '", key, "'"));
    }
  } else {
    RETURN_IF_ERROR(CheckMembers(key, of));
  }
  std::vector<Claim> claims;
  if (kind == MeetingKind::kMatch) {
    ASSIGN_OR_RETURN(claims, DecodeClaims(payload));
    payload.clear();
  } else if (kind == MeetingKind::kSplit) {
    RETURN_IF_ERROR(CheckSplit(key, rank, NameOf(of, member), payload));
  }
  Meeting& meeting = Open(key, of);
  meeting.kind = kind;
  meeting.has_come[member] = true;
  ++meeting.num_come;
  meeting.payloads[member] = std::move(payload);
  meeting.tally.Add(claims);
  if (kind == MeetingKind::kSplit && !meeting.decided) {
    FailCrossing(key, member, &meeting, decided);
  }
  if (!meeting.decided) DecideIfDue(key, member, &meeting);
  return absl::OkStatus();
}

// Unless it waits, a rank that comes, fails the meeting and leaves, all at
// once.
void MeetingTable::Decline(absl::string_view key, const MeetingMembers& members,
                           int rank, const absl::Status& why) {
  const size_t member = IndexOf(members.ranks, rank);
  if (member == kNoMember) return;
  if (const Meeting* open = Find(key); open != nullptr
                                           ? open->members != members.ranks
                                           : !CheckMembers(key, members).ok()) {
    return;
  }
  Meeting& meeting = Open(key, members);
  const bool has_come = meeting.has_come[member];
  if (!meeting.decided) {
    Fail(Declined(key, NameOf(meeting, member), has_come, why), &meeting);
  }
  if (has_come) return;  // It leaves on its own.
  meeting.has_come[member] = true;
  ++meeting.num_come;
  meeting.has_left[member] = true;
  ++meeting.num_left;
  EraseIfEmpty(key);
}

std::vector<std::string> MeetingTable::Lose(int rank, const absl::Status& why) {
  std::vector<std::string> decided;
  if (!lost_.try_emplace(rank, why).second) return decided;
  std::vector<std::string> empty;
  for (auto& [key, meeting] : meetings_) {
    const size_t member = IndexOf(meeting.members, rank);
    if (member == kNoMember) continue;
    if (!meeting.decided) {
      Fail(Gone(key, meeting, member, why), &meeting);
      decided.push_back(key);
    }
    LeaveLost(&meeting);
    if (meeting.num_left == meeting.members.size()) empty.push_back(key);
  }
  for (const std::string& key : empty) meetings_.erase(key);
  return decided;
}

void MeetingTable::Expire(absl::string_view key, int rank, int64_t waited_ns) {
  const auto at = meetings_.find(key);
  if (at == meetings_.end() || at->second.decided) return;
  Meeting& meeting = at->second;
  const size_t member = IndexOf(meeting.members, rank);
  Fail(absl::DeadlineExceededError(absl::StrCat(
           "meeting '", key, "': rank ", NameOf(meeting, member), " waited ",
           waited_ns / 1'000'000, " ms; missing of ", meeting.members.size(),
           " ranks: ", MissingRanks(meeting))),
       &meeting);
}

const MeetingTable::Meeting* MeetingTable::Find(absl::string_view key) const {
  const auto at = meetings_.find(key);
  return at == meetings_.end() ? nullptr : &at->second;
}

std::vector<int> MeetingTable::Waiting(absl::string_view key) const {
  const Meeting* meeting = Find(key);
  std::vector<int> ranks;
  if (meeting == nullptr) return ranks;
  for (size_t i = 0; i < meeting->members.size(); ++i) {
    if (meeting->has_come[i] && !meeting->has_left[i]) {
      ranks.push_back(meeting->members[i]);
    }
  }
  return ranks;
}

void MeetingTable::Leave(absl::string_view key, int rank) {
  Meeting& meeting = meetings_.find(key)->second;
  const size_t member = IndexOf(meeting.members, rank);
  meeting.has_left[member] = true;
  ++meeting.num_left;
  EraseIfEmpty(key);
}

}  // namespace commsched
