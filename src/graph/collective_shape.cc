#include "graph/collective_shape.h"

#include <algorithm>

namespace commsched {

bool IsReducing(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce ||
         kind == CollectiveKind::kReduceScatter ||
         kind == CollectiveKind::kReduce;
}

bool IsRooted(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce;
}

bool IsPointToPoint(CollectiveKind kind) {
  return kind == CollectiveKind::kSend || kind == CollectiveKind::kRecv;
}

bool HasInput(CollectiveKind kind) {
  return kind != CollectiveKind::kBarrier && kind != CollectiveKind::kRecv;
}

bool HasOutput(CollectiveKind kind) {
  return kind != CollectiveKind::kBarrier && kind != CollectiveKind::kSend;
}

bool MayBeLossy(CollectiveKind kind) {
  return kind != CollectiveKind::kAllReduce &&
         kind != CollectiveKind::kReduce && kind != CollectiveKind::kBarrier;
}

bool SplitsInput(CollectiveKind kind) {
  return kind == CollectiveKind::kReduceScatter ||
         kind == CollectiveKind::kAllToAll;
}

bool SplitsOutput(CollectiveKind kind) {
  return kind == CollectiveKind::kAllGather ||
         kind == CollectiveKind::kAllToAll;
}

int64_t NumParts(CollectiveKind kind, int64_t n) {
  if (kind == CollectiveKind::kAllToAll) return n * n;
  return HasParts(kind) ? n : 1;
}

uint64_t CountOf(const Graph& graph, const Access& access,
                 const std::vector<uint64_t>& counts) {
  const uint64_t total = graph.buffer(access.buffer).count;
  switch (access.region.kind) {
    case RegionKind::kWhole:
      return total;
    case RegionKind::kRange:
      return access.region.count;
    case RegionKind::kTile:
      return access.region.rows * access.region.count;
    case RegionKind::kShard:
      return counts.empty() ? total / static_cast<uint64_t>(
                                          graph.group(access.region.group).size)
                            : *std::max_element(counts.begin(), counts.end());
  }
  return total;
}

uint64_t PartCount(const Graph& graph, const CollectiveSpec& spec) {
  if (spec.kind == CollectiveKind::kBarrier) return 0;
  const uint64_t count = CountOf(graph, AnySide(spec), spec.counts);
  if (!SplitsInput(spec.kind)) return count;
  return count / static_cast<uint64_t>(graph.group(spec.group).size);
}

double LinkShare(CollectiveKind kind, int n) {
  if (kind == CollectiveKind::kBarrier) return 0;
  if (IsPointToPoint(kind)) return 1;
  const double others = static_cast<double>(n - 1) / n;
  return kind == CollectiveKind::kAllReduce ? 2 * others : others;
}

double BusiestElements(absl::Span<const uint64_t> counts, int n) {
  double most = 0;
  for (int64_t rank = 0; rank < n; ++rank) {
    double sent = 0, received = 0;
    for (int64_t peer = 0; peer < n; ++peer) {
      if (peer == rank) continue;
      sent += static_cast<double>(counts[rank * n + peer]);
      received += static_cast<double>(counts[peer * n + rank]);
    }
    most = std::max({most, sent, received});
  }
  return most;
}

}  // namespace commsched
