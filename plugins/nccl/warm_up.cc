#include "warm_up.h"

#include <algorithm>
#include <bit>

#include "elements.h"

namespace commsched::nccl {
namespace {

// How many there are in the counts of a member.
uint64_t NumCounts(const commsched_launch_t& launch, int size) {
  const auto n = static_cast<uint64_t>(size);
  return launch.kind == COMMSCHED_ALL_TO_ALL ? n * n : n;
}

// Elements of what a member reads or writes, whichever is more: an upper bound.
uint64_t RoomOf(const commsched_launch_t& launch,
                const commsched_member_t& member, int size) {
  const auto n = static_cast<uint64_t>(size);
  if (member.counts != nullptr) {
    return n * *std::max_element(member.counts,
                                 member.counts + NumCounts(launch, size));
  }
  switch (launch.kind) {
    case COMMSCHED_REDUCE_SCATTER:
    case COMMSCHED_ALL_GATHER:
    case COMMSCHED_ALL_TO_ALL:
      return n * member.count;
    default:
      return member.count;
  }
}

// NCCL picks by powers of two, more or less.
int SizeClass(uint64_t bytes) {
  return static_cast<int>(std::bit_width(std::min(bytes, WarmUp::kMostBytes)));
}

}  // namespace

WarmUp WarmUp::Of(
    const commsched_launch_t* launches, uint32_t num_launches, int size,
    const std::function<bool(const commsched_launch_t&)>& in_order,
    const WarmUp& known) {
  WarmUp warm_up;
  warm_up.classes_ = known.classes_;
  for (uint32_t i = 0; i < num_launches; ++i) {
    const commsched_launch_t& launch = launches[i];
    if (launch.kind == COMMSCHED_SEND) {
      warm_up.AddTransfers(launch);
      continue;
    }
    if (launch.kind == COMMSCHED_BARRIER || launch.num_members == 0) continue;
    const bool is_in_order = in_order(launch);
    if (launch.kind == COMMSCHED_ALL_TO_ALL || is_in_order) {
      warm_up.AddAllPeers(size);
    }
    // A sum in order is messages, and an all-reduce broadcasts besides.
    if (is_in_order && launch.kind != COMMSCHED_ALL_REDUCE) continue;
    warm_up.AddLaunch(launch, size, is_in_order);
  }
  for (const int peer : known.receivers_) warm_up.receivers_.erase(peer);
  for (const int peer : known.senders_) warm_up.senders_.erase(peer);
  return warm_up;
}

void WarmUp::Learn(const WarmUp& other) {
  classes_.insert(other.classes_.begin(), other.classes_.end());
  receivers_.insert(other.receivers_.begin(), other.receivers_.end());
  senders_.insert(other.senders_.begin(), other.senders_.end());
}

void WarmUp::AddTransfers(const commsched_launch_t& launch) {
  for (uint32_t i = 0; i < launch.num_members; ++i) {
    const commsched_member_t& member = launch.members[i];
    (member.direction == COMMSCHED_RECV ? senders_ : receivers_)
        .insert(member.peer);
  }
}

void WarmUp::AddAllPeers(int size) {
  for (int peer = 0; peer < size; ++peer) {
    receivers_.insert(peer);
    senders_.insert(peer);
  }
}

void WarmUp::AddLaunch(const commsched_launch_t& launch, int size,
                       bool in_order) {
  const uint64_t element = DTypeOf(launch).bytes;
  const uint64_t most = kMostBytes / element;
  const auto n = static_cast<uint64_t>(size);
  std::vector<int> key = {static_cast<int>(launch.kind),
                          static_cast<int>(launch.dtype),
                          static_cast<int>(launch.reduce_op), in_order ? 1 : 0};
  Representative made = {launch, {}, {}, in_order};
  uint64_t total = 0;
  uint64_t room = 0;
  for (uint32_t i = 0; i < launch.num_members; ++i) {
    commsched_member_t member = launch.members[i];
    std::vector<uint64_t> counts;
    if (member.counts != nullptr) {
      counts.assign(member.counts, member.counts + NumCounts(launch, size));
      for (uint64_t& each : counts) {
        // Whether there is one at all is a matter of the class, too.
        key.push_back(SizeClass(each * element));
        each = std::min(each, most / n);
      }
    }
    const uint64_t elements = RoomOf(launch, member, size);
    total += elements;
    key.push_back(SizeClass(elements * element));
    member.count =
        std::min(member.count, elements == member.count ? most : most / n);
    room = std::max(room, std::min(elements, most));
    made.members.push_back(member);
    made.counts.push_back(std::move(counts));
  }
  key.push_back(SizeClass(total * element));
  if (!classes_.insert(std::move(key)).second) return;
  half_bytes_ = std::max(half_bytes_, (room * element + 255) / 256 * 256);
  representatives_.push_back(std::move(made));
}

std::vector<WarmUp::Representative> WarmUp::Launches(void* scratch) const {
  std::vector<Representative> launches = representatives_;
  for (Representative& each : launches) {
    for (size_t i = 0; i < each.members.size(); ++i) {
      commsched_member_t& member = each.members[i];
      member.input = scratch;
      member.output = static_cast<char*>(scratch) + half_bytes_;
      member.counts = each.counts[i].empty() ? nullptr : each.counts[i].data();
    }
    each.launch.members = each.members.data();
  }
  return launches;
}

}  // namespace commsched::nccl
