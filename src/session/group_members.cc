#include "session/group_members.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace commsched {
namespace {

// Ends a field. Names and axes hold none.
constexpr char kEnd = '\0';

// Fields of a group.
constexpr size_t kFields = 3;

struct ShownGroup {
  absl::string_view name;
  absl::string_view axis;
  absl::string_view ranks;  // as EncodeRanks() has them

  friend auto operator<=>(const ShownGroup& a, const ShownGroup& b) {
    return std::make_pair(a.name, std::make_pair(a.axis, a.ranks)) <=>
           std::make_pair(b.name, std::make_pair(b.axis, b.ranks));
  }
};

// "0 2 3", or "first+step*size" of ranks that are as far apart each. One text
// for one list.
std::string EncodeRanks(const std::vector<int>& ranks) {
  const size_t size = ranks.size();
  bool even = size > 2;
  for (size_t i = 2; i < size && even; ++i) {
    even = ranks[i] - ranks[i - 1] == ranks[1] - ranks[0];
  }
  return even ? absl::StrCat(ranks[0], "+", ranks[1] - ranks[0], "*", size)
              : absl::StrJoin(ranks, " ");
}

std::vector<int> DecodeRanks(absl::string_view text) {
  std::vector<int> ranks;
  for (absl::string_view number :
       absl::StrSplit(text, absl::ByAnyChar("+* "))) {
    int value = 0;
    if (absl::SimpleAtoi(number, &value)) ranks.push_back(value);
  }
  if (text.find('*') == absl::string_view::npos || ranks.size() != 3) {
    return ranks;
  }
  const int first = ranks[0], step = ranks[1], size = ranks[2];
  ranks.clear();
  for (int i = 0; i < size; ++i) ranks.push_back(first + i * step);
  return ranks;
}

std::vector<ShownGroup> Decode(absl::string_view shown) {
  const std::vector<absl::string_view> fields = absl::StrSplit(shown, kEnd);
  std::vector<ShownGroup> groups;
  for (size_t i = 0; i + kFields < fields.size(); i += kFields) {
    groups.push_back({fields[i], fields[i + 1], fields[i + 2]});
  }
  return groups;
}

// Of long lists what is around `at`, where two of them part.
std::string RanksText(const std::vector<int>& ranks, size_t at) {
  constexpr size_t kShown = 16;
  if (ranks.size() <= kShown) {
    return absl::StrCat("[", absl::StrJoin(ranks, ", "), "]");
  }
  const size_t begin = std::min(at, ranks.size() - 1);
  const size_t end = std::min(begin + 4, ranks.size());
  return absl::StrCat(
      "[", begin == 0 ? "" : "..., ",
      absl::StrJoin(ranks.begin() + static_cast<ptrdiff_t>(begin),
                    ranks.begin() + static_cast<ptrdiff_t>(end), ", "),
      end == ranks.size() ? "" : ", ...", "] (", ranks.size(),
      " from position ", begin, " on)");
}

// The first member that does not have a group of `holders`; -1: all have it.
int FindMissing(const std::vector<int>& members,
                const std::vector<int>& holders) {
  for (int rank : members) {
    if (!std::binary_search(holders.begin(), holders.end(), rank)) return rank;
  }
  return -1;
}

// Of `others`, what is called so; null: nothing is.
const ShownGroup* Find(const std::vector<ShownGroup>& others,
                       absl::string_view name) {
  for (const ShownGroup& other : others) {
    if (other.name == name) return &other;
  }
  return nullptr;
}

// "rank 0 has ranks [0, 1] on axis 'dp', rank 1 has no group of that name".
std::string BothRanks(size_t rank, const ShownGroup& group, int missing,
                      const ShownGroup* instead) {
  const std::vector<int> mine = DecodeRanks(group.ranks);
  const std::vector<int> theirs =
      instead == nullptr ? mine : DecodeRanks(instead->ranks);
  const size_t at = static_cast<size_t>(
      std::mismatch(mine.begin(), mine.end(), theirs.begin(), theirs.end())
          .first -
      mine.begin());
  const std::string first =
      absl::StrCat("rank ", rank, " has ranks ", RanksText(mine, at),
                   " on axis '", group.axis, "', rank ", missing, " has ");
  if (instead == nullptr) return absl::StrCat(first, "no group of that name");
  return absl::StrCat(first, "ranks ", RanksText(theirs, at), " on axis '",
                      instead->axis, "'");
}

}  // namespace

std::string ShowGroups(absl::Span<const std::string> names,
                       absl::Span<const GroupSpec> groups) {
  std::string shown;
  for (size_t g = 0; g < groups.size(); ++g) {
    absl::StrAppend(&shown, names[g], absl::string_view(&kEnd, 1),
                    groups[g].axis, absl::string_view(&kEnd, 1),
                    EncodeRanks(groups[g].ranks), absl::string_view(&kEnd, 1));
  }
  return shown;
}

absl::Status CheckGroupsAgree(absl::string_view who,
                              absl::Span<const absl::string_view> shown) {
  std::vector<std::vector<ShownGroup>> groups;
  std::map<ShownGroup, std::vector<int>> holders;  // ranks, in rising order
  for (absl::string_view each : shown) {
    const int rank = static_cast<int>(groups.size());
    groups.push_back(Decode(each));
    for (const ShownGroup& group : groups.back()) {
      holders[group].push_back(rank);
    }
  }
  for (size_t rank = 0; rank < groups.size(); ++rank) {
    for (const ShownGroup& group : groups[rank]) {
      const std::vector<int>& having = holders[group];
      if (having.front() != static_cast<int>(rank)) continue;  // seen
      const std::vector<int> members = DecodeRanks(group.ranks);
      const int missing = FindMissing(members, having);
      if (missing < 0) continue;
      const auto& others = groups[static_cast<size_t>(missing)];
      return absl::FailedPreconditionError(absl::StrCat(
          who, ": group '", group.name, "' differs between its members: ",
          BothRanks(rank, group, missing, Find(others, group.name)),
          "; give all members the same ranks, in the same order, and axis"));
    }
  }
  return absl::OkStatus();
}

}  // namespace commsched
