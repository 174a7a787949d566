#include "engine/model/graph_writer.h"

namespace commsched::engine {

commsched_access_t Access(commsched_buffer_id_t buffer,
                          commsched_access_mode_t mode) {
  commsched_access_t access = {};
  access.buffer = buffer;
  access.mode = mode;
  access.region = COMMSCHED_WHOLE;
  return access;
}

std::string Indexed(const char* name, uint64_t index) {
  return std::string(name) + "." + std::to_string(index);
}

Status GraphWriter::Create(int32_t group_size) {
  commsched_graph_t* graph = nullptr;
  ENGINE_RETURN_IF_ERROR(
      Status::FromCall(commsched_graph_create(&graph), "creating the graph"));
  graph_.reset(graph);
  return AddGroup("dp_shard", group_size, &group_);
}

Status GraphWriter::AddGroup(const char* name, int32_t size,
                             commsched_group_id_t* out_group) {
  return Status::FromCall(
      commsched_graph_add_group(graph(), name, size, out_group),
      "adding a group");
}

Status GraphWriter::AddBuffer(const std::string& name, commsched_dtype_t dtype,
                              commsched_ownership_t ownership, uint64_t count,
                              commsched_buffer_id_t* out_id,
                              uint32_t place_group) {
  commsched_buffer_desc_t desc = commsched_buffer_desc_init();
  desc.name = name.c_str();
  desc.dtype = dtype;
  desc.ownership = ownership;
  desc.count = count;
  desc.place_group = place_group;
  return Status::FromCall(commsched_graph_add_buffer(graph(), &desc, out_id),
                          "adding a buffer");
}

Status GraphWriter::AddCompute(const std::string& name,
                               const std::vector<commsched_access_t>& accesses,
                               double bytes, commsched_op_id_t* out_op) {
  commsched_compute_desc_t desc = commsched_compute_desc_init();
  desc.name = name.c_str();
  desc.accesses = DataOf(accesses);
  desc.num_accesses = static_cast<uint32_t>(accesses.size());
  desc.bytes = bytes;
  return AddCompute(desc, out_op);
}

Status GraphWriter::AddCompute(const commsched_compute_desc_t& desc,
                               commsched_op_id_t* out_op) {
  return Status::FromCall(commsched_graph_add_compute(graph(), &desc, out_op),
                          "adding an op");
}

Status GraphWriter::AddWordsAfter(commsched_op_id_t after, const char* name,
                                  commsched_buffer_id_t words,
                                  commsched_op_id_t* out_op) {
  const commsched_access_t written = Access(words, COMMSCHED_WRITE);
  commsched_compute_desc_t desc = commsched_compute_desc_init();
  desc.name = name;
  desc.accesses = &written;
  desc.num_accesses = 1;
  desc.after = &after;
  desc.num_after = 1;
  desc.cost_ns = 1;
  return AddCompute(desc, out_op);
}

Status GraphWriter::AddCollective(const std::string& name,
                                  const Collective& collective,
                                  commsched_op_id_t* out_op) {
  commsched_collective_desc_t desc = commsched_collective_desc_init();
  desc.name = name.c_str();
  desc.kind = collective.kind;
  desc.reduce_op = collective.reduce_op;
  desc.group = collective.group == kNoId ? group_ : collective.group;
  desc.input = collective.input;
  desc.output = collective.output;
  if (collective.after != kNoId) {
    desc.after = &collective.after;
    desc.num_after = 1;
  }
  commsched_op_id_t op = kNoId;
  ENGINE_RETURN_IF_ERROR(
      Status::FromCall(commsched_graph_add_collective(graph(), &desc, &op),
                       "adding a collective"));
  if (out_op != nullptr) *out_op = op;
  return Status();
}

Status GraphWriter::AddEdge(commsched_op_id_t from, commsched_op_id_t to,
                            uint32_t distance) {
  return Status::FromCall(commsched_graph_add_edge(graph(), from, to, distance),
                          "adding an edge");
}

}  // namespace commsched::engine
