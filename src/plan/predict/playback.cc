#include "plan/predict/playback.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "plan/predict/cost_model.h"
#include "plan/predict/lower_bound.h"
#include "plan/predict/steady_state.h"

namespace commsched {
namespace {

constexpr uint64_t kNoKey = std::numeric_limits<uint64_t>::max();

int64_t Scaled(int64_t ns, double factor) {
  return static_cast<int64_t>(std::llround(static_cast<double>(ns) * factor));
}

double StretchOf(const Plan& plan, const CostProfile& profile) {
  int64_t op_ns = 0;
  for (const ComputeNode& node : plan.nodes) {
    op_ns += OpCostNs(*plan.graph, node.op, profile);
  }
  int64_t launch_ns = 0;
  for (const Launch& launch : plan.launches) {
    launch_ns += LaunchCpuNs(*plan.graph, launch, profile);
  }
  return CpuStretch(op_ns, launch_ns, profile);
}

}  // namespace

Playback::Playback(absl::Span<const PlayedRole> roles) {
  for (const PlayedRole& role : roles) roles_.push_back(MakeRole(role));
}

Playback::Role Playback::MakeRole(const PlayedRole& played) {
  const Plan& plan = *played.plan;
  const CostProfile& profile = *played.profile;
  Role role;
  role.plan = &plan;
  role.sequence = SequenceOf(plan);
  const double stretch = std::max(1.0, RanksPerCore(profile));
  const double op_stretch = StretchOf(plan, profile);
  for (const NodeRef& node : role.sequence.nodes) {
    if (node.kind == NodeRef::Kind::kOp) {
      role.cpu_ns.push_back(
          Scaled(OpCostNs(*plan.graph, OpId(node.index), profile), op_stretch));
      continue;
    }
    const Launch& launch = plan.launches[node.index];
    int64_t cpu_ns = 0;
    for (OpId op : launch.members) {
      cpu_ns +=
          Scaled(OpCostNs(*plan.graph, op, profile), stretch / launch.piece.of);
    }
    role.cpu_ns.push_back(cpu_ns);
  }
  uint32_t num_lanes = 1;
  for (const Launch& launch : plan.launches) {
    role.link_ns.push_back(LinkNs(*plan.graph, launch, profile));
    role.busy_ns.push_back(
        BusyNs(*plan.graph, launch, profile, plan.options.backend));
    role.overhead_ns.push_back(OverheadNs(*plan.graph, launch, profile));
    num_lanes = std::max(num_lanes, launch.lane + 1);
  }
  role.lane_free.assign(plan.num_compute_lanes, 0);
  role.lane_complete.assign(num_lanes, 0);
  return role;
}

std::vector<StepTimes> Playback::Step() {
  for (Role& role : roles_) {
    role.next = 0;
    role.now.start.assign(role.sequence.nodes.size(), 0);
    role.now.end.assign(role.sequence.nodes.size(), 0);
    role.now.launches.assign(role.plan->launches.size(), {});
  }
  while (RunUpToLaunches()) RunNextLaunch();
  std::vector<StepTimes> times;
  for (Role& role : roles_) {
    times.push_back(role.now);
    std::swap(role.before, role.now);
  }
  return times;
}

// Runs the ops that come before each role's next launch. False: there is none.
bool Playback::RunUpToLaunches() {
  bool any_launch = false;
  for (Role& role : roles_) {
    const std::vector<NodeRef>& nodes = role.sequence.nodes;
    while (role.next < nodes.size() &&
           nodes[role.next].kind == NodeRef::Kind::kOp) {
      RunOp(&role);
    }
    any_launch |= role.next < nodes.size();
  }
  return any_launch;
}

uint64_t Playback::KeyAt(const Role& role) {
  if (role.next >= role.sequence.nodes.size()) return kNoKey;
  return role.plan->launches[role.sequence.nodes[role.next].index].key;
}

// The launch of the lowest key, in all roles that have it: their next one, as
// keys rise.
void Playback::RunNextLaunch() {
  uint64_t key = kNoKey;
  for (const Role& role : roles_) key = std::min(key, KeyAt(role));
  int64_t begin_ns = 0;
  for (Role& role : roles_) {
    if (KeyAt(role) != key) continue;
    const uint32_t launch = role.sequence.nodes[role.next].index;
    Arrive(&role, launch);
    const LaunchTimes& times = role.now.launches[launch];
    begin_ns = std::max({begin_ns, times.issue_ns + role.overhead_ns[launch],
                         times.link_free_ns});
  }
  for (Role& role : roles_) {
    if (KeyAt(role) != key) continue;
    Carry(&role, role.sequence.nodes[role.next].index, begin_ns);
    ++role.next;
  }
}

int64_t Playback::EndOf(const Role& role, const Wait& wait) {
  const uint32_t p = role.sequence.PositionOf(wait.producer);
  if (wait.distance == 0) return role.now.end[p];
  return role.before.end.empty() ? 0 : role.before.end[p];
}

void Playback::RunOp(Role* role) {
  const uint32_t p = role->next++;
  const uint32_t op = role->sequence.nodes[p].index;
  const ComputeNode& node = role->plan->nodes[role->plan->node_of_op[op]];
  int64_t start_ns = role->lane_free[node.lane];
  for (const Wait& wait : node.waits) {
    start_ns = std::max(start_ns, EndOf(*role, wait));
  }
  role->now.start[p] = start_ns;
  role->now.end[p] = role->lane_free[node.lane] = start_ns + role->cpu_ns[p];
}

void Playback::Arrive(Role* role, uint32_t index) {
  const Launch& launch = role->plan->launches[index];
  LaunchTimes& times = role->now.launches[index];
  times.order_ns = role->issuer_free;
  for (OpId op : launch.producers) {
    times.ready_ns = std::max(times.ready_ns,
                              role->now.end[role->sequence.of_op[op.value()]]);
  }
  for (const Wait& wait : launch.waits) {
    const bool limit =
        wait.cause == WaitCause::kWindow || wait.cause == WaitCause::kArena;
    int64_t& met_ns = limit ? times.limits_ns : times.ready_ns;
    met_ns = std::max(met_ns, EndOf(*role, wait));
  }
  times.issue_ns = std::max({times.ready_ns, times.limits_ns, times.order_ns});
  times.link_free_ns = role->link_free;
  role->issuer_free = times.issue_ns + role->overhead_ns[index];
}

void Playback::Carry(Role* role, uint32_t index, int64_t begin_ns) {
  const uint32_t p = role->next;
  LaunchTimes& times = role->now.launches[index];
  times.begin_ns = begin_ns;
  times.off_link_ns = begin_ns + role->busy_ns[index];
  times.arrived_ns = begin_ns + role->link_ns[index];
  role->link_free = times.off_link_ns;
  int64_t& complete_ns = role->lane_complete[role->plan->launches[index].lane];
  complete_ns =
      std::max({complete_ns, times.arrived_ns, begin_ns + role->cpu_ns[p]});
  role->now.start[p] = times.issue_ns;
  role->now.end[p] = complete_ns;
}

SteadyPlay Settle(Playback* playback) {
  SteadyPlay result;
  SteadyState steady;
  bool done = false;
  while (!done) {
    result.steps.push_back(playback->Step());
    std::vector<int64_t> ends;
    for (const StepTimes& role : result.steps.back()) {
      ends.insert(ends.end(), role.end.begin(), role.end.end());
    }
    done = steady.Add(ends);
    if (result.steps.size() > 2) result.steps.erase(result.steps.begin());
  }
  result.period_ns = steady.Period();
  result.exact = steady.exact();
  result.middle = result.steps.size() - 1;
  for (int i = 0; i < 2; ++i) result.steps.push_back(playback->Step());
  return result;
}

}  // namespace commsched
