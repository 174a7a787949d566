#include "session/trace_names.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
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
      return "all_to_all_single";
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
    case CollectiveKind::kBarrier:
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv:
      break;
  }
  return std::string(CollectiveKindName(kind));
}

// Adds the elements that member `op` reads and writes on this rank.
void AddCounts(const Graph& graph, OpId op, int rank,
               RecordNames::LaunchName* name) {
  const CollectiveSpec& spec = graph.op(op).collective;
  if (spec.kind == CollectiveKind::kBarrier) return;
  name->input_count +=
      ResolveRegion(graph, spec.input, rank, spec.counts).count;
  name->output_count +=
      ResolveRegion(graph, spec.output, rank, spec.counts).count;
}

RecordNames::LaunchName NameOf(const SessionSpec& spec, const Launch& launch) {
  const Graph& graph = *spec.plan->graph;
  const GroupSpec& group = spec.groups[launch.group.value()];
  RecordNames::LaunchName name;
  name.name = absl::StrCat(CollectiveKindName(launch.kind), " ");
  for (OpId member : launch.members) {
    if (member != launch.members.front()) name.name += "+";
    name.name += graph.op(member).name;
    AddCounts(graph, member, group.rank, &name);
  }
  name.collective = ProfilerName(launch.kind);
  name.dtype = std::string(DTypeName(launch.dtype));
  name.axis = group.axis;
  name.ranks = group.ranks;
  name.bytes = launch.weight_bytes;
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
  return names;
}

}  // namespace commsched
