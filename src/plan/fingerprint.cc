#include "plan/fingerprint.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "plan/canonical_bytes.h"
#include "plan/names.h"

namespace commsched {
namespace {

void AddOptions(const Plan& plan, CanonicalBytes* out) {
  const PlanOptions& options = plan.options;
  out->Add(static_cast<uint64_t>(options.schedule));
  out->Add(uint64_t{options.deterministic});
  out->Add(uint64_t{options.max_launches_in_flight});
  out->Add(options.max_bytes_in_flight);
  out->Add(uint64_t{options.num_comm_lanes});
  out->Add(options.coalesce_bytes);
  out->Add(options.arena_bytes);
  out->Add(static_cast<uint64_t>(options.priority));
  out->Add(options.partition_bytes);
  out->Add(uint64_t{options.delay_fillers});
  out->Add(absl::string_view(options.codec.name));
  out->Add(options.codec.block_elements);
  out->Add(options.codec.block_bytes);
  out->Add(uint64_t{options.codec.dtypes});
}

void AddOp(const Graph& graph, OpId id, CanonicalBytes* out) {
  const Op& op = graph.op(id);
  out->Add(op.name);
  out->AddEach(op.kind, op.accesses.size());
  for (const Access& access : op.accesses) out->Add(access);
  if (op.kind != OpKind::kCollective) return;
  if (IsPointToPoint(op.collective.kind)) {
    out->AddEach(op.collective.kind, op.collective.peer_offset);
  }
  out->AddEach(op.collective.kind, op.collective.peer_offset,
               op.collective.lossy);
  out->Add(op.collective.counts);
}

void AddLaunch(const Plan& plan, const Launch& launch, CanonicalBytes* out) {
  out->AddEach(launch.kind, launch.group, launch.dtype, launch.reduce_op,
               launch.root, launch.way, launch.lane);
  out->Add(launch.piece);
  out->AddEach(launch.key, launch.coded);
  if (launch.coded) out->Add(absl::string_view(plan.options.codec.name));
  out->AddEach(launch.weight_bytes, launch.staging_offset, launch.staging_bytes,
               launch.staging_output);
  out->Add(launch.members);
  out->Add(launch.waits);
  out->Add(launch.producers);
  for (OpId op : launch.members) AddOp(*plan.graph, op, out);
}

std::string WaitText(const Plan& plan, absl::Span<const Wait> waits) {
  return absl::StrCat("[",
                      absl::StrJoin(waits, " ",
                                    [&](std::string* out, const Wait& wait) {
                                      absl::StrAppend(out,
                                                      WaitName(plan, wait));
                                    }),
                      "]");
}

template <typename Ids>
std::string IdText(const Ids& ids) {
  return absl::StrCat("[",
                      absl::StrJoin(ids, " ",
                                    [](std::string* out, auto id) {
                                      absl::StrAppend(out, id.value());
                                    }),
                      "]");
}

std::string AccessText(const Graph& graph, const Access& access) {
  const char* mode = access.mode == AccessMode::kRead    ? "r "
                     : access.mode == AccessMode::kWrite ? "w "
                                                         : "rw ";
  return absl::StrCat(mode, RegionName(graph, access));
}

std::string OpText(const Graph& graph, OpId id) {
  const Op& op = graph.op(id);
  std::string text = absl::StrCat(
      "'", op.name, "' {",
      absl::StrJoin(op.accesses, ", ",
                    [&](std::string* out, const Access& access) {
                      absl::StrAppend(out, AccessText(graph, access));
                    }),
      "}");
  if (op.kind != OpKind::kCollective) return text;
  if (IsPointToPoint(op.collective.kind)) {
    absl::StrAppend(&text, " peer ", op.collective.peer_offset);
  }
  if (!op.collective.counts.empty()) {
    absl::StrAppend(&text, " counts ",
                    absl::StrJoin(op.collective.counts, ","));
  }
  return text;
}

std::string LaunchLine(const Plan& plan, uint32_t key) {
  const Launch& launch = plan.launches[key];
  const Graph& graph = *plan.graph;
  std::string line =
      absl::StrCat("launch ", key, " ", CollectiveKindName(launch.kind), " ",
                   DTypeName(launch.dtype));
  if (IsReducing(launch.kind)) {
    absl::StrAppend(&line, " ", ReduceOpName(launch.reduce_op));
  }
  if (IsRooted(launch.kind)) absl::StrAppend(&line, " root ", launch.root);
  absl::StrAppend(&line, " on ", graph.group(launch.group).name, " way ",
                  WayName(launch.way), launch.coded ? " coded" : "", " lane ",
                  launch.lane, " key ", launch.key, " bytes ",
                  launch.weight_bytes);
  if (launch.piece.of > 1) {
    absl::StrAppend(&line, " piece ", launch.piece.index, "/", launch.piece.of,
                    " [", launch.piece.offset, ",+", launch.piece.count, "]");
  }
  absl::StrAppend(&line, " members");
  for (OpId op : launch.members) {
    absl::StrAppend(&line, " #", op.value(), " ", OpText(graph, op));
  }
  if (launch.way == Way::kPack) {
    absl::StrAppend(&line, " staging ", launch.staging_offset, "+",
                    launch.staging_bytes, " output at ", launch.staging_output);
  }
  absl::StrAppend(&line, " due after ", plan.due_after[key], " producers ",
                  IdText(launch.producers), " waits ",
                  WaitText(plan, launch.waits));
  return line;
}

std::string NodeLine(const Plan& plan, uint32_t index) {
  const ComputeNode& node = plan.nodes[index];
  return absl::StrCat(
      "op ", index, " #", node.op.value(), " ", OpText(*plan.graph, node.op),
      " lane ", node.lane, " after ", IdText(node.after), " needs ",
      IdText(node.needs), " waits ", WaitText(plan, node.waits));
}

std::string OptionsLine(const PlanOptions& options) {
  return absl::StrCat(
      "options schedule ",
      options.schedule == Schedule::kSerial ? "serial" : "overlap",
      " deterministic ", options.deterministic ? 1 : 0, " max launches ",
      options.max_launches_in_flight, " max bytes ",
      options.max_bytes_in_flight, " lanes ", options.num_comm_lanes,
      " coalesce ", options.coalesce_bytes, " arena ", options.arena_bytes,
      " priority ", static_cast<int>(options.priority), " split ",
      options.partition_bytes, " delay fillers ", options.delay_fillers ? 1 : 0,
      " codec '", options.codec.name, "' ", options.codec.block_elements, ":",
      options.codec.block_bytes, " dtypes ", options.codec.dtypes);
}

std::string BufferLine(const Plan& plan, uint32_t index) {
  const Buffer& buffer = plan.graph->buffers()[index];
  return absl::StrCat("buffer ", index, " '", buffer.name, "' ",
                      DTypeName(buffer.dtype), " count ", buffer.count, " ",
                      OwnershipName(buffer.ownership));
}

}  // namespace

Fingerprint FingerprintOf(const Plan& plan) {
  const Graph& graph = *plan.graph;
  CanonicalBytes out;
  out.Add(absl::string_view("commsched-plan/2"));
  AddOptions(plan, &out);
  out.Add(uint64_t{graph.groups().size()});
  for (const Group& group : graph.groups()) {
    out.Add(group.name);
    out.Add(static_cast<uint64_t>(group.size));
  }
  out.Add(uint64_t{graph.buffers().size()});
  for (const Buffer& buffer : graph.buffers()) {
    out.Add(buffer.name);
    out.AddEach(buffer.dtype, buffer.ownership, buffer.count);
  }
  out.Add(uint64_t{plan.nodes.size()});
  for (const ComputeNode& node : plan.nodes) {
    out.Add(node.op);
    AddOp(graph, node.op, &out);
    out.Add(uint64_t{node.lane});
    out.Add(node.waits);
    out.Add(node.after);
    out.Add(node.needs);
  }
  out.Add(uint64_t{plan.launches.size()});
  for (size_t k = 0; k < plan.launches.size(); ++k) {
    AddLaunch(plan, plan.launches[k], &out);
    out.Add(uint64_t{plan.due_after[k]});
  }
  out.Add(uint64_t{plan.placements.size()});
  for (const Placement& place : plan.placements) {
    out.AddEach(place.buffer, place.offset, place.bytes);
  }
  out.Add(plan.arena_bytes);
  out.Add(uint64_t{plan.role});
  out.Add(uint64_t{plan.num_roles});
  for (const Fingerprint& group : plan.group_fingerprints) out.Add(group);
  return out.Hash();
}

std::vector<std::string> CanonicalLines(const Plan& plan) {
  const Graph& graph = *plan.graph;
  std::vector<std::string> lines;
  lines.push_back(OptionsLine(plan.options));
  lines.push_back(absl::StrCat("role ", plan.role, " of ", plan.num_roles));
  for (size_t i = 0; i < graph.groups().size(); ++i) {
    lines.push_back(absl::StrCat("group ", i, " '", graph.groups()[i].name,
                                 "' size ", graph.groups()[i].size));
  }
  for (uint32_t i = 0; i < graph.buffers().size(); ++i) {
    lines.push_back(BufferLine(plan, i));
  }
  uint32_t key = 0;
  for (uint32_t i = 0; i < plan.nodes.size(); ++i) {
    for (; key < plan.launches.size() && plan.due_after[key] <= i; ++key) {
      lines.push_back(LaunchLine(plan, key));
    }
    lines.push_back(NodeLine(plan, i));
  }
  for (; key < plan.launches.size(); ++key) {
    lines.push_back(LaunchLine(plan, key));
  }
  for (const Placement& place : plan.placements) {
    lines.push_back(absl::StrCat("place '", graph.buffer(place.buffer).name,
                                 "' at ", place.offset, " bytes ",
                                 place.bytes));
  }
  lines.push_back(absl::StrCat("arena ", plan.arena_bytes));
  return lines;
}

}  // namespace commsched
