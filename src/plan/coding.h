// What travels in place of a collective's data when a codec encodes it.
#ifndef COMMSCHED_SRC_PLAN_CODING_H_
#define COMMSCHED_SRC_PLAN_CODING_H_

#include <cstdint>
#include <optional>

#include "graph/graph.h"
#include "plan/options.h"

namespace commsched {

// Bytes that a part of `count` elements becomes: whole blocks, rounded up so
// that the next part begins at a multiple of 8.
uint64_t EncodedBytes(const CodecModel& codec, uint64_t count);

// Whether the collective could travel through `codec`: it is lossy; of kind
// REDUCE_SCATTER (of a sum or average), ALL_GATHER, ALL_TO_ALL or BROADCAST,
// with equal parts, on a group of more than one; on ranges of buffers that are
// not late-bound; of a dtype that the codec takes; and does not get larger.
bool MayBeCoded(const Graph& graph, const CollectiveSpec& spec,
                const CodecModel& codec);

// Bytes over the busiest direction of any host's link.
struct CodingBytes {
  uint64_t plain = 0;
  uint64_t coded = 0;
};
// Of a collective that could travel through the codec and is left as it is,
// since no host's link carries less with it: a REDUCE_SCATTER, of which hosts
// send sums unless it is encoded, over several hosts.
std::optional<CodingBytes> LeftUncoded(const Graph& graph,
                                       const CollectiveSpec& spec,
                                       const PlanOptions& options);

// Whether the collective travels through the codec: it could, and is not left.
bool IsCoded(const Graph& graph, const CollectiveSpec& spec,
             const PlanOptions& options);

// What the backend is given of a coded collective of `kind`: bytes (U8), and no
// reduction.
inline CollectiveKind CodedKind(CollectiveKind kind) {
  return kind == CollectiveKind::kReduceScatter ? CollectiveKind::kAllToAll
                                                : kind;
}

// Bytes of what stands in for each side. A REDUCE_SCATTER travels as an
// ALL_TO_ALL of encoded parts, which the receiver sums.
struct CodedSides {
  uint64_t input = 0;
  uint64_t output = 0;
};
CodedSides CodedSidesOf(const Graph& graph, const CollectiveSpec& spec,
                        const CodecModel& codec);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_CODING_H_
