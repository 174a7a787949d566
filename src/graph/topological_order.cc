#include "graph/topological_order.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace commsched {
namespace {

// Longer cycles are cut in messages.
constexpr size_t kMaxNamedOps = 16;

// Successors of op i: to[begin[i]] .. to[begin[i + 1]].
struct Successors {
  std::vector<uint32_t> begin;
  std::vector<uint32_t> to;
};

Successors GroupBySource(size_t num_ops,
                         absl::Span<const Precedence> precedences) {
  Successors successors;
  successors.begin.assign(num_ops + 1, 0);
  successors.to.resize(precedences.size());
  for (const Precedence& p : precedences) ++successors.begin[p.from.value()];
  // Prefix sums give the end of each op's run; filling walks back to the begin.
  uint32_t end = 0;
  for (uint32_t& run : successors.begin) run = end += run;
  for (const Precedence& p : precedences) {
    successors.to[--successors.begin[p.from.value()]] = p.to.value();
  }
  return successors;
}

// Every op that could not be ordered has a predecessor that could not be
// either, so walking back must come round.
absl::Status CycleError(const Graph& graph,
                        absl::Span<const Precedence> precedences,
                        const std::vector<uint32_t>& num_pending) {
  const size_t num_ops = graph.ops().size();
  std::vector<uint32_t> predecessor(num_ops);
  uint32_t at = 0;
  for (const Precedence& p : precedences) {
    if (num_pending[p.from.value()] == 0 || num_pending[p.to.value()] == 0) {
      continue;
    }
    predecessor[p.to.value()] = p.from.value();
    at = p.to.value();
  }
  for (size_t i = 0; i < num_ops; ++i) at = predecessor[at];
  std::vector<uint32_t> cycle;
  for (uint32_t i = at; cycle.empty() || i != at; i = predecessor[i]) {
    cycle.push_back(i);
  }
  std::reverse(cycle.begin(), cycle.end());
  // Begin with the op declared first, so that the message does not depend on
  // where the walk happened to stand.
  std::rotate(cycle.begin(), std::min_element(cycle.begin(), cycle.end()),
              cycle.end());
  std::string text;
  for (size_t i = 0; i < std::min(cycle.size(), kMaxNamedOps); ++i) {
    absl::StrAppend(&text, "'", graph.ops()[cycle[i]].name, "' -> ");
  }
  if (cycle.size() > kMaxNamedOps) absl::StrAppend(&text, "... -> ");
  absl::StrAppend(&text, "'", graph.ops()[cycle[0]].name, "'");
  return absl::InvalidArgumentError(absl::StrCat(
      "a cycle of ", cycle.size(), " ops within the step: ", text));
}

}  // namespace

absl::StatusOr<std::vector<OpId>> TopologicalOrder(
    const Graph& graph, absl::Span<const Precedence> precedences) {
  const size_t num_ops = graph.ops().size();
  const Successors successors = GroupBySource(num_ops, precedences);
  std::vector<uint32_t> num_pending(num_ops, 0);
  for (const Precedence& p : precedences) ++num_pending[p.to.value()];
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
  for (uint32_t i = 0; i < num_ops; ++i) {
    if (num_pending[i] == 0) ready.push(i);
  }
  std::vector<OpId> order;
  order.reserve(num_ops);
  while (!ready.empty()) {
    const uint32_t op = ready.top();
    ready.pop();
    order.emplace_back(op);
    for (uint32_t i = successors.begin[op]; i < successors.begin[op + 1]; ++i) {
      if (--num_pending[successors.to[i]] == 0) ready.push(successors.to[i]);
    }
  }
  if (order.size() != num_ops) {
    return CycleError(graph, precedences, num_pending);
  }
  return order;
}

}  // namespace commsched
