/// Graphs in C++17: commsched/commsched.hpp.
#ifndef COMMSCHED_GRAPH_HPP_
#define COMMSCHED_GRAPH_HPP_

#include <cstdint>
#include <string>
#include <vector>

#include "commsched/commsched.h"
#include "commsched/result.hpp"

namespace commsched {
namespace api {

/// Dense from 0 in the order of addition, per graph.
using OpId = commsched_op_id_t;
using BufferId = commsched_buffer_id_t;
using GroupId = commsched_group_id_t;

/// Accesses of a compute op, or a side of a collective.
inline commsched_access_t AccessTo(BufferId buffer,
                                   commsched_access_mode_t mode) {
  commsched_access_t access = {};
  access.buffer = buffer;
  access.mode = mode;
  return access;
}
inline commsched_access_t Reads(BufferId buffer) {
  return AccessTo(buffer, COMMSCHED_READ);
}
inline commsched_access_t Writes(BufferId buffer) {
  return AccessTo(buffer, COMMSCHED_WRITE);
}
inline commsched_access_t ReadsAndWrites(BufferId buffer) {
  return AccessTo(buffer, COMMSCHED_READ_WRITE);
}
/// The same access, to `count` elements from `offset` only.
inline commsched_access_t Range(commsched_access_t access, uint64_t offset,
                                uint64_t count) {
  access.region = COMMSCHED_RANGE;
  access.offset = offset;
  access.count = count;
  return access;
}
/// The same access, to this rank's part among `group` only.
inline commsched_access_t Shard(commsched_access_t access, GroupId group) {
  access.region = COMMSCHED_SHARD;
  access.group = group;
  return access;
}

/// The same access, to `rows` rows of `count` elements, the first at `offset`,
/// each `stride` after the one before.
inline commsched_access_t Tile(commsched_access_t access, uint64_t offset,
                               uint64_t count, uint64_t rows, uint64_t stride) {
  access.region = COMMSCHED_TILE;
  access.offset = offset;
  access.count = count;
  access.rows = rows;
  access.stride = stride;
  return access;
}

/// commsched_buffer_desc_t with a default for everything but the name.
struct Buffer {
  std::string name;
  commsched_dtype_t dtype = COMMSCHED_F32;
  uint64_t count = 0;  ///< Elements.
  commsched_ownership_t ownership = COMMSCHED_OWNED;
  uint32_t place_group = 0;
};

/// commsched_compute_desc_t.
struct Compute {
  std::string name;
  std::vector<commsched_access_t> accesses;
  std::vector<OpId> after;
  uint32_t lane = 0;
  int32_t priority = 0;
  int64_t cost_ns = 0;
  double flops = 0;
  double bytes = 0;
};

/// commsched_collective_desc_t.
struct Collective {
  std::string name;
  commsched_collective_t kind = COMMSCHED_ALL_REDUCE;
  commsched_reduce_op_t reduce_op = COMMSCHED_SUM;
  GroupId group = 0;
  int32_t root = 0;
  commsched_access_t input = {};
  commsched_access_t output = {};
  std::vector<uint64_t> counts;
  std::vector<OpId> after;
  int32_t priority = 0;
  int32_t peer_offset = 0;
  bool lossy = false;
};

namespace internal {

/// What the C ABI is told; points into the argument.
inline commsched_buffer_desc_t DescOf(const Buffer& buffer) {
  commsched_buffer_desc_t desc = commsched_buffer_desc_init();
  desc.name = buffer.name.c_str();
  desc.dtype = buffer.dtype;
  desc.ownership = buffer.ownership;
  desc.count = buffer.count;
  desc.place_group = buffer.place_group;
  return desc;
}

inline commsched_compute_desc_t DescOf(const Compute& compute) {
  commsched_compute_desc_t desc = commsched_compute_desc_init();
  desc.name = compute.name.c_str();
  desc.accesses = DataOf(compute.accesses);
  desc.num_accesses = static_cast<uint32_t>(compute.accesses.size());
  desc.after = DataOf(compute.after);
  desc.num_after = static_cast<uint32_t>(compute.after.size());
  desc.lane = compute.lane;
  desc.priority = compute.priority;
  desc.cost_ns = compute.cost_ns;
  desc.flops = compute.flops;
  desc.bytes = compute.bytes;
  return desc;
}

inline commsched_collective_desc_t DescOf(const Collective& collective) {
  commsched_collective_desc_t desc = commsched_collective_desc_init();
  desc.name = collective.name.c_str();
  desc.kind = collective.kind;
  desc.reduce_op = collective.reduce_op;
  desc.group = collective.group;
  desc.root = collective.root;
  desc.input = collective.input;
  desc.output = collective.output;
  desc.counts = DataOf(collective.counts);
  desc.num_counts = static_cast<uint32_t>(collective.counts.size());
  desc.after = DataOf(collective.after);
  desc.num_after = static_cast<uint32_t>(collective.after.size());
  desc.priority = collective.priority;
  desc.peer_offset = collective.peer_offset;
  desc.lossy = collective.lossy ? 1 : 0;
  return desc;
}

}  // namespace internal

/// What must happen in one step. A default-constructed graph is a new, empty
/// one; if there was no memory for it, every call says so.
class Graph
    : public internal::Handle<commsched_graph_t, commsched_graph_destroy> {
 public:
  Graph() : Handle(NewGraph()) {}

  static Result<Graph> FromJson(const std::string& json) {
    commsched_graph_t* graph = nullptr;
    const auto code =
        commsched_graph_from_json(json.data(), json.size(), &graph);
    return internal::ResultOf(code, [&] { return Graph(graph); });
  }
  Result<std::string> ToJson() const {
    char* json = nullptr;
    const auto code = commsched_graph_to_json(get(), &json);
    return internal::StringOf(code, json);
  }

  Status Reserve(uint64_t num_ops) {
    return Status::Of(commsched_graph_reserve(get(), num_ops));
  }
  Result<GroupId> AddGroup(const char* name, int32_t size) {
    GroupId id = 0;
    const auto code = commsched_graph_add_group(get(), name, size, &id);
    return internal::ResultOf(code, [&] { return id; });
  }
  Result<BufferId> AddBuffer(const Buffer& buffer) {
    const commsched_buffer_desc_t desc = internal::DescOf(buffer);
    BufferId id = 0;
    const auto code = commsched_graph_add_buffer(get(), &desc, &id);
    return internal::ResultOf(code, [&] { return id; });
  }
  Result<OpId> Add(const Compute& compute) {
    const commsched_compute_desc_t desc = internal::DescOf(compute);
    OpId id = 0;
    const auto code = commsched_graph_add_compute(get(), &desc, &id);
    return internal::ResultOf(code, [&] { return id; });
  }
  Result<OpId> Add(const Collective& collective) {
    const commsched_collective_desc_t desc = internal::DescOf(collective);
    OpId id = 0;
    const auto code = commsched_graph_add_collective(get(), &desc, &id);
    return internal::ResultOf(code, [&] { return id; });
  }
  Status AddEdge(OpId from, OpId to, uint32_t distance) {
    return Status::Of(commsched_graph_add_edge(get(), from, to, distance));
  }

  uint64_t num_ops() const { return commsched_graph_num_ops(get()); }
  Result<OpId> FindOp(const char* name) const {
    OpId id = 0;
    const auto code = commsched_graph_find_op(get(), name, &id);
    return internal::ResultOf(code, [&] { return id; });
  }

 private:
  explicit Graph(commsched_graph_t* graph) : Handle(graph) {}

  static commsched_graph_t* NewGraph() {
    commsched_graph_t* graph = nullptr;
    commsched_graph_create(&graph);
    return graph;
  }
};

}  // namespace api
}  // namespace commsched

#endif  // COMMSCHED_GRAPH_HPP_
