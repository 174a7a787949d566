#include "commsched/graph.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "capi/boundary.h"
#include "capi/convert.h"
#include "capi/handles.h"
#include "capi/structs.h"
#include "graph/json.h"

using commsched::AtBoundary;
using commsched::AtVoidBoundary;
using commsched::ReadStruct;
using commsched::RequireArray;
using commsched::RequireNonNull;

commsched_status_t commsched_graph_create(commsched_graph_t** out_graph) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"out_graph", out_graph}}));
    *out_graph = new commsched_graph;
    return absl::OkStatus();
  });
}

void commsched_graph_destroy(commsched_graph_t* graph) {
  AtVoidBoundary([&] { delete graph; });
}

commsched_status_t commsched_graph_reserve(commsched_graph_t* graph,
                                           uint64_t num_ops) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"graph", graph}}));
    return graph->Change().Reserve(num_ops);
  });
}

commsched_status_t commsched_graph_add_group(commsched_graph_t* graph,
                                             const char* name, int32_t size,
                                             commsched_group_id_t* out_group) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull(
        {{"graph", graph}, {"name", name}, {"out_group", out_group}}));
    ASSIGN_OR_RETURN(const auto id, graph->Change().AddGroup(name, size));
    *out_group = id.value();
    return absl::OkStatus();
  });
}

commsched_status_t commsched_graph_add_buffer(
    commsched_graph_t* graph, const commsched_buffer_desc_t* desc,
    commsched_buffer_id_t* out_buffer) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull(
        {{"graph", graph}, {"desc", desc}, {"out_buffer", out_buffer}}));
    ASSIGN_OR_RETURN(const auto ours,
                     ReadStruct(desc, "commsched_buffer_desc_t"));
    ASSIGN_OR_RETURN(auto buffer, commsched::ToBuffer(ours));
    ASSIGN_OR_RETURN(const auto id,
                     graph->Change().AddBuffer(std::move(buffer)));
    *out_buffer = id.value();
    return absl::OkStatus();
  });
}

commsched_status_t commsched_graph_add_compute(
    commsched_graph_t* graph, const commsched_compute_desc_t* desc,
    commsched_op_id_t* out_op) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"graph", graph}, {"desc", desc}, {"out_op", out_op}}));
    ASSIGN_OR_RETURN(const auto ours,
                     ReadStruct(desc, "commsched_compute_desc_t"));
    ASSIGN_OR_RETURN(auto op, commsched::ToComputeOp(ours));
    ASSIGN_OR_RETURN(const auto id, graph->Change().AddOp(std::move(op)));
    *out_op = id.value();
    return absl::OkStatus();
  });
}

commsched_status_t commsched_graph_add_collective(
    commsched_graph_t* graph, const commsched_collective_desc_t* desc,
    commsched_op_id_t* out_op) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"graph", graph}, {"desc", desc}, {"out_op", out_op}}));
    ASSIGN_OR_RETURN(const auto ours,
                     ReadStruct(desc, "commsched_collective_desc_t"));
    ASSIGN_OR_RETURN(auto op, commsched::ToCollectiveOp(ours));
    ASSIGN_OR_RETURN(const auto id, graph->Change().AddOp(std::move(op)));
    *out_op = id.value();
    return absl::OkStatus();
  });
}

commsched_status_t commsched_graph_add_edge(commsched_graph_t* graph,
                                            commsched_op_id_t from,
                                            commsched_op_id_t to,
                                            uint32_t distance) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"graph", graph}}));
    if (distance > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("distance is ", distance, ", not 0 or 1"));
    }
    return graph->Change().AddEdge({commsched::OpId(from), commsched::OpId(to),
                                    static_cast<int>(distance)});
  });
}

uint64_t commsched_graph_num_ops(const commsched_graph_t* graph) {
  return graph == nullptr ? 0 : graph->graph().ops().size();
}

commsched_status_t commsched_graph_find_op(const commsched_graph_t* graph,
                                           const char* name,
                                           commsched_op_id_t* out_op) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"graph", graph}, {"name", name}, {"out_op", out_op}}));
    ASSIGN_OR_RETURN(const auto id, graph->graph().FindOp(name));
    *out_op = id.value();
    return absl::OkStatus();
  });
}

commsched_status_t commsched_graph_to_json(const commsched_graph_t* graph,
                                           char** out_json) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"graph", graph}, {"out_json", out_json}}));
    ASSIGN_OR_RETURN(*out_json, commsched::DuplicateString(
                                    commsched::GraphToJson(graph->graph())));
    return absl::OkStatus();
  });
}

commsched_status_t commsched_graph_from_json(const char* json, uint64_t length,
                                             commsched_graph_t** out_graph) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"json", json}, {"out_graph", out_graph}}));
    ASSIGN_OR_RETURN(auto graph, commsched::GraphFromJson({json, length}));
    *out_graph = new commsched_graph{std::move(graph)};
    return absl::OkStatus();
  });
}

void commsched_string_free(char* string) { std::free(string); }
