// What ranks must agree on, field by field. The fingerprints hash it and the
// message about ranks that differ prints it, both by way of the visitors below:
// whatever changes a hash changes a line.
//
// A sink (CanonicalBytes, CanonicalText) has
//   Line(line, index)             where a line begins
//   Number(label, number)
//   Number(label, number, hidden) printed unless it is `hidden`
//   Flag(label, flag)             printed if it is set
//   Enum(label, value, name_of)
//   Text(label, text)
//   Ref(label, id, name)          an id, printed as the name that it stands for
//   List(label, items, visit)     visit(item) of each; printed if there are any
//   Shared(lines)                 lines that were hashed once for many plans
//   Close(text)                   printed only, as the end of what was labelled
#ifndef COMMSCHED_SRC_PLAN_IDENTITY_CANONICAL_PLAN_H_
#define COMMSCHED_SRC_PLAN_IDENTITY_CANONICAL_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "graph/collective_shape.h"
#include "graph/types.h"
#include "plan/explain/names.h"
#include "plan/plan.h"
#include "plan/predict/cost_model.h"

namespace commsched {

enum class CanonicalLine : uint8_t {
  kOptions,
  kRole,
  kGroup,
  kBuffer,
  kOp,
  kLaunch,
  kMember,
  kPlace,
  kArena,
  kGroupLaunch,  // of a group's fingerprint
};

template <typename Sink>
void VisitOptions(const PlanOptions& options, Sink* out) {
  out->Line(CanonicalLine::kOptions, 0);
  out->Enum(" schedule ", options.schedule, ScheduleName);
  out->Number(" deterministic ", options.deterministic);
  out->Number(" max launches ", options.max_launches_in_flight);
  out->Number(" max bytes ", options.max_bytes_in_flight);
  out->Number(" lanes ", options.num_comm_lanes);
  if (options.coalesce_bytes == kCoalesceAuto) {
    out->Text(" coalesce ", "auto");
  } else {
    out->Number(" coalesce ", options.coalesce_bytes);
  }
  out->Number(" arena ", options.arena_bytes);
  out->Enum(" priority ", options.priority, PriorityName);
  out->Number(" split ", options.partition_bytes);
  // Fingerprints are what they were when there was another option here.
  out->Number(" gone ", 1, 1);
  out->Text(" codec ", options.codec.name);
  out->Number(" of blocks of ", options.codec.block_elements);
  out->Number(" in bytes ", options.codec.block_bytes);
  out->Number(" dtypes ", options.codec.dtypes);
  BackendModel backend = options.backend;
  backend.host_sums = false;  // Only launches show it: whether they are coded.
  if (backend == BackendModel()) return;  // Nothing is asked of it.
  out->Number(" backend lists ", backend.lists);
  out->Number(" tree sums ", backend.deterministic);
  out->Number(" strided ", backend.strided);
  out->Number(" point to point ", backend.point_to_point);
  if (backend.serial_lanes) out->Number(" serial lanes ", 1);
  out->Number(" kinds ", backend.kinds);
  out->Number(" its dtypes ", backend.dtypes);
  out->Number(" reductions ", backend.reductions);
}

template <typename Sink>
void VisitGroup(const Graph& graph, GroupId id, Sink* out) {
  const Group& group = graph.group(id);
  out->Line(CanonicalLine::kGroup, id.value());
  out->Text(" ", group.name);
  out->Number(" size ", group.size);
}

template <typename Sink>
void VisitBuffer(const Graph& graph, uint32_t index, Sink* out) {
  const Buffer& buffer = graph.buffers()[index];
  out->Line(CanonicalLine::kBuffer, index);
  out->Text(" ", buffer.name);
  out->Enum(" ", buffer.dtype, DTypeName);
  out->Number(" count ", buffer.count);
  out->Enum(" ", buffer.ownership, OwnershipName);
  out->Number(" place group ", buffer.place_group, 0);
}

// What follows the name of the buffer: 'x', 'x'/'dp', 'x'[0,+8],
// 'x' tile[0,+8 x4 by 16].
inline absl::string_view RegionOpening(RegionKind kind) {
  constexpr absl::string_view kOpenings[] = {"", "[", "/", " tile["};
  return kOpenings[static_cast<size_t>(kind)];
}

// Of what is waited for: 'op' or #3, a launch.
inline absl::string_view NodeOpening(NodeRef::Kind kind) {
  return kind == NodeRef::Kind::kLaunch ? "#" : "";
}

template <typename Sink>
void VisitAccess(const Graph& graph, const Access& access, Sink* out) {
  const Region& region = access.region;
  out->Enum("", access.mode, AccessModeName);
  out->Ref(" ", access.buffer, graph.buffer(access.buffer).name);
  out->Enum("", region.kind, RegionOpening);
  switch (region.kind) {
    case RegionKind::kWhole:
      return;
    case RegionKind::kShard:
      out->Ref("", region.group, graph.group(region.group).name);
      return;
    case RegionKind::kRange:
    case RegionKind::kTile:
      break;
  }
  out->Number("", region.offset);
  out->Number(",+", region.count);
  if (region.kind == RegionKind::kTile) {
    out->Number(" x", region.rows);
    out->Number(" by ", region.stride);
  }
  out->Close("]");
}

template <typename Sink>
void VisitAccesses(const Graph& graph, const Op& op, Sink* out) {
  out->List(" accesses ", absl::MakeConstSpan(op.accesses),
            [&](const Access& access) { VisitAccess(graph, access, out); });
}

template <typename Sink>
void VisitWaits(const Graph& graph, absl::Span<const Wait> waits, Sink* out) {
  out->List(" waits ", waits, [&](const Wait& wait) {
    out->Enum("", wait.producer.kind, NodeOpening);
    if (wait.producer.kind == NodeRef::Kind::kLaunch) {
      out->Number("", wait.producer.index);
    } else {
      const OpId op(wait.producer.index);
      out->Ref("", op, graph.op(op).name);
    }
    out->Number("-", wait.distance, 0);
    out->Enum(":", wait.cause, WaitCauseName);
  });
}

template <typename Sink>
void VisitOps(const Graph& graph, const char* label, absl::Span<const OpId> ops,
              Sink* out) {
  out->List(label, ops, [&](OpId op) { out->Ref("", op, graph.op(op).name); });
}

template <typename Sink>
void VisitNode(const Plan& plan, uint32_t index, Sink* out) {
  const Graph& graph = *plan.graph;
  const ComputeNode& node = plan.nodes[index];
  const Op& op = graph.op(node.op);
  out->Line(CanonicalLine::kOp, index);
  out->Number(" #", node.op.value());
  out->Text(" ", op.name);
  VisitAccesses(graph, op, out);
  out->Number(" lane ", node.lane);
  VisitOps(graph, " after ", node.after, out);
  out->List(" needs ", absl::MakeConstSpan(node.needs),
            [&](LaunchId launch) { out->Number("#", launch.value()); });
  VisitWaits(graph, node.waits, out);
}

template <typename Sink>
void VisitPiece(const Piece& piece, Sink* out) {
  out->Number(" pieces ", piece.of, 1);
  if (piece.of == 1) return;
  out->Number(" of which ", piece.index);
  out->Number(" [", piece.offset);
  out->Number(",+", piece.count);
  out->Close("]");
}

// A member of a launch, beyond its name.
template <typename Sink>
void VisitMember(const Graph& graph, OpId id, Sink* out) {
  const Op& op = graph.op(id);
  out->Line(CanonicalLine::kMember, id.value());
  out->Ref(" ", id, op.name);
  out->Enum(" ", op.collective.kind, CollectiveKindName);
  VisitAccesses(graph, op, out);
  if (IsPointToPoint(op.collective.kind)) {
    out->Number(" peer ", op.collective.peer_offset);
  }
  out->Flag(" lossy", op.collective.lossy);
  out->List(" counts ", absl::MakeConstSpan(op.collective.counts),
            [&](uint64_t count) { out->Number("", count); });
}

template <typename Sink>
void VisitLaunch(const Plan& plan, uint32_t key, Sink* out) {
  const Graph& graph = *plan.graph;
  const Launch& launch = plan.launches[key];
  out->Line(CanonicalLine::kLaunch, key);
  out->Enum(" ", launch.kind, CollectiveKindName);
  out->Enum(" ", launch.dtype, DTypeName);
  if (IsReducing(launch.kind)) out->Enum(" ", launch.reduce_op, ReduceOpName);
  if (IsRooted(launch.kind)) out->Number(" root ", launch.root);
  out->Ref(" on ", launch.group, graph.group(launch.group).name);
  out->List(" members ", absl::MakeConstSpan(launch.members), [&](OpId op) {
    out->Number("#", op.value());
    out->Text(" ", graph.op(op).name);
  });
  out->Enum(" way ", launch.way, WayName);
  out->Flag(" coded", launch.coded);
  out->Number(" lane ", launch.lane);
  out->Number(" key ", launch.key);
  out->Number(" bytes ", launch.payload_bytes);
  VisitPiece(launch.piece, out);
  if (launch.way == Way::kPack) {
    out->Number(" staging ", launch.staging_offset);
    out->Number("+", launch.staging_bytes);
    out->Number(" output at ", launch.staging_output);
  }
  out->Number(" due after ", plan.due_after[key]);
  VisitOps(graph, " producers ", launch.producers, out);
  VisitWaits(graph, launch.waits, out);
  for (OpId op : launch.members) VisitMember(graph, op, out);
}

// All that the fingerprint of a plan covers: nothing that is predicted.
template <typename Sink>
void VisitPlan(const Plan& plan, Sink* out) {
  const Graph& graph = *plan.graph;
  VisitOptions(plan.options, out);
  out->Line(CanonicalLine::kRole, plan.role);
  out->Number(" ", plan.role);
  out->Number(" of ", plan.num_roles);
  for (uint32_t g = 0; g < graph.groups().size(); ++g) {
    VisitGroup(graph, GroupId(g), out);
  }
  for (uint32_t b = 0; b < graph.buffers().size(); ++b) {
    VisitBuffer(graph, b, out);
  }
  uint32_t key = 0;
  for (uint32_t i = 0; i < plan.nodes.size(); ++i) {
    for (; key < plan.launches.size() && plan.due_after[key] <= i; ++key) {
      VisitLaunch(plan, key, out);
    }
    VisitNode(plan, i, out);
  }
  for (; key < plan.launches.size(); ++key) VisitLaunch(plan, key, out);
  for (const Placement& place : plan.placements) {
    out->Line(CanonicalLine::kPlace, place.buffer.value());
    out->Ref(" ", place.buffer, graph.buffer(place.buffer).name);
    out->Number(" at ", place.offset);
    out->Number(" bytes ", place.bytes);
  }
  out->Line(CanonicalLine::kArena, 0);
  out->Number(" ", plan.arena_bytes);
  for (const auto& sends : plan.group_sends) out->Shared(*sends);
}

// The way counts where it decides what goes over the wire. A single member goes
// the same way from its own memory and from staging.
inline bool WayCounts(const Launch& launch) {
  return launch.members.size() > 1;
}

// Elements that a member takes along; 0 of a barrier.
inline uint64_t ElementsOf(const Graph& graph, const CollectiveSpec& spec) {
  if (spec.kind == CollectiveKind::kBarrier) return 0;
  return PayloadBytes(graph, spec) /
         DTypeSize(graph.buffer(AnySide(spec).buffer).dtype);
}

// What the members of a group must agree on of a launch, whatever their roles.
template <typename Sink>
void VisitGroupLaunch(const Plan& plan, const Launch& launch, Sink* out) {
  out->Line(CanonicalLine::kGroupLaunch, 0);
  out->Enum("", launch.kind, CollectiveKindName);
  out->Enum(" ", launch.dtype, DTypeName);
  if (IsReducing(launch.kind)) out->Enum(" ", launch.reduce_op, ReduceOpName);
  if (IsRooted(launch.kind)) out->Number(" root ", launch.root);
  if (WayCounts(launch)) out->Enum(" way ", launch.way, WayName);
  out->Flag(" coded", launch.coded);
  if (launch.coded) out->Text(" by ", plan.options.codec.name);
  VisitPiece(launch.piece, out);
  out->Number(" key ", launch.key);
  out->List(" of ", absl::MakeConstSpan(launch.members), [&](OpId op) {
    const Op& desc = plan.graph->op(op);
    out->Text("", desc.name);
    out->Number(" count ", ElementsOf(*plan.graph, desc.collective));
    out->List(" counts ", absl::MakeConstSpan(desc.collective.counts),
              [&](uint64_t count) { out->Number("", count); });
  });
}

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_IDENTITY_CANONICAL_PLAN_H_
