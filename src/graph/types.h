#ifndef COMMSCHED_SRC_GRAPH_TYPES_H_
#define COMMSCHED_SRC_GRAPH_TYPES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/dtype.h"
#include "base/strong_id.h"

namespace commsched {

struct OpTag;
struct BufferTag;
struct GroupTag;
using OpId = StrongId<OpTag>;          // dense from 0, order of declaration
using BufferId = StrongId<BufferTag>;  // dense from 0
using GroupId = StrongId<GroupTag>;    // dense from 0

// Numerically equal to COMMSCHED_ALL_REDUCE etc. (asserted in src/capi).
enum class CollectiveKind : uint8_t {
  kAllReduce = 0,
  kReduceScatter = 1,
  kAllGather = 2,
  kAllToAll = 3,
  kBroadcast = 4,
  kReduce = 5,
  kBarrier = 6,
  kSend = 7,
  kRecv = 8,
};

enum class OpKind : uint8_t { kCompute, kCollective };
enum class Ownership : uint8_t { kOwned = 0, kBound = 1, kLateBound = 2 };
enum class RegionKind : uint8_t {
  kWhole = 0,
  kRange = 1,
  kShard = 2,
  kTile = 3
};
enum class AccessMode : uint8_t { kRead = 1, kWrite = 2, kReadWrite = 3 };

// "reduce_scatter", "all_to_all" ...: the names in JSON, traces and messages.
absl::string_view CollectiveKindName(CollectiveKind kind);
// InvalidArgument, listing the names, for any other text.
absl::StatusOr<CollectiveKind> ParseCollectiveKind(absl::string_view name);

inline bool Reads(AccessMode m) { return (static_cast<int>(m) & 1) != 0; }
inline bool Writes(AccessMode m) { return (static_cast<int>(m) & 2) != 0; }

// Part of a buffer, in elements; symbolic: a shard is resolved per rank when a
// session binds (ResolveRegion in graph/region.h).
//
// A tile is `rows` rows of `count` elements, the first at `offset`, each
// `stride` elements after the one before: a range of heads of a
// [tokens, heads, dim] array. A collective takes it as a dense [rows, count]
// array; where it splits it into parts, part p is a range of columns of every
// row, packed row by row.
struct Region {
  RegionKind kind = RegionKind::kWhole;
  GroupId group = {};   // kShard
  uint64_t offset = 0;  // kRange, kTile
  uint64_t count = 0;   // kRange; kTile: elements of a row
  uint64_t rows = 0;    // kTile
  uint64_t stride = 0;  // kTile: at least `count`
  friend bool operator==(const Region&, const Region&) = default;
};

struct Access {
  BufferId buffer;
  AccessMode mode = AccessMode::kRead;
  Region region;
  friend bool operator==(const Access&, const Access&) = default;
};

struct Group {
  std::string name;  // the axis
  int size = 0;
  friend bool operator==(const Group&, const Group&) = default;
};

struct Buffer {
  std::string name;
  DType dtype = DType::kF32;
  Ownership ownership = Ownership::kOwned;
  // Elements; of a late-bound buffer the most that it may have.
  uint64_t count = 0;
  // All owned buffers of one number other than 0 lie at one offset of the
  // arena (graph/place_groups.h).
  uint32_t place_group = 0;
  uint64_t bytes() const { return count * DTypeSize(dtype); }  // checked on add
  friend bool operator==(const Buffer&, const Buffer&) = default;
};

struct ComputeSpec {
  uint32_t lane = 0;
  int64_t cost_ns = 0;
  double flops = 0;
  double bytes = 0;
  friend bool operator==(const ComputeSpec&, const ComputeSpec&) = default;
};

struct CollectiveSpec {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  ReduceOp reduce_op = ReduceOp::kSum;
  GroupId group;
  int root = 0;
  // kSend, kRecv: the peer is the member at (own position + peer_offset) modulo
  // the size, so that one graph serves a whole role. Not 0 modulo the size.
  int peer_offset = 0;
  // Whether a codec may change the bytes that travel.
  bool lossy = false;
  Access input;                  // mode kRead; default without HasInput()
  Access output;                 // mode kWrite; default without HasOutput()
  std::vector<uint64_t> counts;  // uneven splits, else empty
  friend bool operator==(const CollectiveSpec&,
                         const CollectiveSpec&) = default;
};

// Fields that the kind does not use are at their defaults in a graph.
struct Op {
  std::string name;
  OpKind kind = OpKind::kCompute;
  int priority = 0;
  std::vector<Access> accesses;  // of a collective: the sides that it has
  std::vector<OpId> after;       // explicit dependencies at declaration
  ComputeSpec compute;           // kCompute
  CollectiveSpec collective;     // kCollective
  friend bool operator==(const Op&, const Op&) = default;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_GRAPH_TYPES_H_
