#include "test/property/plan_text.h"

#include "absl/strings/str_cat.h"

namespace commsched::test {
namespace {

std::string AccessText(const Graph& graph, const Access& access) {
  const Region& region = access.region;
  std::string text = absl::StrCat(" ", Reads(access.mode) ? "r" : "",
                                  Writes(access.mode) ? "w" : "", ":",
                                  graph.buffer(access.buffer).name);
  if (region.kind == RegionKind::kShard) {
    absl::StrAppend(&text, "/", graph.group(region.group).name);
  } else if (region.kind != RegionKind::kWhole) {
    absl::StrAppend(&text, "[", region.offset, "+", region.count);
    if (region.kind == RegionKind::kTile) {
      absl::StrAppend(&text, " x", region.rows, " by ", region.stride);
    }
    absl::StrAppend(&text, "]");
  }
  return text;
}

std::string WaitsText(const Plan& plan, absl::Span<const Wait> waits) {
  std::string text;
  for (const Wait& wait : waits) {
    const bool is_op = wait.producer.kind == NodeRef::Kind::kOp;
    absl::StrAppend(&text, " ",
                    is_op ? plan.graph->op(OpId(wait.producer.index)).name
                          : absl::StrCat("#", wait.producer.index),
                    wait.distance == 1 ? "'" : "");
  }
  return text.empty() ? "" : absl::StrCat("; waits", text);
}

std::string PlanText(const Plan& plan) {
  static constexpr const char* kOwnership[] = {"owned", "bound", "late"};
  const Graph& graph = *plan.graph;
  std::string text;
  for (const Buffer& buffer : graph.buffers()) {
    absl::StrAppend(&text, "  ", buffer.name, ": ", buffer.count, " ",
                    kOwnership[static_cast<int>(buffer.ownership)], "\n");
  }
  for (const Op& op : graph.ops()) {
    absl::StrAppend(&text, "  ", op.name);
    if (op.kind == OpKind::kCollective) {
      absl::StrAppend(&text, " ",
                      std::string(CollectiveKindName(op.collective.kind)),
                      " on ", graph.group(op.collective.group).name);
    }
    for (const Access& access : op.accesses) {
      text += AccessText(graph, access);
    }
    for (OpId after : op.after) {
      absl::StrAppend(&text, " after:", graph.op(after).name);
    }
    text += "\n";
  }
  for (const ComputeNode& node : plan.nodes) {
    absl::StrAppend(&text, "  call ", graph.op(node.op).name, " on lane ",
                    node.lane, WaitsText(plan, node.waits), "\n");
  }
  for (uint32_t i = 0; i < plan.launches.size(); ++i) {
    const Launch& launch = plan.launches[i];
    absl::StrAppend(&text, "  #", i, " way ", static_cast<int>(launch.way),
                    " lane ", launch.lane, ":");
    for (OpId op : launch.members) {
      absl::StrAppend(&text, " ", graph.op(op).name);
    }
    absl::StrAppend(&text, WaitsText(plan, launch.waits), "\n");
  }
  for (const Placement& place : plan.placements) {
    absl::StrAppend(&text, "  ", graph.buffer(place.buffer).name, " at ",
                    place.offset, "+", place.bytes, "\n");
  }
  return text;
}

}  // namespace

std::string PlansText(absl::Span<const std::shared_ptr<const Plan>> plans) {
  std::string text;
  for (const auto& plan : plans) {
    absl::StrAppend(&text, "role ", plan->role, "\n", PlanText(*plan));
  }
  return text;
}

}  // namespace commsched::test
