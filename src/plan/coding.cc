#include "plan/coding.h"

#include "absl/numeric/int128.h"
#include "base/dtype.h"
#include "graph/collective_shape.h"
#include "plan/predict/cost_model.h"

namespace commsched {
namespace {

constexpr uint64_t kPartAlignment = 8;

bool KindIsCoded(const CollectiveSpec& spec) {
  switch (spec.kind) {
    case CollectiveKind::kReduceScatter:
      return spec.reduce_op == ReduceOp::kSum ||
             spec.reduce_op == ReduceOp::kAvg;
    case CollectiveKind::kAllGather:
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kBroadcast:
      return true;
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduce:
    case CollectiveKind::kBarrier:
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv:
      return false;
  }
  return false;
}

bool SideIsCoded(const Graph& graph, const Access& access) {
  return access.region.kind != RegionKind::kTile &&
         graph.buffer(access.buffer).ownership != Ownership::kLateBound;
}

// `bytes`, or UINT64_MAX if they are more: enough for messages.
uint64_t Clamped(absl::uint128 bytes) {
  return absl::Uint128High64(bytes) != 0 ? UINT64_MAX
                                         : absl::Uint128Low64(bytes);
}

}  // namespace

uint64_t EncodedBytes(const CodecModel& codec, uint64_t count) {
  const uint64_t blocks =
      count / codec.block_elements + (count % codec.block_elements != 0);
  const uint64_t bytes = blocks * codec.block_bytes;
  return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

bool MayBeCoded(const Graph& graph, const CollectiveSpec& spec,
                const CodecModel& codec) {
  if (codec.name.empty() || !spec.lossy || !KindIsCoded(spec)) return false;
  if (!spec.counts.empty() || graph.group(spec.group).size < 2) return false;
  if (!SideIsCoded(graph, spec.input) || !SideIsCoded(graph, spec.output)) {
    return false;
  }
  const DType dtype = graph.buffer(spec.input.buffer).dtype;
  if ((codec.dtypes >> static_cast<uint32_t>(dtype) & 1) == 0) return false;
  const uint64_t count = PartCount(graph, spec);
  const uint64_t bytes = count * static_cast<uint64_t>(DTypeSize(dtype));
  // The first also keeps the product of the second small.
  return count / codec.block_elements <= bytes / codec.block_bytes &&
         EncodedBytes(codec, count) <= bytes;
}

std::optional<CodingBytes> LeftUncoded(const Graph& graph,
                                       const CollectiveSpec& spec,
                                       const PlanOptions& options) {
  const HostLinks& hosts = options.hosts;
  const auto size = static_cast<uint64_t>(graph.group(spec.group).size);
  if (spec.kind != CollectiveKind::kReduceScatter ||
      !options.backend.host_sums || hosts.num_ranks != size ||
      hosts.elements == 0 || !MayBeCoded(graph, spec, options.codec)) {
    return std::nullopt;
  }
  const bool is_wide = DTypeSize(graph.buffer(spec.input.buffer).dtype) == 4;
  const uint64_t count = PartCount(graph, spec);
  const absl::uint128 plain =
      absl::uint128(count) *
      (is_wide ? hosts.summed_bytes_32 : hosts.summed_bytes_16);
  const absl::uint128 coded =
      absl::uint128(EncodedBytes(options.codec, count)) * hosts.elements;
  if (plain > coded) return std::nullopt;
  return CodingBytes{Clamped(plain), Clamped(coded)};
}

bool IsCoded(const Graph& graph, const CollectiveSpec& spec,
             const PlanOptions& options) {
  return MayBeCoded(graph, spec, options.codec) &&
         !LeftUncoded(graph, spec, options).has_value();
}

CodedSides CodedSidesOf(const Graph& graph, const CollectiveSpec& spec,
                        const CodecModel& codec) {
  const uint64_t n = static_cast<uint64_t>(graph.group(spec.group).size);
  const uint64_t part = EncodedBytes(codec, PartCount(graph, spec));
  return {SplitsInput(spec.kind) ? n * part : part,
          HasParts(spec.kind) ? n * part : part};
}

}  // namespace commsched
