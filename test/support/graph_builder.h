// Graphs for tests, in few words. A step that the graph refuses ends the
// program with its message: a test that builds a wrong graph is itself wrong.
#ifndef COMMSCHED_TEST_SUPPORT_GRAPH_BUILDER_H_
#define COMMSCHED_TEST_SUPPORT_GRAPH_BUILDER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace commsched::test {

inline Region Range(uint64_t offset, uint64_t count) {
  return {.kind = RegionKind::kRange, .offset = offset, .count = count};
}
inline Region Shard(GroupId group) {
  return {.kind = RegionKind::kShard, .group = group};
}
inline Region Tile(uint64_t offset, uint64_t count, uint64_t rows,
                   uint64_t stride) {
  return {.kind = RegionKind::kTile,
          .offset = offset,
          .count = count,
          .rows = rows,
          .stride = stride};
}
inline Access Read(BufferId buffer, Region region = {}) {
  return {.buffer = buffer, .mode = AccessMode::kRead, .region = region};
}
inline Access Write(BufferId buffer, Region region = {}) {
  return {.buffer = buffer, .mode = AccessMode::kWrite, .region = region};
}
inline Access ReadWrite(BufferId buffer, Region region = {}) {
  return {.buffer = buffer, .mode = AccessMode::kReadWrite, .region = region};
}

// Sum where the kind reduces, root 0, equal parts.
CollectiveSpec Spec(CollectiveKind kind, GroupId group, Access input,
                    Access output);

class GraphBuilder {
 public:
  GroupId Group(const std::string& name, int size);
  // f32.
  BufferId Buffer(const std::string& name, uint64_t count,
                  Ownership ownership = Ownership::kBound);
  BufferId Buffer(commsched::Buffer buffer);
  OpId Compute(const std::string& name, std::vector<Access> accesses,
               ComputeSpec spec = {}, std::vector<OpId> after = {});
  OpId Collective(const std::string& name, CollectiveSpec spec,
                  int priority = 0, std::vector<OpId> after = {});
  // Sum over `group`, in place.
  OpId AllReduce(const std::string& name, GroupId group, BufferId buffer,
                 Region region = {});
  OpId ReduceScatter(const std::string& name, GroupId group, Access input,
                     Access output);
  // In place: the shard of `buffer` to all of it.
  OpId AllGather(const std::string& name, GroupId group, BufferId buffer);
  void Edge(OpId from, OpId to, int distance);

  const Graph& graph() const { return graph_; }

 private:
  OpId Add(Op op);
  Graph graph_;
};

struct ZeroStepSpec {
  int buckets = 4;
  int ranks = 4;
  uint64_t count = 4096;  // elements of a bucket; a multiple of `ranks`
  bool norm = true;       // a global norm between reductions and optimizer
  Ownership gradients = Ownership::kOwned;
  int64_t forward_ns = 100000;
  int64_t backward_ns = 200000;
  int64_t optimizer_ns = 20000;
};

// One step of ZeRO-2 over `buckets` buckets, b = 0 first in forward:
//   fwd.b  reads param.b and act.b, writes act.(b+1)
//   bwd.b  in falling order; reads param.b, act.b, act.(b+1) and dact.(b+1),
//          writes grad.b and dact.b
//   rs.b   grad.b -> gshard.b on group "dp"
//   norm   reads all gshard.b, writes norm
//   opt.b  reads gshard.b and norm, updates this rank's shard of param.b
//   ag.b   param.b in place; the next step's fwd.b reads it
Graph ZeroStep(const ZeroStepSpec& spec = {});

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_SUPPORT_GRAPH_BUILDER_H_
