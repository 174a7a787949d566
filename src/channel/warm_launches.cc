#include "channel/warm_launches.h"

#include <algorithm>

#include "comm/launch_check.h"
#include "graph/collective_shape.h"

namespace commsched {
namespace {

// Elements of all parts together: what is done by other algorithms.
constexpr uint64_t kCounts[] = {uint64_t{1} << 8, uint64_t{1} << 14,
                                uint64_t{1} << 20};
constexpr commsched_collective_t kKinds[] = {
    COMMSCHED_ALL_REDUCE, COMMSCHED_REDUCE_SCATTER, COMMSCHED_ALL_GATHER,
    COMMSCHED_BROADCAST, COMMSCHED_REDUCE};

}  // namespace

WarmLaunches::WarmLaunches(const commsched_backend_t& backend,
                           const GroupSpec& group)
    : size_(static_cast<int>(group.ranks.size())) {
  const auto takes = [&](commsched_collective_t kind) {
    return backend.kinds == 0 || (backend.kinds >> kind & 1) != 0;
  };
  for (const commsched_collective_t kind : kKinds) {
    if (!takes(kind)) continue;
    for (const uint64_t count : kCounts) Add(kind, count, 0);
  }
  if (size_ > kMostPeers) return;
  if (takes(COMMSCHED_ALL_TO_ALL)) Add(COMMSCHED_ALL_TO_ALL, kCounts[0], 0);
  if ((backend.capabilities & COMMSCHED_BACKEND_P2P) == 0) return;
  Add(COMMSCHED_SEND, 1, 1);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == group.rank) continue;
    for (const uint32_t direction : {COMMSCHED_SEND, COMMSCHED_RECV}) {
      commsched_member_t member = {};
      member.count = 1;
      member.peer = peer;
      member.direction = direction;
      members_.back().push_back(member);
    }
  }
}

void WarmLaunches::Add(commsched_collective_t kind, uint64_t count,
                       uint32_t number) {
  commsched_launch_t launch = {};
  launch.struct_size = sizeof(launch);
  launch.kind = kind;
  launch.dtype = COMMSCHED_F32;
  std::vector<commsched_member_t> members;
  if (kind != COMMSCHED_SEND) {
    commsched_member_t member = {};
    member.count =
        HasParts(KindOf(kind))
            ? std::max<uint64_t>(count / static_cast<uint64_t>(size_), 1)
            : count;
    members.push_back(member);
  }
  launches_.push_back(launch);
  members_.push_back(std::move(members));
  numbers_.push_back(number);
}

std::vector<commsched_launch_t*> WarmLaunches::launches() {
  std::vector<commsched_launch_t*> all;
  for (size_t i = 0; i < launches_.size(); ++i) {
    launches_[i].num_members = static_cast<uint32_t>(members_[i].size());
    launches_[i].members = members_[i].data();
    all.push_back(&launches_[i]);
  }
  return all;
}

}  // namespace commsched
