#include "plan/explain/dot.h"

#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "plan/explain/launch_reason_text.h"
#include "plan/explain/names.h"
#include "plan/explain/table.h"

namespace commsched {
namespace {

// Escapes `text` for a quoted label. In a record, braces, bars and angle
// brackets have a meaning as well.
std::string Escaped(absl::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < ' ') {
      escaped += ' ';
      continue;
    }
    if (absl::string_view("\"\\{}|<>").find(c) != absl::string_view::npos) {
      escaped += '\\';
    }
    escaped += c;
  }
  return escaped;
}

std::string NodeName(NodeRef node) {
  return absl::StrCat(node.kind == NodeRef::Kind::kOp ? "op_" : "launch_",
                      node.index);
}

std::string OpName(OpId op) {
  return NodeName({NodeRef::Kind::kOp, op.value()});
}

std::string LaunchName(size_t key) {
  return NodeName({NodeRef::Kind::kLaunch, static_cast<uint32_t>(key)});
}

// "#2 reduce_scatter dp, 4096 bytes | rs.3 | rs.2 | list: copies ..."
std::string LaunchNode(const Plan& plan, size_t key) {
  const Launch& launch = plan.launches[key];
  std::string label =
      absl::StrCat("#", key, " ", CollectiveKindName(launch.kind), " ",
                   Escaped(plan.graph->group(launch.group).name), ", ",
                   launch.payload_bytes, " bytes, ", WayName(launch.way));
  if (launch.piece.of > 1) {
    absl::StrAppend(&label, ", piece ", launch.piece.index + 1, " of ",
                    launch.piece.of);
  }
  for (OpId op : launch.members) {
    absl::StrAppend(&label, "|", Escaped(plan.graph->op(op).name));
  }
  absl::StrAppend(&label, "|", Escaped(ReasonText(plan, launch)));
  return absl::StrCat(LaunchName(key), " [shape=record, label=\"{", label,
                      "}\"];\n");
}

// The nodes of one lane, in order.
struct DrawnLane {
  std::string nodes;
  std::string chain;  // "a -> b -> c"

  void Add(const std::string& node, const std::string& declaration) {
    absl::StrAppend(&nodes, "    ", declaration);
    absl::StrAppend(&chain, chain.empty() ? "" : " -> ", node);
  }
};

std::string Cluster(absl::string_view kind, size_t number,
                    const DrawnLane& lane) {
  return absl::StrCat("  subgraph cluster_", kind, "_", number,
                      " {\n    label=\"", kind, " lane ", number, "\";\n",
                      lane.nodes, "    ", lane.chain,
                      " [style=invis, weight=10];\n  }\n");
}

std::string Clusters(const Plan& plan) {
  std::vector<DrawnLane> compute(plan.num_compute_lanes);
  std::vector<DrawnLane> comm(plan.num_comm_lanes);
  for (const ComputeNode& node : plan.nodes) {
    compute[node.lane].Add(
        OpName(node.op),
        absl::StrCat(OpName(node.op), " [label=\"",
                     Escaped(plan.graph->op(node.op).name), "\"];\n"));
  }
  for (size_t k = 0; k < plan.launches.size(); ++k) {
    comm[plan.launches[k].lane].Add(LaunchName(k), LaunchNode(plan, k));
  }
  std::string text;
  for (size_t i = 0; i < compute.size(); ++i) {
    if (!compute[i].chain.empty()) {
      absl::StrAppend(&text, Cluster("compute", i, compute[i]));
    }
  }
  for (size_t i = 0; i < comm.size(); ++i) {
    if (!comm[i].chain.empty()) {
      absl::StrAppend(&text, Cluster("communication", i, comm[i]));
    }
  }
  return text;
}

std::string EventEdges(const std::string& to, absl::Span<const Wait> waits) {
  std::string text;
  for (const Wait& wait : waits) {
    absl::StrAppend(&text, "  ", NodeName(wait.producer), " -> ", to, " [");
    if (wait.distance != 0) {
      absl::StrAppend(&text, "style=dashed, constraint=false, ");
    }
    absl::StrAppend(&text, "label=\"",
                    wait.cause == WaitCause::kHazard
                        ? absl::string_view()
                        : WaitCauseName(wait.cause),
                    "\"];\n");
  }
  return text;
}

}  // namespace

std::string ExplainDot(const Plan& plan) {
  std::string text =
      "digraph plan {\n"
      "  rankdir=LR;\n"
      "  node [shape=box, fontname=\"sans-serif\"];\n"
      "  edge [fontname=\"sans-serif\"];\n";
  absl::StrAppend(&text, Clusters(plan));
  for (const ComputeNode& node : plan.nodes) {
    absl::StrAppend(&text, EventEdges(OpName(node.op), node.waits));
  }
  for (size_t k = 0; k < plan.launches.size(); ++k) {
    absl::StrAppend(&text, EventEdges(LaunchName(k), plan.launches[k].waits));
    const uint32_t due = plan.due_after[k];
    if (due == 0) continue;
    absl::StrAppend(&text, "  ", OpName(plan.nodes[due - 1].op), " -> ",
                    LaunchName(k), " [style=dotted];\n");
  }
  absl::StrAppend(&text, "}\n");
  return text;
}

}  // namespace commsched
