#ifndef COMMSCHED_SRC_ENGINE_MODEL_GRAPH_WRITER_H_
#define COMMSCHED_SRC_ENGINE_MODEL_GRAPH_WRITER_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/status.h"
#include "commsched/graph.h"

namespace commsched::engine {

struct GraphDelete {
  void operator()(commsched_graph_t* graph) const {
    commsched_graph_destroy(graph);
  }
};
using GraphHandle = std::unique_ptr<commsched_graph_t, GraphDelete>;

// For a field of a struct, which is NULL if there is nothing in it.
template <typename T>
const T* DataOf(const std::vector<T>& values) {
  return values.empty() ? nullptr : values.data();
}

inline constexpr uint32_t kNoId = std::numeric_limits<uint32_t>::max();

// The whole of a buffer.
commsched_access_t Access(commsched_buffer_id_t buffer,
                          commsched_access_mode_t mode);

// "all_gather.3"
std::string Indexed(const char* name, uint64_t index);

// Writes a graph through the C ABI, most of whose collectives are of one group.
//
// Thread-compatible.
class GraphWriter {
 public:
  // Fails as the graph functions do, like all the rest.
  Status Create(int32_t group_size);
  GraphHandle TakeGraph() { return std::move(graph_); }

  Status AddGroup(const char* name, int32_t size,
                  commsched_group_id_t* out_group);
  Status AddBuffer(const std::string& name, commsched_dtype_t dtype,
                   commsched_ownership_t ownership, uint64_t count,
                   commsched_buffer_id_t* out_id, uint32_t place_group = 0);
  Status AddCompute(const std::string& name,
                    const std::vector<commsched_access_t>& accesses,
                    double bytes, commsched_op_id_t* out_op);
  Status AddCompute(const commsched_compute_desc_t& desc,
                    commsched_op_id_t* out_op);
  // An op of next to no cost that writes a few words once `after` is complete.
  Status AddWordsAfter(commsched_op_id_t after, const char* name,
                       commsched_buffer_id_t words, commsched_op_id_t* out_op);

  struct Collective {
    commsched_collective_t kind = COMMSCHED_ALL_GATHER;
    commsched_reduce_op_t reduce_op = COMMSCHED_SUM;
    commsched_access_t input = {};
    commsched_access_t output = {};
    commsched_op_id_t after = kNoId;     // kNoId: none.
    commsched_group_id_t group = kNoId;  // kNoId: the writer's.
  };
  Status AddCollective(const std::string& name, const Collective& collective,
                       commsched_op_id_t* out_op = nullptr);

  // `to` of step t + `distance` waits for `from` of step t.
  Status AddEdge(commsched_op_id_t from, commsched_op_id_t to,
                 uint32_t distance);

  commsched_graph_t* graph() const { return graph_.get(); }
  commsched_group_id_t group() const { return group_; }

 private:
  GraphHandle graph_;
  commsched_group_id_t group_ = 0;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_MODEL_GRAPH_WRITER_H_
