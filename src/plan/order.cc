#include "plan/order.h"

#include <algorithm>
#include <tuple>

namespace commsched {
namespace {

struct Sorted {
  uint32_t ready;
  uint32_t depth;
  int64_t urgency;  // the negated priority hint
  uint32_t consumer;
  OpId op;

  auto Key() const {
    return std::make_tuple(ready, depth, urgency, consumer, op.value());
  }
};

// The distance-0 edges in Dependencies::edges are sorted by `to`: begin[op] is
// the first one of each op.
std::vector<uint32_t> EdgesByTarget(const Graph& graph,
                                    const Dependencies& dependencies) {
  std::vector<uint32_t> begin(graph.ops().size() + 1, 0);
  for (const Dependency& edge : dependencies.edges) {
    ++begin[edge.to.value() + 1];
  }
  for (size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
  return begin;
}

// Fills PlannedOrder::ready and returns the depth of each collective.
std::vector<uint32_t> FindReady(const Graph& graph,
                                const Dependencies& dependencies,
                                PlannedOrder* order) {
  const std::vector<uint32_t> begin = EdgesByTarget(graph, dependencies);
  std::vector<uint32_t> depth(graph.ops().size(), 0);
  for (OpId op : dependencies.order) {
    // Markers have no edges.
    if (order->host_position[op.value()] != PlannedOrder::kNone) continue;
    uint32_t ready = 0;
    uint32_t deepest = 0;
    for (uint32_t e = begin[op.value()]; e < begin[op.value() + 1]; ++e) {
      const Dependency& edge = dependencies.edges[e];
      if (edge.distance != 0) continue;
      const uint32_t from = edge.from.value();
      if (order->host_position[from] != PlannedOrder::kNone) {
        ready = std::max(ready, order->host_position[from] + 1);
      } else {
        ready = std::max(ready, order->ready[from]);
        deepest = std::max(deepest, depth[from] + 1);
      }
    }
    order->ready[op.value()] = ready;
    depth[op.value()] = deepest;
  }
  return depth;
}

// The first consumer of each collective: its host position, or for one of the
// next step that plus the length of the step.
std::vector<uint32_t> FindConsumers(const Dependencies& dependencies,
                                    PlannedOrder* order) {
  std::vector<uint32_t> consumer(order->ready.size(), PlannedOrder::kNone);
  const uint32_t step = static_cast<uint32_t>(order->host.size());
  for (const Dependency& edge : dependencies.edges) {
    const uint32_t from = edge.from.value();
    const uint32_t to = order->host_position[edge.to.value()];
    if (order->host_position[from] != PlannedOrder::kNone) continue;
    if (to == PlannedOrder::kNone) continue;
    consumer[from] = std::min(consumer[from], to + edge.distance * step);
    if (edge.distance == 0) {
      order->first_need[from] = std::min(order->first_need[from], to);
    }
  }
  return consumer;
}

}  // namespace

HostOrder OrderHost(const Graph& graph, const Dependencies& dependencies) {
  const size_t num_ops = graph.ops().size();
  HostOrder result;
  PlannedOrder& order = result.order;
  order.host_position.assign(num_ops, PlannedOrder::kNone);
  order.ready.assign(num_ops, 0);
  order.first_need.assign(num_ops, PlannedOrder::kNone);
  for (OpId op : dependencies.order) {
    if (graph.op(op).kind != OpKind::kCompute) continue;
    order.host_position[op.value()] = static_cast<uint32_t>(order.host.size());
    order.host.push_back(op);
  }
  result.depth = FindReady(graph, dependencies, &order);
  result.consumer = FindConsumers(dependencies, &order);
  return result;
}

PlannedOrder OrderOps(const Graph& graph, const Dependencies& dependencies) {
  HostOrder host = OrderHost(graph, dependencies);
  PlannedOrder& order = host.order;
  std::vector<Sorted> sorted;
  for (OpId op : dependencies.order) {
    const uint32_t i = op.value();
    if (order.host_position[i] != PlannedOrder::kNone) continue;
    if (graph.op(op).kind != OpKind::kCollective) continue;
    sorted.push_back({.ready = order.ready[i],
                      .depth = host.depth[i],
                      .urgency = -int64_t{graph.op(op).priority},
                      .consumer = host.consumer[i],
                      .op = op});
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const Sorted& a, const Sorted& b) { return a.Key() < b.Key(); });
  order.collectives.reserve(sorted.size());
  for (const Sorted& each : sorted) order.collectives.push_back(each.op);
  return std::move(host.order);
}

}  // namespace commsched
