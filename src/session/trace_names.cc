#include "session/trace_names.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/collective_shape.h"
#include "graph/region.h"

namespace commsched {
namespace {

// The names that PyTorch's profiler gives to collectives.
std::string ProfilerName(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "allreduce";
    case CollectiveKind::kReduceScatter:
      return "_reduce_scatter_base";
    case CollectiveKind::kAllGather:
      return "_allgather_base";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
    case CollectiveKind::kBarrier:
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv:
      break;
  }
  return std::string(CollectiveKindName(kind));
}

uint64_t CountOf(const SessionSpec& spec, const Access& access,
                 const std::vector<uint64_t>& counts) {
  const int rank = access.region.kind == RegionKind::kShard
                       ? spec.groups[access.region.group.value()].rank
                       : 0;
  return ResolveRegion(*spec.plan->graph, access, rank, counts).count;
}

// Adds the elements that member `op` reads and writes on this rank.
void AddCounts(const SessionSpec& spec, OpId op,
               RecordNames::LaunchName* name) {
  const CollectiveSpec& member = spec.plan->graph->op(op).collective;
  if (member.kind == CollectiveKind::kBarrier) return;
  name->input_count += CountOf(spec, member.input, member.counts);
  name->output_count += CountOf(spec, member.output, member.counts);
}

RecordNames::LaunchName NameOf(const SessionSpec& spec, const Launch& launch) {
  const Graph& graph = *spec.plan->graph;
  const GroupSpec& group = spec.groups[launch.group.value()];
  RecordNames::LaunchName name;
  name.name = absl::StrCat(CollectiveKindName(launch.kind), " ");
  for (OpId member : launch.members) {
    if (member != launch.members.front()) name.name += "+";
    name.name += graph.op(member).name;
    AddCounts(spec, member, &name);
  }
  name.collective = ProfilerName(launch.kind);
  name.dtype = std::string(DTypeName(launch.dtype));
  if (IsReducing(launch.kind)) {
    name.reduction = std::string(ReduceOpName(launch.reduce_op));
  }
  name.axis = group.axis;
  name.ranks = group.ranks;
  name.bytes = launch.payload_bytes;
  name.num_members = static_cast<uint32_t>(launch.members.size());
  return name;
}

}  // namespace

RecordNames TraceNames(const SessionSpec& spec) {
  RecordNames names;
  names.rank = spec.world_rank;
  names.world_size = spec.world->spec().size;
  for (const Op& op : spec.plan->graph->ops()) names.ops.push_back(op.name);
  for (const Launch& launch : spec.plan->launches) {
    names.launches.push_back(NameOf(spec, launch));
  }
  names.launch_waits.resize(names.ops.size());
  for (const ComputeNode& node : spec.plan->nodes) {
    for (const Wait& wait : node.waits) {
      if (wait.producer.kind != NodeRef::Kind::kLaunch) continue;
      names.launch_waits[node.op.value()].push_back(
          {wait.producer.index, static_cast<uint64_t>(wait.distance)});
    }
  }
  return names;
}

}  // namespace commsched
