#include "plan/predict/phases.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "absl/types/span.h"
#include "plan/predict/cost_model.h"
#include "plan/predict/lower_bound.h"

namespace commsched {
namespace {

constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();

// A launch seen from a lane of `m` ops per step: it starts after the op at
// `ready` and ends before the op at `need`. Positions of the step before are
// negative, those of the step after are m or more.
struct Confined {
  int64_t ready = -kUnbounded;
  int64_t need = kUnbounded;
  int64_t busy_ns = 0;
  int64_t latency_ns = 0;  // from off the link to its end
};

// The ops of the compute lane with the most work, in host order.
struct Lane {
  std::vector<int64_t> position;  // by OpId, or -1
  std::vector<int64_t> cpu_ns;    // by position, of all ranks per core
};

Lane BusiestLane(const Plan& plan, const CostProfile& profile) {
  std::vector<int64_t> busy(plan.num_compute_lanes, 0);
  for (const ComputeNode& node : plan.nodes) {
    busy[node.lane] += OpCostNs(*plan.graph, node.op, profile);
  }
  const uint32_t busiest = static_cast<uint32_t>(
      std::max_element(busy.begin(), busy.end()) - busy.begin());
  Lane lane;
  lane.position.assign(plan.graph->ops().size(), -1);
  for (const ComputeNode& node : plan.nodes) {
    if (node.lane != busiest) continue;
    lane.position[node.op.value()] = static_cast<int64_t>(lane.cpu_ns.size());
    lane.cpu_ns.push_back(static_cast<int64_t>(std::floor(
        static_cast<double>(OpCostNs(*plan.graph, node.op, profile)) *
        RanksPerCore(profile))));
  }
  return lane;
}

// Finds for each launch the latest op of the lane that it follows and the
// earliest that follows it, directly or through other launches.
std::vector<Confined> Confine(const Plan& plan, const CostProfile& profile,
                              const Lane& lane) {
  const int64_t m = static_cast<int64_t>(lane.cpu_ns.size());
  std::vector<Confined> launches(plan.launches.size());
  for (size_t i = 0; i < launches.size(); ++i) {
    // Sends and receives use a direction each, and need not exclude each other.
    if (plan.launches[i].kind == CollectiveKind::kSend) continue;
    const Launch& launch = plan.launches[i];
    launches[i].busy_ns = BusyNs(*plan.graph, launch, profile);
    launches[i].latency_ns =
        LinkNs(*plan.graph, launch, profile) - launches[i].busy_ns;
  }
  const std::vector<Dependency>& edges = plan.dependencies.edges;
  // Of a split collective every piece has the dependencies of the whole, whose
  // own are kept with its last piece.
  // A launch of a piece depends as all of its collective does.
  auto relax = [&](const Dependency& edge) {
    const absl::Span<const LaunchId> froms = plan.LaunchesOf(edge.from);
    const absl::Span<const LaunchId> tos = plan.LaunchesOf(edge.to);
    const int64_t shift = edge.distance * m;
    for (LaunchId to : tos) {
      int64_t& ready = launches[to.value()].ready;
      const int64_t position = lane.position[edge.from.value()];
      if (position >= 0) ready = std::max(ready, position - shift);
      for (LaunchId from : froms) {
        if (launches[from.value()].ready == -kUnbounded) continue;
        ready = std::max(ready, launches[from.value()].ready - shift);
      }
    }
    for (LaunchId from : froms) {
      int64_t& need = launches[from.value()].need;
      const int64_t position = lane.position[edge.to.value()];
      if (position >= 0) need = std::min(need, position + shift);
      for (LaunchId to : tos) {
        if (launches[to.value()].need == kUnbounded) continue;
        need = std::min(need, launches[to.value()].need + shift);
      }
    }
  };
  // Forward and backward, so that chains of launches are followed both ways;
  // a chain across the step boundary is followed once.
  for (const Dependency& edge : edges) relax(edge);
  for (auto edge = edges.rbegin(); edge != edges.rend(); ++edge) relax(*edge);
  return launches;
}

// The positions that are tried as cuts, ascending.
std::vector<int64_t> ChooseCuts(const std::vector<Confined>& launches,
                                int64_t m) {
  std::vector<int64_t> cuts(m);
  std::iota(cuts.begin(), cuts.end(), 0);
  if (m <= kMaxCuts) return cuts;
  // Link time of the launches that may run both before and after a position:
  // a difference array over the cycle.
  std::vector<int64_t> straddle(m + 1, 0);
  for (const Confined& launch : launches) {
    if (launch.ready == -kUnbounded || launch.need == kUnbounded) continue;
    const int64_t length = std::min(launch.need - launch.ready - 1, m);
    if (length <= 0) continue;
    const int64_t begin = (((launch.ready + 1) % m) + m) % m;
    const int64_t end = std::min(begin + length, m);
    straddle[begin] += launch.busy_ns;
    straddle[end] -= launch.busy_ns;
    straddle[0] += launch.busy_ns;
    straddle[begin + length - end] -= launch.busy_ns;
  }
  std::partial_sum(straddle.begin(), straddle.end(), straddle.begin());
  std::stable_sort(cuts.begin(), cuts.end(), [&](int64_t a, int64_t b) {
    return straddle[a] < straddle[b];
  });
  cuts.resize(kMaxCuts);
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

// What phases between cuts take at least.
class PhaseTable {
 public:
  PhaseTable(const Lane& lane, const std::vector<Confined>& launches,
             std::vector<int64_t> cuts)
      : m_(static_cast<int64_t>(lane.cpu_ns.size())), cuts_(std::move(cuts)) {
    cpu_before_.assign(2 * m_ + 1, 0);
    for (int64_t p = 0; p < 2 * m_; ++p) {
      cpu_before_[p + 1] = cpu_before_[p] + lane.cpu_ns[p % m_];
    }
    const size_t c = cuts_.size();
    link_.assign(c, std::vector<OnLink>(c + 1));
    for (size_t a = 0; a < c; ++a) FillLinks(launches, a);
  }

  size_t num_cuts() const { return cuts_.size(); }

  // The time from the start of the op at cut `a` to that of the op `k` cuts
  // further on, around the cycle. The first op runs before the phase's
  // launches, which need it.
  int64_t Ns(size_t a, size_t k) const {
    const int64_t begin = cuts_[a];
    const int64_t cpu = cpu_before_[Position(a, k)] - cpu_before_[begin];
    const int64_t first = cpu_before_[begin + 1] - cpu_before_[begin];
    return std::max(cpu, first + link_[a][k].busy_ns + link_[a][k].latency_ns);
  }

 private:
  // Launches that must start and end in a phase: one after the other, until the
  // last has arrived.
  struct OnLink {
    int64_t busy_ns = 0;
    int64_t latency_ns = 0;
    OnLink& operator+=(const OnLink& other) {
      busy_ns += other.busy_ns;
      latency_ns = std::max(latency_ns, other.latency_ns);
      return *this;
    }
  };

  int64_t Position(size_t a, size_t k) const {
    const size_t c = cuts_.size();
    return cuts_[(a + k) % c] + (a + k >= c ? m_ : 0);
  }
  void FillLinks(const std::vector<Confined>& launches, size_t a) {
    const size_t c = cuts_.size();
    const int64_t begin = cuts_[a];
    std::vector<int64_t> ends(c + 1, begin);  // by number of cuts on
    for (size_t k = 1; k <= c; ++k) ends[k] = Position(a, k);
    for (const Confined& launch : launches) {
      if (launch.ready == -kUnbounded || launch.need == kUnbounded) continue;
      // The occurrence whose `ready` is in [begin, begin + m).
      const int64_t offset = (((launch.ready - begin) % m_) + m_) % m_;
      const int64_t need = begin + offset + (launch.need - launch.ready);
      const auto end = std::lower_bound(ends.begin() + 1, ends.end(), need);
      if (end == ends.end()) continue;
      link_[a][end - ends.begin()] += {launch.busy_ns, launch.latency_ns};
    }
    for (size_t k = 1; k <= c; ++k) link_[a][k] += link_[a][k - 1];
  }

  const int64_t m_;
  const std::vector<int64_t> cuts_;
  std::vector<int64_t> cpu_before_;
  std::vector<std::vector<OnLink>> link_;  // by cut, by number of cuts on
};

}  // namespace

int64_t PhasesBound(const Plan& plan, const CostProfile& profile) {
  const Lane lane = BusiestLane(plan, profile);
  const int64_t m = static_cast<int64_t>(lane.cpu_ns.size());
  if (m == 0) return 0;
  const std::vector<Confined> launches = Confine(plan, profile, lane);
  const PhaseTable phases(lane, launches, ChooseCuts(launches, m));
  const size_t c = phases.num_cuts();
  int64_t bound = 0;
  for (size_t first = 0; first < c; ++first) {
    // best[k]: the largest sum of phases from `first` to the cut k further on.
    std::vector<int64_t> best(c + 1, 0);
    for (size_t k = 1; k <= c; ++k) {
      for (size_t from = 0; from < k; ++from) {
        best[k] = std::max(
            best[k], best[from] + phases.Ns((first + from) % c, k - from));
      }
    }
    bound = std::max(bound, best[c]);
  }
  return bound;
}

}  // namespace commsched
