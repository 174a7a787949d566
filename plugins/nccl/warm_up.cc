#include "warm_up.h"

#include <algorithm>
#include <bit>

#include "elements.h"

namespace commsched::nccl {
namespace {

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
uint64_t SizeClass(uint64_t bytes) {
  return static_cast<uint64_t>(
      std::bit_width(std::min(bytes, WarmUp::kMostBytes)));
}

// What comes in, in one word: the finalizer of MurmurHash3.
class Mixer {
 public:
  void Add(uint64_t value) {
    word_ = (word_ ^ value) * 0xff51afd7ed558ccd;
    word_ ^= word_ >> 33;
  }
  uint64_t word() const { return word_; }

 private:
  uint64_t word_ = 0x9e3779b97f4a7c15;
};

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
    if (!warm_up.classes_.insert(ClassOf(launch, size, is_in_order)).second) {
      continue;
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

bool WarmUp::Has(const commsched_launch_t& launch, int size,
                 bool in_order) const {
  if (launch.kind == COMMSCHED_BARRIER || launch.num_members == 0) return true;
  if (launch.kind != COMMSCHED_SEND) {
    return classes_.contains(ClassOf(launch, size, in_order));
  }
  return std::all_of(
      launch.members, launch.members + launch.num_members,
      [this](const commsched_member_t& member) {
        const bool receives = member.direction == COMMSCHED_RECV;
        return (receives ? senders_ : receivers_).contains(member.peer);
      });
}

uint64_t WarmUp::ClassOf(const commsched_launch_t& launch, int size,
                         bool in_order) {
  const uint64_t element = DTypeOf(launch).bytes;
  Mixer mixer;
  mixer.Add(uint64_t{launch.kind} | uint64_t{launch.dtype} << 8 |
            uint64_t{launch.reduce_op} << 16 |
            uint64_t{in_order ? 1u : 0u} << 24);
  uint64_t total = 0;
  for (uint32_t i = 0; i < launch.num_members; ++i) {
    const commsched_member_t& member = launch.members[i];
    const uint64_t num_counts =
        member.counts == nullptr ? 0 : NumCounts(launch, size);
    // Whether there is one at all is a matter of the class, too.
    for (uint64_t c = 0; c < num_counts; ++c) {
      mixer.Add(SizeClass(member.counts[c] * element));
    }
    const uint64_t elements = RoomOf(launch, member, size);
    total += elements;
    mixer.Add(SizeClass(elements * element));
  }
  mixer.Add(SizeClass(total * element));
  return mixer.word();
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
  Representative made = {launch, {}, {}, in_order};
  uint64_t room = 0;
  for (uint32_t i = 0; i < launch.num_members; ++i) {
    commsched_member_t member = launch.members[i];
    std::vector<uint64_t> counts;
    if (member.counts != nullptr) {
      counts.assign(member.counts, member.counts + NumCounts(launch, size));
      for (uint64_t& each : counts) each = std::min(each, most / n);
    }
    const uint64_t elements = RoomOf(launch, member, size);
    member.count =
        std::min(member.count, elements == member.count ? most : most / n);
    room = std::max(room, std::min(elements, most));
    made.members.push_back(member);
    made.counts.push_back(std::move(counts));
  }
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
