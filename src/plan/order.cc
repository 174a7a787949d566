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

// Fills `ready` and `depth` of a collective from the ops before it.
void FindReady(OpId op, const Dependencies& dependencies, HostOrder* host) {
  PlannedOrder& order = host->order;
  uint32_t ready = 0;
  uint32_t deepest = 0;
  for (const Dependency& edge : dependencies.Into(op)) {
    if (edge.distance != 0) continue;
    const uint32_t from = edge.from.value();
    if (order.host_position[from] != PlannedOrder::kNone) {
      ready = std::max(ready, order.host_position[from] + 1);
    } else {
      ready = std::max(ready, order.ready[from]);
      deepest = std::max(deepest, host->depth[from] + 1);
    }
  }
  order.ready[op.value()] = ready;
  host->depth[op.value()] = deepest;
}

// Tells the collectives before a compute op, at `position`, of their consumer.
void NoteConsumer(OpId op, uint32_t position, const Dependencies& dependencies,
                  HostOrder* host) {
  PlannedOrder& order = host->order;
  const uint32_t step = static_cast<uint32_t>(order.host.size());
  for (const Dependency& edge : dependencies.Into(op)) {
    const uint32_t from = edge.from.value();
    if (order.host_position[from] != PlannedOrder::kNone) continue;
    uint32_t& consumer = host->consumer[from];
    consumer = std::min(consumer, position + edge.distance * step);
    if (edge.distance == 0) {
      order.first_need[from] = std::min(order.first_need[from], position);
    }
  }
}

}  // namespace

HostOrder OrderHost(const Graph& graph, const Dependencies& dependencies) {
  const size_t num_ops = graph.ops().size();
  HostOrder result;
  PlannedOrder& order = result.order;
  order.host_position.assign(num_ops, PlannedOrder::kNone);
  order.ready.assign(num_ops, 0);
  order.first_need.assign(num_ops, PlannedOrder::kNone);
  order.host.reserve(num_ops);
  for (OpId op : dependencies.order) {
    if (graph.kind(op) != OpKind::kCompute) continue;
    order.host_position[op.value()] = static_cast<uint32_t>(order.host.size());
    order.host.push_back(op);
  }
  result.depth.assign(num_ops, 0);
  result.consumer.assign(num_ops, PlannedOrder::kNone);
  for (OpId op : dependencies.order) {
    const uint32_t position = order.host_position[op.value()];
    if (position == PlannedOrder::kNone) {
      FindReady(op, dependencies, &result);
    } else {
      NoteConsumer(op, position, dependencies, &result);
    }
  }
  return result;
}

PlannedOrder OrderOps(const Graph& graph, const Dependencies& dependencies) {
  HostOrder host = OrderHost(graph, dependencies);
  PlannedOrder& order = host.order;
  std::vector<Sorted> sorted;
  sorted.reserve(graph.ops().size() - order.host.size());
  for (OpId op : dependencies.order) {
    const uint32_t i = op.value();
    if (order.host_position[i] != PlannedOrder::kNone) continue;
    if (graph.kind(op) != OpKind::kCollective) continue;
    sorted.push_back({.ready = order.ready[i],
                      .depth = host.depth[i],
                      .urgency = -int64_t{graph.op(op).priority},
                      .consumer = host.consumer[i],
                      .op = op});
  }
  const auto before = [](const Sorted& a, const Sorted& b) {
    return a.Key() < b.Key();
  };
  // Most graphs are declared in this order.
  if (!std::is_sorted(sorted.begin(), sorted.end(), before)) {
    std::sort(sorted.begin(), sorted.end(), before);
  }
  order.collectives.reserve(sorted.size());
  for (const Sorted& each : sorted) order.collectives.push_back(each.op);
  return std::move(host.order);
}

}  // namespace commsched
