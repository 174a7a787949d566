#include "module_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace commsched::engine {
namespace {

// Forward of one micro-batch, of which the first op has index `begin`.
std::vector<ModuleOp> ForwardOps(const Sequence& sequence, uint32_t begin) {
  std::vector<ModuleOp> ops(sequence.size());
  for (uint32_t i = 0; i < sequence.size(); ++i) {
    ops[i].module = sequence[i];
    ops[i].pass = static_cast<uint32_t>(
        std::count(sequence.begin(), sequence.begin() + i, sequence[i]));
    ops[i].forward = begin + i;
  }
  return ops;
}

// Those of `forwards`, last first; segment by segment after its forwards.
void AddBackwards(std::vector<ModuleOp> forwards,
                  const std::vector<uint32_t>& segments,
                  std::vector<ModuleOp>* order) {
  size_t begin = forwards.size();
  for (size_t end = begin; end > 0; end = begin) {
    const uint32_t segment = segments[forwards[end - 1].module];
    begin = end - 1;
    while (segment > 0 && begin > 0 &&
           segments[forwards[begin - 1].module] == segment) {
      --begin;
    }
    for (size_t i = begin; segment > 0 && i < end; ++i) {
      order->push_back(forwards[i]);
      order->back().again = true;
    }
    for (size_t i = end; i-- > begin;) {
      order->push_back(forwards[i]);
      order->back().backward = true;
    }
  }
}

}  // namespace

std::string PassName(const std::string& module, uint32_t pass) {
  std::string name = module;
  if (pass == 0) return name;
  name.push_back('#');
  return name.append(std::to_string(pass + 1));
}

Sequence RegisteredSequence(size_t num_modules) {
  Sequence sequence(num_modules);
  std::iota(sequence.begin(), sequence.end(), 0);
  return sequence;
}

std::vector<ModuleOp> ModuleOrder(const Sequence& sequence,
                                  const std::vector<uint32_t>& segments,
                                  uint32_t micro_batches) {
  std::vector<ModuleOp> order;
  for (uint32_t mb = 0; mb < micro_batches; ++mb) {
    std::vector<ModuleOp> ops =
        ForwardOps(sequence, static_cast<uint32_t>(order.size()));
    for (ModuleOp& op : ops) op.micro_batch = mb;
    order.insert(order.end(), ops.begin(), ops.end());
    AddBackwards(std::move(ops), segments, &order);
  }
  return order;
}

}  // namespace commsched::engine
