// Short spellings for ops and accesses in tests of the graph.
#ifndef COMMSCHED_TEST_GRAPH_BUILDERS_H_
#define COMMSCHED_TEST_GRAPH_BUILDERS_H_

#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "test/support/status_matchers.h"

namespace commsched {

inline Access Whole(BufferId buffer, AccessMode mode = AccessMode::kRead) {
  Access access;
  access.buffer = buffer;
  access.mode = mode;
  return access;
}

inline Access Range(BufferId buffer, uint64_t offset, uint64_t count,
                    AccessMode mode = AccessMode::kRead) {
  Access access = Whole(buffer, mode);
  access.region.kind = RegionKind::kRange;
  access.region.offset = offset;
  access.region.count = count;
  return access;
}

inline Access Shard(BufferId buffer, GroupId group,
                    AccessMode mode = AccessMode::kRead) {
  Access access = Whole(buffer, mode);
  access.region.kind = RegionKind::kShard;
  access.region.group = group;
  return access;
}

inline Access Tile(BufferId buffer, uint64_t offset, uint64_t count,
                   uint64_t rows, uint64_t stride,
                   AccessMode mode = AccessMode::kRead) {
  Access access = Range(buffer, offset, count, mode);
  access.region.kind = RegionKind::kTile;
  access.region.rows = rows;
  access.region.stride = stride;
  return access;
}

inline Op Compute(std::string name, std::vector<Access> accesses = {},
                  std::vector<OpId> after = {}) {
  Op op;
  op.name = std::move(name);
  op.accesses = std::move(accesses);
  op.after = std::move(after);
  return op;
}

inline Op Collective(std::string name, CollectiveKind kind, GroupId group,
                     Access input = {}, Access output = {},
                     std::vector<uint64_t> counts = {}) {
  Op op;
  op.name = std::move(name);
  op.kind = OpKind::kCollective;
  op.collective.kind = kind;
  op.collective.group = group;
  op.collective.input = input;
  op.collective.output = output;
  op.collective.counts = std::move(counts);
  return op;
}

inline Buffer F32(std::string name, uint64_t count) {
  Buffer buffer;
  buffer.name = std::move(name);
  buffer.count = count;
  return buffer;
}

}  // namespace commsched

#endif  // COMMSCHED_TEST_GRAPH_BUILDERS_H_
