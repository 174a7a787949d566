// What members say before a launch that has NCCL connect them. NCCL connects in
// that call and waits for the others there, where nothing ends it; and if they
// launch something else it waits for ever. So each leaves word of what it is
// about to launch, and NCCL is called once all have, with the same.
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "comm.h"
#include "elements.h"
#include "support/launch_entry.h"

namespace commsched::nccl {
namespace {

// A collective.
struct FirstLaunch {
  uint32_t entry = 0;  // LaunchEntry
  uint32_t num_members = 0;
  uint64_t elements = 0;  // Of all members and parts.

  static FirstLaunch Of(const commsched_launch_t& launch, int size) {
    FirstLaunch first = {LaunchEntry::Of(launch), launch.num_members, 0};
    for (uint32_t i = 0; i < launch.num_members; ++i) {
      const commsched_member_t& member = launch.members[i];
      if (member.counts == nullptr) {
        first.elements += member.count;
        continue;
      }
      for (uint64_t c = 0; c < NumCounts(launch, size); ++c) {
        first.elements += member.counts[c];
      }
    }
    return first;
  }
  // How it differs from `other`, in words; empty: not at all.
  std::string DifferenceFrom(const FirstLaunch& other,
                             const std::string& of_this,
                             const std::string& of_other) const {
    const std::string difference =
        LaunchEntry::Difference(entry, of_this, other.entry, of_other);
    if (!difference.empty()) return difference;
    const auto numbers = [&](const char* what, uint64_t here, uint64_t there) {
      return of_this + " has " + std::to_string(here) + " " + what + ", " +
             of_other + " has " + std::to_string(there);
    };
    if (num_members != other.num_members) {
      return numbers("members", num_members, other.num_members);
    }
    if (elements == other.elements) return "";
    return numbers("elements", elements, other.elements);
  }
};

}  // namespace

// All members come to the same ones, since which launches are first ones
// follows from what was launched before.
Outcome Comm::MeetForFirst(const commsched_launch_t& launch,
                           std::unique_lock<std::mutex>* lock) {
  const bool in_order = ReducesInOrder(launch);
  if (size_ == 1 || warmed_up_.Has(launch, size_, in_order)) return {};
  lock->unlock();
  Outcome met =
      launch.kind == COMMSCHED_SEND ? MeetPeers(launch) : MeetAll(launch);
  lock->lock();
  if (has_failed()) return Failure();
  if (met.ok()) {
    warmed_up_.Learn(WarmUp::Of(
        &launch, 1, size_, [=](const auto&) { return in_order; }, warmed_up_));
  }
  return met;
}

// Each member leaves what it launches, the first one looks at all and leaves
// what it has found.
Outcome Comm::MeetAll(const commsched_launch_t& launch) {
  struct Verdict {
    int32_t other = -1;  // A member that launches something else.
    FirstLaunch launches, of_first;
  };
  const std::string key =
      key_ + " first launch " + std::to_string(num_met_++) + " of ";
  const FirstLaunch mine = FirstLaunch::Of(launch, size_);
  const std::string verdict_key = key + "all";
  Verdict verdict;
  Outcome outcome;
  if (group_rank_ != 0) {
    outcome = rank_.Put(key + std::to_string(group_rank_), &mine, sizeof(mine));
    if (outcome.ok()) {
      outcome = AwaitValue(verdict_key, &verdict, sizeof(verdict));
    }
  } else {
    verdict.of_first = mine;
    for (int member = 1; member < size_ && verdict.other < 0; ++member) {
      FirstLaunch& theirs = verdict.launches;
      outcome =
          AwaitValue(key + std::to_string(member), &theirs, sizeof(theirs));
      if (!outcome.ok()) return outcome;
      if (!theirs.DifferenceFrom(mine, "", "").empty()) verdict.other = member;
    }
    outcome = rank_.Put(verdict_key, &verdict, sizeof(verdict));
  }
  if (!outcome.ok() || verdict.other < 0) return outcome;
  const auto name = [&](int member) {
    return "rank " + std::to_string(ranks_[static_cast<size_t>(member)]);
  };
  return {COMMSCHED_INVALID_ARGUMENT,
          name_ + ", a first launch: " +
              verdict.launches.DifferenceFrom(verdict.of_first,
                                              name(verdict.other), name(0))};
}

// Two ranks are connected by their first message from one to the other.
Outcome Comm::MeetPeers(const commsched_launch_t& launch) {
  const auto key = [&](int from, int to, int by) {
    return key_ + " first message " + std::to_string(from) + " to " +
           std::to_string(to) + " by " + std::to_string(by);
  };
  // Calls `each` with the sender, the receiver and the peer of new ones.
  const auto for_new = [&](const auto& each) -> Outcome {
    Outcome outcome;
    std::set<std::pair<bool, int>> done;
    for (uint32_t i = 0; i < launch.num_members && outcome.ok(); ++i) {
      const commsched_member_t& member = launch.members[i];
      const bool receives = member.direction == COMMSCHED_RECV;
      const auto& known =
          receives ? warmed_up_.senders() : warmed_up_.receivers();
      if (member.peer == group_rank_ || known.contains(member.peer) ||
          !done.insert({receives, member.peer}).second) {
        continue;
      }
      outcome = receives ? each(member.peer, group_rank_, member.peer)
                         : each(group_rank_, member.peer, member.peer);
    }
    return outcome;
  };
  const Outcome said = for_new([&](int from, int to, int /*peer*/) {
    return rank_.Put(key(from, to, group_rank_), "", 0);
  });
  if (!said.ok()) return said;
  return for_new([&](int from, int to, int peer) {
    return AwaitValue(key(from, to, peer), nullptr, 0);
  });
}

}  // namespace commsched::nccl
