#include "plan/predict/cycle_bound.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "plan/coding.h"
#include "plan/predict/cost_model.h"
#include "plan/predict/steady_state.h"
#include "plan/sequence.h"

namespace commsched {
namespace {

constexpr uint64_t kNoKey = std::numeric_limits<uint64_t>::max();

// What a collective takes on a link that it has to itself: its pieces one after
// the other, but for their latencies; encoded, less travels than the graph
// says.
int64_t LinkDelay(const Plan& plan, OpId op, const CostProfile& profile) {
  const Graph& graph = *plan.graph;
  const CollectiveSpec& spec = graph.op(op).collective;
  const absl::Span<const LaunchId> launches = plan.LaunchesOf(op);
  if (launches.size() > 1) {
    int64_t sum = LinkNs(graph, plan.launches[launches[0].value()], profile);
    for (LaunchId piece : launches.subspan(1)) {
      sum += BusyNs(graph, plan.launches[piece.value()], profile);
    }
    return sum;
  }
  if (!IsCoded(graph, spec, plan.options)) return LinkNs(graph, spec, profile);
  const CodedSides sides = CodedSidesOf(graph, spec, plan.options.codec);
  return LinkNs(spec.kind, graph.group(spec.group).size,
                std::max(sides.input, sides.output), profile);
}

// The shortest an op can take: on one core.
std::vector<int64_t> Delays(const Plan& plan, const CostProfile& profile) {
  const Graph& graph = *plan.graph;
  std::vector<int64_t> delays(graph.ops().size());
  for (uint32_t i = 0; i < delays.size(); ++i) {
    delays[i] = OpCostNs(graph, OpId(i), profile);
    if (graph.ops()[i].kind != OpKind::kCollective) continue;
    delays[i] = std::max(delays[i], LinkDelay(plan, OpId(i), profile));
  }
  return delays;
}

// Earliest times of a role's ops, step after step.
class RoleClock {
 public:
  explicit RoleClock(const PlayedRole& role)
      : plan_(*role.plan),
        sequence_(SequenceOf(plan_)),
        delays_(Delays(plan_, *role.profile)),
        before_(delays_.size(), 0),
        now_(delays_.size(), 0),
        lane_free_(plan_.num_compute_lanes, 0) {}

  void BeginStep() {
    std::swap(before_, now_);
    next_ = 0;
  }

  // Runs the ops before the next launch, whose key it returns.
  uint64_t RunUpToLaunch() {
    for (; next_ < sequence_.nodes.size(); ++next_) {
      const NodeRef& node = sequence_.nodes[next_];
      if (node.kind == NodeRef::Kind::kLaunch) {
        return plan_.launches[node.index].key;
      }
      const uint32_t lane = plan_.nodes[plan_.node_of_op[node.index]].lane;
      int64_t& free = lane_free_[lane];
      free = std::max(free, StartOf(OpId(node.index))) + delays_[node.index];
      now_[node.index] = free;
    }
    return kNoKey;
  }

  // When all members of the next launch can start.
  int64_t StartOfLaunch() const {
    int64_t start = 0;
    for (OpId op : NextLaunch().members) start = std::max(start, StartOf(op));
    return start;
  }

  // Of a split collective the last piece is all of it. `together`: no member
  // starts before `start`.
  void RunLaunch(bool together, int64_t start) {
    const uint32_t index = sequence_.nodes[next_].index;
    for (OpId op : NextLaunch().members) {
      if (plan_.launch_of_op[op.value()] != LaunchId(index)) continue;
      now_[op.value()] = (together ? start : StartOf(op)) + delays_[op.value()];
    }
    ++next_;
  }

  const Launch& NextLaunch() const {
    return plan_.launches[sequence_.nodes[next_].index];
  }
  const std::vector<int64_t>& now() const { return now_; }

 private:
  int64_t StartOf(OpId op) const {
    int64_t start = 0;
    for (const Dependency& edge : plan_.dependencies.Into(op)) {
      const uint32_t from = edge.from.value();
      start = std::max(start, edge.distance == 0 ? now_[from] : before_[from]);
    }
    return start;
  }

  const Plan& plan_;
  const Sequence sequence_;
  const std::vector<int64_t> delays_;
  std::vector<int64_t> before_, now_;
  std::vector<int64_t> lane_free_;
  uint32_t next_ = 0;  // position
};

// Runs the launch of the lowest key, in all roles that have it, as Playback.
bool RunNextLaunch(std::vector<RoleClock>* roles) {
  uint64_t key = kNoKey;
  std::vector<uint64_t> keys;
  for (RoleClock& role : *roles) {
    keys.push_back(role.RunUpToLaunch());
    key = std::min(key, keys.back());
  }
  if (key == kNoKey) return false;
  bool together = std::count(keys.begin(), keys.end(), key) > 1;
  int64_t start = 0;
  for (size_t r = 0; r < roles->size(); ++r) {
    if (keys[r] != key) continue;
    together |= (*roles)[r].NextLaunch().kind == CollectiveKind::kSend;
    start = std::max(start, (*roles)[r].StartOfLaunch());
  }
  for (size_t r = 0; r < roles->size(); ++r) {
    if (keys[r] == key) (*roles)[r].RunLaunch(together, start);
  }
  return true;
}

}  // namespace

int64_t LongestCycle(absl::Span<const PlayedRole> played) {
  std::vector<RoleClock> roles;
  for (const PlayedRole& role : played) roles.emplace_back(role);
  SteadyState steady;
  std::vector<int64_t> times;
  do {
    for (RoleClock& role : roles) role.BeginStep();
    while (RunNextLaunch(&roles)) {
    }
    times.clear();
    for (const RoleClock& role : roles) {
      times.insert(times.end(), role.now().begin(), role.now().end());
    }
  } while (!steady.Add(times));
  return steady.Period();
}

}  // namespace commsched
