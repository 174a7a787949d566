#include "engine/model/passes.h"

#include <algorithm>
#include <numeric>

namespace commsched::engine {
namespace {

// Those of one micro-batch, of which the first has index `begin`.
std::vector<Pass> Forwards(const Sequence& sequence, uint32_t micro_batch,
                           uint32_t begin) {
  std::vector<Pass> passes(sequence.size());
  for (uint32_t i = 0; i < sequence.size(); ++i) {
    passes[i].module = sequence[i];
    passes[i].use = static_cast<uint32_t>(
        std::count(sequence.begin(), sequence.begin() + i, sequence[i]));
    passes[i].micro_batch = micro_batch;
    passes[i].forward = begin + i;
  }
  return passes;
}

// Those of `forwards`, last first; segment by segment after its forwards.
void AddBackwards(const std::vector<Pass>& forwards,
                  const std::vector<uint32_t>& segments,
                  std::vector<Pass>* order) {
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

std::string PassName(const std::string& module, uint32_t use) {
  std::string name = module;
  if (use == 0) return name;
  name.push_back('#');
  return name.append(std::to_string(use + 1));
}

std::string CallText(const char* which, const Pass& pass,
                     const std::string& module) {
  std::string call = pass.backward ? "backward_" : "forward_";
  call += which;
  call += " of module " + std::to_string(pass.module);
  if (!module.empty()) call += " '" + module + "'";
  call += ", micro-batch " + std::to_string(pass.micro_batch);
  if (pass.use > 0) call += ", pass " + std::to_string(pass.use + 1);
  if (pass.again) call += ", recomputed";
  return call;
}

Sequence RegisteredSequence(size_t num_modules) {
  Sequence sequence(num_modules);
  std::iota(sequence.begin(), sequence.end(), 0);
  return sequence;
}

std::vector<Pass> PassOrder(const Sequence& sequence,
                            const std::vector<uint32_t>& segments,
                            uint32_t micro_batches) {
  std::vector<Pass> order;
  for (uint32_t mb = 0; mb < micro_batches; ++mb) {
    const std::vector<Pass> forwards =
        Forwards(sequence, mb, static_cast<uint32_t>(order.size()));
    order.insert(order.end(), forwards.begin(), forwards.end());
    AddBackwards(forwards, segments, &order);
  }
  return order;
}

}  // namespace commsched::engine
