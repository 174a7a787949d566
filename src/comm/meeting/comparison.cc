#include "comm/meeting/comparison.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "xxhash.h"

namespace commsched {
namespace {

// Facts of which the first byte that differs says something: no byte of a C
// string is 0.
constexpr char kEnd = '\0';

std::string Written(const Fact& fact) {
  return absl::StrCat(fact.subject, std::string(1, kEnd), fact.value);
}

// Little endian, so that hosts may differ.
std::string Bytes(uint64_t value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(value); ++i) {
    bytes.push_back(static_cast<char>(value >> (8 * i)));
  }
  return bytes;
}

constexpr size_t kHashBytes = sizeof(uint64_t);

std::string Hash(const std::string& text) {
  return Bytes(XXH3_64bits(text.data(), text.size()));
}

std::string WideHash(const std::string& text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return absl::StrCat(Bytes(hash.low64), Bytes(hash.high64));
}

// Of all facts, and of each: its subject, then all of it.
std::string HashOfAll(const std::vector<Fact>& facts) {
  std::string text;
  for (const Fact& fact : facts) {
    absl::StrAppend(&text, Written(fact), std::string(1, kEnd));
  }
  return WideHash(text);
}

std::string HashOfEach(const std::vector<Fact>& facts) {
  std::string hashes;
  for (const Fact& fact : facts) {
    absl::StrAppend(&hashes, Hash(fact.subject), Hash(Written(fact)));
  }
  return hashes;
}

constexpr size_t kEachBytes = 2 * kHashBytes;

// Errors say it, so that many ranks are a number of them and a hash.
std::string KeyOf(const ComparisonName& name) {
  constexpr size_t kMostNamed = 16;
  const std::string ranks = absl::StrJoin(name.members, ",");
  if (name.members.size() <= kMostNamed) {
    return absl::StrCat(name.name, " of ranks ", ranks);
  }
  return absl::StrCat(name.name, " of ", name.members.size(), " ranks (",
                      absl::BytesToHexString(WideHash(ranks)), ")");
}

// Two of those who come, by index.
struct Pair {
  size_t first = 0;
  size_t other = 0;
};

// The first who does not agree with the first of the same scope. Every member
// finds the same. False if all agree.
bool FindDifference(const std::vector<std::string>& all, size_t scope_bytes,
                    Pair* out_pair) {
  std::map<std::string, size_t> first_of;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto [it, is_new] =
        first_of.insert({all[i].substr(0, scope_bytes), i});
    if (is_new || all[i] == all[it->second]) continue;
    *out_pair = {it->second, i};
    return true;
  }
  return false;
}

bool HasSubject(const std::string& hashes, absl::string_view subject) {
  for (size_t at = 0; at < hashes.size(); at += kEachBytes) {
    if (hashes.compare(at, kHashBytes, subject.data(), subject.size()) == 0) {
      return true;
    }
  }
  return false;
}

// What one of the two has where they part: the hashes of all its facts, and the
// one there, written; empty if it has no more.
struct Side {
  int rank = 0;
  std::string hashes;
  std::string fact;

  absl::string_view subject() const {
    return absl::string_view(fact).substr(0, fact.find(kEnd));
  }
  absl::string_view value() const {
    return absl::string_view(fact).substr(fact.find(kEnd) + 1);
  }
  absl::string_view HashOfSubject(size_t at) const {
    return absl::string_view(hashes).substr(at * kEachBytes, kHashBytes);
  }
};

std::string OnlyOn(const Side& one, const Side& other) {
  return absl::StrCat(one.subject(), " is ", one.value(), " on rank ", one.rank,
                      " and does not exist on rank ", other.rank);
}

// "weight_decay is 0.1 on rank 0 and 0 on rank 1"
std::string Describe(const Side& a, const Side& b, size_t at) {
  if (b.fact.empty()) return OnlyOn(a, b);
  if (a.fact.empty()) return OnlyOn(b, a);
  if (a.subject() == b.subject()) {
    return absl::StrCat(a.subject(), " is ", a.value(), " on rank ", a.rank,
                        " and ", b.value(), " on rank ", b.rank);
  }
  if (!HasSubject(b.hashes, a.HashOfSubject(at))) return OnlyOn(a, b);
  if (!HasSubject(a.hashes, b.HashOfSubject(at))) return OnlyOn(b, a);
  return absl::StrCat("rank ", a.rank, " has ", a.subject(), " (", a.value(),
                      ") where rank ", b.rank, " has ", b.subject(), " (",
                      b.value(), ")");
}

}  // namespace

absl::StatusOr<uint64_t> Comparisons::Compare(const ComparisonName& name,
                                              absl::string_view scope,
                                              const std::vector<Fact>& facts,
                                              int64_t timeout_ns) {
  const std::string key = KeyOf(name);
  uint64_t number = 0;
  {
    MutexLock lock(&mu_);
    State& state = states_[key];
    if (state.is_in) {
      return absl::FailedPreconditionError(absl::StrCat(
          name.name, ": rank ", rank_, " is already comparing this"));
    }
    if (!state.gave_up.ok()) return state.gave_up;
    state.is_in = true;
    number = state.next;
  }
  const auto gather = [&](absl::string_view what, std::string mine) {
    return meeting_->AllGatherAmong(name.members,
                                    absl::StrCat(key, " ", number, what), rank_,
                                    std::move(mine), timeout_ns);
  };
  const std::string hash = HashOfAll(facts);
  absl::StatusOr<bool> equal =
      meeting_->MatchAmong(name.members, absl::StrCat(key, " ", number), rank_,
                           {Claim::Of(scope, hash)}, timeout_ns);
  {
    MutexLock lock(&mu_);
    State& state = states_[key];
    state.is_in = false;
    ++state.next;
    if (!equal.ok() && !state.gave_up.ok()) equal = state.gave_up;
    // The others had all come before this rank gave up, and wait for it in the
    // next comparison.
    if (equal.ok() && absl::IsAborted(state.gave_up)) {
      meeting_->DeclineAmong(name.members, absl::StrCat(key, " ", state.next),
                             rank_, state.gave_up);
    }
    if (!absl::IsAborted(state.gave_up)) state.gave_up = absl::OkStatus();
  }
  RETURN_IF_ERROR(equal.status());
  if (*equal) return number;

  // Who are the two that differ?
  ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      gather(" hashes", absl::StrCat(WideHash(std::string(scope)), hash)));
  Pair pair;
  if (!FindDifference(all, 2 * kHashBytes, &pair)) return number;

  // The two show a hash of each fact, then the first fact that differs: there
  // may be many.
  const int first = name.members[pair.first];
  const int other = name.members[pair.other];
  const bool shows = rank_ == first || rank_ == other;
  ASSIGN_OR_RETURN(const std::vector<std::string> hashes,
                   gather(" facts", shows ? HashOfEach(facts) : std::string()));
  Side a = {.rank = first, .hashes = hashes[pair.first], .fact = ""};
  Side b = {.rank = other, .hashes = hashes[pair.other], .fact = ""};
  const size_t same =
      static_cast<size_t>(std::mismatch(a.hashes.begin(), a.hashes.end(),
                                        b.hashes.begin(), b.hashes.end())
                              .first -
                          a.hashes.begin());
  const size_t at = same / kEachBytes;
  ASSIGN_OR_RETURN(
      const std::vector<std::string> shown,
      gather(" fact",
             shows && at < facts.size() ? Written(facts[at]) : std::string()));
  a.fact = shown[pair.first];
  b.fact = shown[pair.other];
  return absl::FailedPreconditionError(
      absl::StrCat(name.name, ": ", Describe(a, b, at)));
}

void Comparisons::Decline(const ComparisonName& name, const absl::Status& why) {
  const std::string key = KeyOf(name);
  MutexLock lock(&mu_);
  State& state = states_[key];
  if (!state.gave_up.ok()) return;
  meeting_->DeclineAmong(name.members, absl::StrCat(key, " ", state.next),
                         rank_, why);
  if (state.is_in || absl::IsAborted(why)) state.gave_up = why;
  if (!state.is_in) ++state.next;
}

}  // namespace commsched
