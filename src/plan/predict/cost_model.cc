#include "plan/predict/cost_model.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "graph/collective_shape.h"

namespace commsched {
namespace {

// Times beyond kMaxStepNs, which CheckProfile refuses, only have to stay large.
int64_t Rounded(double ns) {
  return static_cast<int64_t>(std::llround(std::min(ns, 9e18)));
}

bool IsUnevenExchange(const CollectiveSpec& spec) {
  return spec.kind == CollectiveKind::kAllToAll && !spec.counts.empty();
}

// Bytes that a collective moves over a link direction of each member.
double LinkBytes(const Graph& graph, const CollectiveSpec& spec) {
  const int n = graph.group(spec.group).size;
  if (!IsUnevenExchange(spec)) {
    return LinkShare(spec.kind, n) *
           static_cast<double>(PayloadBytes(graph, spec));
  }
  return BusiestElements(spec.counts, n) *
         static_cast<double>(DTypeSize(graph.buffer(spec.input.buffer).dtype));
}

int64_t BusyNs(double link_bytes, const CostProfile& profile) {
  return Rounded(1e9 * link_bytes / profile.link_bytes_per_s);
}

int64_t TimeOf(double link_bytes, const CostProfile& profile) {
  return profile.link_latency_ns + BusyNs(link_bytes, profile);
}

absl::Status CheckRate(absl::string_view name, double rate) {
  if (std::isfinite(rate) && rate > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("profile: ", name, " is ", rate, "; it must be above 0"));
}

bool IsTime(int64_t ns) { return ns >= 0 && ns <= Graph::kMaxCostNs; }

absl::Status CheckTime(absl::string_view name, int64_t ns) {
  if (IsTime(ns)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("profile: ", name, " is ", ns,
                                                 " ns; it must be 0 to ",
                                                 Graph::kMaxCostNs));
}

uint64_t AccessBytes(const Graph& graph, const Access& access,
                     const CollectiveSpec& spec) {
  return CountOf(graph, access, spec.counts) *
         static_cast<uint64_t>(DTypeSize(graph.buffer(access.buffer).dtype));
}

// The most that `op`, which costs `cost_ns`, adds to any sum of times of one
// step. A double, as a sum of int64_t is what it guards.
double MostNs(const Graph& graph, OpId op, int64_t cost_ns,
              const CostProfile& profile) {
  const double ranks_per_core = static_cast<double>(profile.num_ranks_sharing) /
                                std::max(1u, profile.num_cores);
  const double cpu_ns =
      static_cast<double>(cost_ns) * std::max(1.0, ranks_per_core);
  if (graph.kind(op) != OpKind::kCollective) return cpu_ns;
  const CollectiveSpec& spec = graph.op(op).collective;
  const int64_t link_ns = LinkNs(graph, spec, profile);
  const int64_t copy_ns =
      CopyNs(InputBytes(graph, spec) + OutputBytes(graph, spec), profile);
  return cpu_ns + static_cast<double>(link_ns) + static_cast<double>(copy_ns) +
         static_cast<double>(profile.launch_ns + kMemberOverheadNs);
}

absl::Status CheckCosts(const Graph& graph, const CostProfile& profile) {
  double step_ns = 0;
  for (uint32_t i = 0; i < graph.ops().size(); ++i) {
    const OpId op(i);
    const int64_t cost_ns = OpCostNs(graph, op, profile);
    if (!IsTime(cost_ns)) {
      return CheckTime(absl::StrCat("cost of op '", graph.op(op).name, "'"),
                       cost_ns);
    }
    step_ns += MostNs(graph, op, cost_ns, profile);
    if (step_ns <= kMaxStepNs) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("profile: the ops up to '", graph.op(op).name, "' take ",
                     step_ns, " ns; the limit of a step is ", kMaxStepNs));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckProfile(const Graph& graph, const CostProfile& profile) {
  RETURN_IF_ERROR(CheckRate("link_bytes_per_s", profile.link_bytes_per_s));
  RETURN_IF_ERROR(CheckRate("copy_bytes_per_s", profile.copy_bytes_per_s));
  RETURN_IF_ERROR(CheckRate("flops_per_s", profile.flops_per_s));
  RETURN_IF_ERROR(CheckRate("memory_bytes_per_s", profile.memory_bytes_per_s));
  RETURN_IF_ERROR(CheckTime("link_latency_ns", profile.link_latency_ns));
  RETURN_IF_ERROR(CheckTime("launch_ns", profile.launch_ns));
  if (!profile.op_cost_ns.empty() &&
      profile.op_cost_ns.size() != graph.ops().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("profile: measured ", profile.op_cost_ns.size(),
                     " ops; the graph has ", graph.ops().size()));
  }
  return CheckCosts(graph, profile);
}

absl::Status CheckStepBytes(const Graph& graph) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < graph.ops().size(); ++i) {
    if (graph.kind(OpId(i)) != OpKind::kCollective) continue;
    const Op& op = graph.op(OpId(i));
    const uint64_t more = PayloadBytes(graph, op.collective);
    if (more > kMaxStepBytes - bytes) {
      return absl::OutOfRangeError(absl::StrCat(
          "collective '", op.name, "' of ", more, " bytes comes on top of ",
          bytes, "; the limit of a step is ", kMaxStepBytes, " bytes"));
    }
    bytes += more;
  }
  return absl::OkStatus();
}

uint64_t InputBytes(const Graph& graph, const CollectiveSpec& spec) {
  return HasInput(spec.kind) ? AccessBytes(graph, spec.input, spec) : 0;
}

uint64_t OutputBytes(const Graph& graph, const CollectiveSpec& spec) {
  return HasOutput(spec.kind) ? AccessBytes(graph, spec.output, spec) : 0;
}

uint64_t PayloadBytes(const Graph& graph, const CollectiveSpec& spec) {
  return std::max(InputBytes(graph, spec), OutputBytes(graph, spec));
}

int64_t OpCostNs(const Graph& graph, OpId op, const CostProfile& profile) {
  if (!profile.op_cost_ns.empty()) return profile.op_cost_ns[op.value()];
  if (graph.kind(op) != OpKind::kCompute) return 0;
  const Op& desc = graph.op(op);
  if (desc.compute.cost_ns != 0) return desc.compute.cost_ns;
  return Rounded(1e9 * (desc.compute.flops / profile.flops_per_s +
                        desc.compute.bytes / profile.memory_bytes_per_s));
}

int64_t LinkNs(CollectiveKind kind, int group_size, uint64_t bytes,
               const CostProfile& profile) {
  if (group_size <= 1) return 0;
  return TimeOf(LinkShare(kind, group_size) * static_cast<double>(bytes),
                profile);
}

int64_t LinkNs(const Graph& graph, const CollectiveSpec& spec,
               const CostProfile& profile) {
  if (graph.group(spec.group).size <= 1) return 0;
  return TimeOf(LinkBytes(graph, spec), profile);
}

double LinkBytes(const Graph& graph, const Launch& launch) {
  const int n = graph.group(launch.group).size;
  if (n <= 1) return 0;
  double sent = 0;
  double received = 0;
  bool uneven = false;
  for (OpId op : launch.members) {
    const CollectiveSpec& spec = graph.op(op).collective;
    uneven |= IsUnevenExchange(spec);
    (spec.kind == CollectiveKind::kRecv ? received : sent) +=
        LinkBytes(graph, spec);
  }
  // The two directions of a pipeline tick are two resources.
  if (launch.kind == CollectiveKind::kSend) return std::max(sent, received);
  if (uneven) return sent;
  return LinkShare(launch.kind, n) * static_cast<double>(launch.payload_bytes);
}

int64_t LinkNs(const Graph& graph, const Launch& launch,
               const CostProfile& profile) {
  if (graph.group(launch.group).size <= 1) return 0;
  return TimeOf(LinkBytes(graph, launch), profile);
}

int64_t BusyNs(const Graph& graph, const CollectiveSpec& spec,
               const CostProfile& profile) {
  if (graph.group(spec.group).size <= 1) return 0;
  return BusyNs(LinkBytes(graph, spec), profile);
}

int64_t BusyNs(const Graph& graph, const Launch& launch,
               const CostProfile& profile) {
  return BusyNs(LinkBytes(graph, launch), profile);
}

int64_t BusyNs(const Graph& graph, const Launch& launch,
               const CostProfile& profile, const BackendModel& backend) {
  return backend.serial_lanes ? LinkNs(graph, launch, profile)
                              : BusyNs(graph, launch, profile);
}

int64_t OverheadNs(const Graph& graph, const Launch& launch,
                   const CostProfile& profile) {
  int64_t ns = profile.launch_ns;
  if (launch.way == Way::kGroup) {
    ns += kMemberOverheadNs * static_cast<int64_t>(launch.members.size() - 1);
  }
  if (launch.way == Way::kPack) {
    uint64_t bytes = 0;
    for (OpId op : launch.members) {
      const CollectiveSpec& spec = graph.op(op).collective;
      bytes += InputBytes(graph, spec) + OutputBytes(graph, spec);
    }
    ns += CopyNs(bytes, profile);
  }
  return ns;
}

double RanksPerCore(const CostProfile& profile) {
  return static_cast<double>(std::max(1u, profile.num_ranks_sharing)) /
         std::max(1u, profile.num_cores);
}

double CpuStretch(int64_t op_ns, int64_t launch_ns,
                  const CostProfile& profile) {
  const double ranks_per_core = RanksPerCore(profile);
  if (ranks_per_core <= 1) return 1;
  if (op_ns <= 0) return ranks_per_core;
  return ranks_per_core *
         (1 + static_cast<double>(launch_ns) / static_cast<double>(op_ns));
}

int64_t LaunchCpuNs(const Graph& graph, const Launch& launch,
                    const CostProfile& profile) {
  int64_t ns = OverheadNs(graph, launch, profile);
  for (OpId op : launch.members) {
    ns += OpCostNs(graph, op, profile) / launch.piece.of;
  }
  return ns;
}

int64_t CopyNs(uint64_t bytes, const CostProfile& profile) {
  return Rounded(1e9 * static_cast<double>(bytes) / profile.copy_bytes_per_s);
}

}  // namespace commsched
