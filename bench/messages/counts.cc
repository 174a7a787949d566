#include "bench/messages/counts.h"

#include <algorithm>
#include <bit>
#include <set>

#include "plugins/ucx/algorithms/collectives.h"
#include "plugins/ucx/algorithms/tree_shape.h"
#include "plugins/ucx/message.h"

namespace commsched {
namespace {

bool HasParts(commsched_collective_t kind) {
  return kind == COMMSCHED_ALL_GATHER || kind == COMMSCHED_REDUCE_SCATTER ||
         kind == COMMSCHED_ALL_TO_ALL;
}

// The hosts whose ranks are looked at: of alike hosts one would do, but for
// trees, where the ranks differ that many zeros end the number of.
std::set<int> LookedAt(const ucx::Layout& layout) {
  const auto half =
      std::bit_floor(static_cast<unsigned>(std::max(layout.size() - 1, 1)));
  return {0, layout.num_hosts() / 2, layout.num_hosts() - 1,
          layout.HostOf(std::min(static_cast<int>(half), layout.size() - 1))};
}

struct LinkBytes {
  uint64_t out = 0;
  uint64_t in = 0;
};

void AddRank(const ucx::Operation& operation, const ucx::Layout& layout,
             int rank, LinkBytes* link, LaunchCounts* counts) {
  int64_t messages = 0;
  for (const ucx::Message& message : operation.messages) {
    const bool is_near = layout.ShareHost(rank, message.peer);
    const bool is_offered =
        is_near && message.bytes >= ucx::OfferedBytes(layout.num_hosts());
    messages += is_offered ? 2 : 1;
    if (!is_near) (message.is_receive ? link->in : link->out) += message.bytes;
  }
  std::vector<bool> peers(static_cast<size_t>(layout.size()));
  ucx::MarkPeers(operation, &peers);
  ucx::MarkJoinPeers(layout, rank, &peers);
  counts->messages = std::max(counts->messages, messages);
  counts->endpoints = std::max<int64_t>(
      counts->endpoints, std::count(peers.begin(), peers.end(), true));
}

}  // namespace

std::vector<int> LaunchCase::Hosts() const {
  std::vector<int> hosts;
  const int first = first_host == 0 ? per_host : first_host;
  for (int rank = 0; rank < size; ++rank) {
    hosts.push_back(rank < first ? 0 : 1 + (rank - first) / per_host);
  }
  return hosts;
}

LaunchCounts CountLaunch(const LaunchCase& one,
                         const ucx::ChoiceOptions& options) {
  const ucx::Layout layout(one.Hosts());
  const uint64_t parts = HasParts(one.kind) ? layout.size() : 1;
  commsched_member_t member = {};
  member.count = one.array_bytes / ucx::ElementBytes(one.dtype) / parts;
  commsched_launch_t launch = {};
  launch.kind = one.kind;
  launch.dtype = one.dtype;
  launch.num_members = one.kind == COMMSCHED_BARRIER ? 0 : 1;
  launch.members = &member;
  // Two arrays: nothing is there.
  member.output = reinterpret_cast<void*>(uintptr_t{1} << 60);

  LaunchCounts counts;
  const ucx::Estimate estimate =
      ucx::Choices(layout, options).EstimateOf(launch);
  counts.choice = estimate.choice;
  counts.told = estimate.crossing;
  counts.array_bytes = member.count * ucx::ElementBytes(one.dtype) * parts;
  const ucx::Algorithm& algorithm = *counts.choice.algorithm;
  ucx::Operation operation;
  for (const int host : LookedAt(layout)) {
    LinkBytes link;
    for (const int rank : layout.RanksOf(host)) {
      const ucx::LaunchTask task = {launch, layout, rank, options.chunk_bytes,
                                    /*measures=*/true};
      const uint64_t scratch_bytes =
          ucx::ScratchBytes(algorithm, task, &operation);
      counts.scratch_bytes = std::max(counts.scratch_bytes, scratch_bytes);
      operation.scratch.address = reinterpret_cast<char*>(uintptr_t{1} << 32);
      ucx::Build(algorithm, task, &operation);
      AddRank(operation, layout, rank, &link, &counts);
    }
    counts.link_bytes = std::max({counts.link_bytes, link.out, link.in});
  }
  return counts;
}

}  // namespace commsched
