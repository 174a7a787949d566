#include "ucx/algorithms/level_parts.h"

#include "ucx/algorithms/algorithm.h"
#include "ucx/algorithms/routes.h"

namespace commsched::ucx {
namespace {

// One chunk of each owner is a sixteenth of a launch at most, where links would
// wait for it, but none is smaller than this.
constexpr uint64_t kIdleParts = 16;
constexpr uint64_t kLeastIdleChunkBytes = 64 << 10;
// Nor than this where all own something, so that links have work meanwhile.
constexpr uint64_t kLeastSharedChunkBytes = 128 << 10;
// What goes straight, beside what is relayed: so that links are shared evenly.
constexpr uint64_t kMostRelayingBytes = 256 << 10;

// Part `part` of `parts` nearly equal ones.
Range EqualPart(Range whole, uint64_t parts, uint64_t part) {
  const uint64_t each = whole.count / parts;
  const uint64_t more = whole.count % parts;
  return {whole.begin + part * each + std::min(part, more),
          each + (part < more ? 1 : 0)};
}

}  // namespace

LevelParts::LevelParts(const commsched_launch_t& launch, const Layout& layout,
                       uint64_t chunk, Operation* operation)
    : launch_(launch),
      layout_(layout),
      size_(layout.size()),
      element_(ElementBytes(launch.dtype)),
      chunk_(chunk),
      op_(*operation),
      relays_(layout, operation) {
  if (launch.kind == COMMSCHED_ALL_REDUCE || launch.kind == COMMSCHED_REDUCE) {
    ShareOut();
  }
  if (launch.kind == COMMSCHED_ALL_GATHER) FindRelays();
  CutSmaller();
}

// Which end of the whole each host's share has, of kWholeShare.
void LevelParts::ShareOut() {
  Routes(layout_, launch_).FindLoads(&op_.loads);
  FindShares(op_.loads, &op_.shares);
  for (size_t host = 1; host < op_.shares.size(); ++host) {
    op_.shares[host] += op_.shares[host - 1];
  }
}

void LevelParts::FindRelays() {
  for (int rank = 0; rank < size_; ++rank) {
    relays_.Add(rank, GatheredOf(launch_, rank));
  }
  if (relays_.Find(element_)) {
    chunk_ = std::min(chunk_, kMostRelayingBytes / element_);
  }
}

void LevelParts::CutSmaller() {
  const auto num_owners = static_cast<uint64_t>(NumWaitedFor());
  if (num_owners == 0) return;
  uint64_t count = 0;
  for (uint32_t m = 0; m < launch_.num_members; ++m) {
    count += MemberElements(launch_, launch_.members[m], size_);
  }
  const uint64_t num_chunks = kIdleParts * num_owners;
  const uint64_t chunk = (count + num_chunks - 1) / num_chunks;
  const bool all_own = num_owners == static_cast<uint64_t>(size_);
  const uint64_t least_bytes =
      all_own ? kLeastSharedChunkBytes : kLeastIdleChunkBytes;
  chunk_ = std::min(chunk_, std::max(chunk, least_bytes / element_));
}

// Owners of which links have to wait for a chunk; 0: they do not. A host that
// owns nothing has sent a chunk to each owner before the first result comes
// back, and waits as long for the last; more than two hosts send on what they
// have got from one another. Two that both own something send each other
// inputs, and then results.
int LevelParts::NumWaitedFor() const {
  const bool are_many = layout_.num_hosts() > 2;
  const auto host_size = [&](int host) {
    return static_cast<int>(layout_.RanksOf(host).size());
  };
  switch (launch_.kind) {
    case COMMSCHED_ALL_GATHER:
    case COMMSCHED_REDUCE_SCATTER:
      return 0;
    case COMMSCHED_BROADCAST:
      return are_many ? size_ - host_size(layout_.HostOf(launch_.root)) : 0;
    default:
      break;
  }
  int num_owners = 0;
  for (int host = 0; host < layout_.num_hosts(); ++host) {
    if (ShareOf(host, kWholeShare).count != 0) num_owners += host_size(host);
  }
  return are_many || num_owners != size_ ? num_owners : 0;
}

Range LevelParts::ShareOf(int host, uint64_t count) const {
  __extension__ typedef unsigned __int128 Wide;
  const auto end_of = [&](int h) {
    const auto end = static_cast<uint64_t>(op_.shares[static_cast<size_t>(h)]);
    return static_cast<uint64_t>(Wide{count} * end / kWholeShare);
  };
  const uint64_t begin = host == 0 ? 0 : end_of(host - 1);
  return {begin, end_of(host) - begin};
}

// Of the hosts without the root, or of the ranks without it, equal ones.
Range LevelParts::BroadcastPart(uint64_t count, int owner) const {
  if (layout_.num_hosts() == 1) {
    if (owner == launch_.root) return {};
    return EqualPart({0, count}, static_cast<uint64_t>(size_ - 1),
                     static_cast<uint64_t>(owner - (owner > launch_.root)));
  }
  const int host = layout_.HostOf(owner);
  const int root_host = layout_.HostOf(launch_.root);
  if (host == root_host) return {};
  const Range share =
      EqualPart({0, count}, static_cast<uint64_t>(layout_.num_hosts() - 1),
                static_cast<uint64_t>(host - (host > root_host)));
  return HostPart(share, owner);
}

// Of a host's share, a rank's.
Range LevelParts::HostPart(Range share, int owner) const {
  return EqualPart(share, layout_.RanksOf(layout_.HostOf(owner)).size(),
                   static_cast<uint64_t>(layout_.IndexOf(owner)));
}

void LevelParts::Find(const commsched_member_t& member) {
  if (member.counts != nullptr) {
    op_.part_begins.assign(1, 0);
    for (int rank = 0; rank < size_; ++rank) {
      op_.part_begins.push_back(op_.part_begins.back() +
                                member.counts[static_cast<size_t>(rank)]);
    }
  }
  if (!relays_.exist()) return;
  relays_.Cut([&](int rank) { return WholeOf(member, rank); });
}

// Of a side with a part for each rank, `stride` (0: none between them) apart.
Range LevelParts::SidePart(const commsched_member_t& member, uint64_t stride,
                           int part) const {
  const auto p = static_cast<size_t>(part);
  if (member.counts != nullptr) return {op_.part_begins[p], member.counts[p]};
  return {p * (stride != 0 ? stride : member.count), member.count};
}

// Of a part, what does not go by way of others.
LevelParts::Part LevelParts::StraightPart(Range part, int owner) const {
  const uint64_t relayed = relays_.CountOf(owner, part.count);
  return {{part.begin + relayed, part.count - relayed},
          relayed == 0 || relayed != part.count};
}

LevelParts::Part LevelParts::Of(const commsched_member_t& member,
                                int owner) const {
  Range range;
  switch (launch_.kind) {
    case COMMSCHED_ALL_GATHER:
      return StraightPart(WholeOf(member, owner), owner);
    case COMMSCHED_REDUCE_SCATTER:
      return {SidePart(member, member.input_stride, owner)};
    case COMMSCHED_BROADCAST:
      range = BroadcastPart(member.count, owner);
      break;
    default:
      range = HostPart(ShareOf(layout_.HostOf(owner), member.count), owner);
  }
  return {range, range.count != 0};
}

}  // namespace commsched::ucx
