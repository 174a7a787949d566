#include "test/property/plan_oracle.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "graph/region.h"

namespace commsched::test {

void Closure::Close() {
  for (uint32_t via = 0; via < size_; ++via) {
    const uint64_t* onward = &reach_[size_t{via} * words_];
    for (uint32_t from = 0; from < size_; ++from) {
      if (!Reaches(from, via)) continue;
      uint64_t* row = &reach_[size_t{from} * words_];
      for (size_t w = 0; w < words_; ++w) row[w] |= onward[w];
    }
  }
}

bool Closure::HasCycle() const {
  for (uint32_t i = 0; i < size_; ++i) {
    if (Reaches(i, i)) return true;
  }
  return false;
}

PlanOracle::PlanOracle(const Plan& plan)
    : plan_(plan), order_(2 * kSteps * num_nodes()) {
  AddOrder();
  order_.Close();
}

PlanOracle::Nodes PlanOracle::NodesOf(OpId op) const {
  Nodes nodes;
  if (plan_.node_of_op[op.value()] != Plan::kNone) {
    nodes.push_back(plan_.node_of_op[op.value()]);
  }
  for (uint32_t k = 0; k < plan_.launches.size(); ++k) {
    for (OpId member : plan_.launches[k].members) {
      if (member != op) continue;
      nodes.push_back(static_cast<uint32_t>(plan_.nodes.size()) + k);
    }
  }
  return nodes;
}

bool PlanOracle::Ordered(int from_step, const Nodes& from, int to_step,
                         const Nodes& to) const {
  return std::all_of(from.begin(), from.end(), [&](uint32_t a) {
    return std::all_of(to.begin(), to.end(), [&](uint32_t b) {
      return Ordered(from_step, a, to_step, b);
    });
  });
}

uint32_t PlanOracle::NodeOf(NodeRef ref) const {
  return ref.kind == NodeRef::Kind::kOp
             ? plan_.node_of_op[ref.index]
             : static_cast<uint32_t>(plan_.nodes.size()) + ref.index;
}

absl::Span<const Wait> PlanOracle::WaitsOf(uint32_t node) const {
  return node < plan_.nodes.size()
             ? plan_.nodes[node].waits
             : plan_.launches[node - plan_.nodes.size()].waits;
}

void PlanOracle::AddOrder() {
  const uint32_t num_compute = static_cast<uint32_t>(plan_.nodes.size());
  for (int step = 0; step < kSteps; ++step) {
    for (uint32_t node = 0; node < num_nodes(); ++node) {
      order_.Add(Start(step, node), Complete(step, node));
      for (const Wait& wait : WaitsOf(node)) {
        if (wait.distance > step) continue;
        order_.Add(Complete(step - wait.distance, NodeOf(wait.producer)),
                   Start(step, node));
      }
    }
    for (uint32_t i = 0; i < num_compute; ++i) {
      for (OpId op : plan_.nodes[i].after) {
        const uint32_t from = plan_.node_of_op[op.value()];
        if (plan_.nodes[from].lane != plan_.nodes[i].lane) continue;
        order_.Add(Complete(step, from), Start(step, i));
      }
      for (uint32_t j = 0; j < num_compute && step > 0; ++j) {
        if (plan_.nodes[i].lane != plan_.nodes[j].lane) continue;
        order_.Add(Complete(step - 1, j), Start(step, i));
      }
    }
    for (uint32_t k = 0; k < plan_.launches.size(); ++k) {
      for (uint32_t j = 0; j < plan_.launches.size(); ++j) {
        if (plan_.launches[j].lane != plan_.launches[k].lane) continue;
        if (j < k) {
          order_.Add(Complete(step, num_compute + j),
                     Complete(step, num_compute + k));
        }
        if (step > 0) {
          order_.Add(Complete(step - 1, num_compute + j),
                     Complete(step, num_compute + k));
        }
      }
    }
  }
}

namespace {

// (from, to, distance) of all explicit edges.
std::set<std::tuple<OpId, OpId, int>> ExplicitOrders(const Graph& graph) {
  std::set<std::tuple<OpId, OpId, int>> orders;
  for (const ExplicitEdge& edge : graph.edges()) {
    orders.insert({edge.from, edge.to, edge.distance});
  }
  for (uint32_t b = 0; b < graph.ops().size(); ++b) {
    for (OpId a : graph.ops()[b].after) orders.insert({a, OpId(b), 0});
  }
  return orders;
}

}  // namespace

std::string PlanOracle::FindRace() {
  const Graph& graph = *plan_.graph;
  auto broken = [&](OpId a, int s, OpId b, int t) -> std::string {
    if (Ordered(s, NodesOf(a), t, NodesOf(b))) return "";
    return absl::StrCat(graph.op(a).name, " of step ", s, " and ",
                        graph.op(b).name, " of step ", t);
  };
  const uint32_t num_ops = static_cast<uint32_t>(graph.ops().size());
  for (uint32_t a = 0; a < num_ops; ++a) {
    for (uint32_t b = 0; b < num_ops; ++b) {
      bool conflict = false;
      for (const Access& x : graph.ops()[a].accesses) {
        for (const Access& y : graph.ops()[b].accesses) {
          conflict = conflict || ((Writes(x.mode) || Writes(y.mode)) &&
                                  MayOverlap(graph, x, y));
        }
      }
      if (!conflict) continue;
      for (int s = 0; s < kSteps; ++s) {
        for (int t = s; t < kSteps; ++t) {
          if (s == t && a >= b) continue;
          const std::string race = broken(OpId(a), s, OpId(b), t);
          if (!race.empty()) return race;
        }
      }
    }
  }
  auto check_edge = [&](OpId from, OpId to, int distance) -> std::string {
    for (int s = 0; s + distance < kSteps; ++s) {
      const std::string race = broken(from, s, to, s + distance);
      if (!race.empty()) return "explicit edge: " + race;
    }
    return "";
  };
  for (const auto& [from, to, distance] : ExplicitOrders(graph)) {
    const std::string race = check_edge(from, to, distance);
    if (!race.empty()) return race;
  }
  return FindArenaRace();
}

std::vector<PlanOracle::Occupant> PlanOracle::Occupants() const {
  const Graph& graph = *plan_.graph;
  std::vector<Occupant> occupants;
  for (const Placement& place : plan_.placements) {
    Occupant occupant{graph.buffer(place.buffer).name,
                      place.offset,
                      place.offset + place.bytes,
                      {},
                      false,
                      graph.buffer(place.buffer).place_group};
    for (uint32_t i = 0; i < graph.ops().size(); ++i) {
      bool used = false;
      bool fresh = true;
      for (const Access& access : graph.ops()[i].accesses) {
        if (access.buffer != place.buffer) continue;
        used = true;
        const bool whole =
            access.region.kind == RegionKind::kWhole ||
            (access.region.kind == RegionKind::kRange &&
             access.region.count == graph.buffer(place.buffer).count);
        fresh = fresh && whole && access.mode == AccessMode::kWrite;
      }
      if (used) occupant.uses.push_back({NodesOf(OpId(i)), fresh});
    }
    occupants.push_back(std::move(occupant));
  }
  for (uint32_t k = 0; k < plan_.launches.size(); ++k) {
    const Launch& launch = plan_.launches[k];
    if (launch.way != Way::kPack) continue;
    occupants.push_back(
        {absl::StrCat("staging ", k),
         launch.staging_offset,
         launch.staging_offset + launch.staging_bytes,
         {{{static_cast<uint32_t>(plan_.nodes.size()) + k}, true}},
         true});
  }
  return occupants;
}

// Whether every use of `y`, in any step, comes before the write that `x` lives
// on from or after each use of what it wrote; and no two uses are unordered.
bool PlanOracle::Undisturbed(const Occupant& x, const Occupant& y) const {
  const Use* fresh = nullptr;
  int fresh_step = 0;
  for (int s = 0; s < kSteps; ++s) {
    for (const Use& use : x.uses) {
      if (use.fresh) {
        fresh = &use;
        fresh_step = s;
      }
      for (int t = 0; t < kSteps; ++t) {
        for (const Use& other : y.uses) {
          if (&x == &y && s == t) continue;
          if (Ordered(s, use.nodes, t, other.nodes)) continue;
          if (fresh == nullptr) return false;
          if (!Ordered(t, other.nodes, fresh_step, fresh->nodes)) {
            return false;
          }
        }
      }
    }
  }
  return true;
}

std::string PlanOracle::FindArenaRace() const {
  const std::vector<Occupant> occupants = Occupants();
  for (const Occupant& x : occupants) {
    for (const Occupant& y : occupants) {
      if (x.place_group != 0 && x.place_group == y.place_group &&
          x.begin != y.begin) {
        return absl::StrCat("place group: ", x.name, " and ", y.name);
      }
      if (x.begin >= y.end || y.begin >= x.end) continue;
      if (&x == &y && !x.staging) continue;
      if (Undisturbed(x, y)) continue;
      return absl::StrCat("arena: ", x.name, " and ", y.name);
    }
  }
  return "";
}

std::string PlanOracle::FindOverCap() {
  const PlanOptions& options = plan_.options;
  const uint32_t num_compute = static_cast<uint32_t>(plan_.nodes.size());
  const uint32_t n = static_cast<uint32_t>(plan_.launches.size());
  for (uint32_t k = 0; k < n; ++k) {
    const int step = kSteps - 1;
    uint64_t launches = 1;
    uint64_t bytes = plan_.launches[k].payload_bytes;
    for (int s = 0; s < kSteps; ++s) {
      for (uint32_t j = 0; j < n; ++j) {
        if (s == step && j >= k) continue;
        if (Ordered(s, num_compute + j, step, num_compute + k)) continue;
        ++launches;
        bytes += plan_.launches[j].payload_bytes;
      }
    }
    if (options.max_launches_in_flight != 0 &&
        launches > options.max_launches_in_flight) {
      return absl::StrCat(launches, " launches at #", k);
    }
    if (options.max_bytes_in_flight != 0 && launches > 1 &&
        bytes > options.max_bytes_in_flight) {
      return absl::StrCat(bytes, " bytes at #", k);
    }
  }
  return "";
}

// Three points per compute node: `before` returns, complete, `after` returns;
// two per launch: issued, complete. The host calls in planned order, on streams
// that are the calling thread, so that it blocks wherever a stream may.
std::string PlanOracle::FindDeadlock() {
  const uint32_t num_compute = static_cast<uint32_t>(plan_.nodes.size());
  const uint32_t n = static_cast<uint32_t>(plan_.launches.size());
  const uint32_t per_step = 3 * num_compute + 2 * n;
  Closure graph(per_step * kSteps);
  auto before = [&](int s, uint32_t i) { return s * per_step + 3 * i; };
  auto complete = [&](int s, uint32_t node) {
    return node < num_compute
               ? before(s, node) + 1
               : s * per_step + 3 * num_compute + 2 * (node - num_compute) + 1;
  };
  auto issued = [&](int s, uint32_t k) {
    return complete(s, num_compute + k) - 1;
  };
  auto after = [&](int s, uint32_t i) { return before(s, i) + 2; };
  for (int s = 0; s < kSteps; ++s) {
    for (uint32_t i = 0; i < num_compute; ++i) {
      graph.Add(before(s, i), complete(s, i));
      graph.Add(complete(s, i), after(s, i));
      if (i > 0) graph.Add(after(s, i - 1), before(s, i));
      if (i == 0 && s > 0)
        graph.Add(after(s - 1, num_compute - 1), before(s, i));
      for (const Wait& wait : plan_.nodes[i].waits) {
        if (wait.distance > s) continue;
        graph.Add(complete(s - wait.distance, NodeOf(wait.producer)),
                  before(s, i));
      }
      for (LaunchId need : plan_.nodes[i].needs) {
        for (uint32_t k = 0; k <= need.value(); ++k) {
          for (OpId op : plan_.launches[k].producers) {
            graph.Add(after(s, plan_.node_of_op[op.value()]), before(s, i));
          }
        }
      }
    }
    for (uint32_t k = 0; k < n; ++k) {
      graph.Add(issued(s, k), complete(s, num_compute + k));
      if (k > 0) graph.Add(issued(s, k - 1), issued(s, k));
      if (k == 0 && s > 0) graph.Add(issued(s - 1, n - 1), issued(s, k));
      for (OpId op : plan_.launches[k].producers) {
        graph.Add(after(s, plan_.node_of_op[op.value()]), issued(s, k));
      }
      for (const Wait& wait : plan_.launches[k].waits) {
        if (wait.distance > s) continue;
        graph.Add(complete(s - wait.distance, NodeOf(wait.producer)),
                  issued(s, k));
      }
    }
  }
  graph.Close();
  return graph.HasCycle() ? "cycle" : "";
}

}  // namespace commsched::test
