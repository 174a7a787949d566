#include "engine/model/passes.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <utility>

namespace commsched::engine {
namespace {

const char* NameOf(PassKind kind) {
  switch (kind) {
    case PassKind::kForward:
      return "FORWARD";
    case PassKind::kRecompute:
      return "RECOMPUTE";
    case PassKind::kBackward:
      return "BACKWARD";
    case PassKind::kBackwardInput:
      return "BACKWARD_INPUT";
    case PassKind::kBackwardWeight:
      return "BACKWARD_WEIGHT";
    case PassKind::kNoGrad:
      return "NO_GRAD";
  }
  return "";
}

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
      order->back().kind = PassKind::kRecompute;
    }
    for (size_t i = end; i-- > begin;) {
      order->push_back(forwards[i]);
      order->back().kind = PassKind::kBackward;
    }
  }
}

// Finds the forward of each pass in a list.
class Linker {
 public:
  explicit Linker(const std::vector<std::string>& names) : names_(names) {}

  Status Add(const PassCall& call) {
    Pass pass = {.kind = call.kind,
                 .module = call.module,
                 .micro_batch = call.micro_batch};
    if (call.module >= names_.size()) {
      return Status(COMMSCHED_NOT_FOUND,
                    "engine: pass " + std::to_string(passes_.size()) + " is " +
                        TextOf(pass, "") + "; there are " +
                        std::to_string(names_.size()) + " modules");
    }
    Open& open = open_[{call.module, call.micro_batch}];
    const auto index = static_cast<uint32_t>(passes_.size());
    pass.forward = index;
    switch (call.kind) {
      case PassKind::kForward:
        pass.use = open.num_forwards++;
        open.forwards.push_back(index);
        open.once.push_back(index);
        break;
      case PassKind::kNoGrad:
        pass.use = open.num_without++;
        break;
      case PassKind::kRecompute:
        ENGINE_RETURN_IF_ERROR(TakeForward(open, pass));
        if (open.once.size() == open.again.size()) {
          return Refuse(index, pass, "which has come before");
        }
        open.again.push_back(index);
        break;
      case PassKind::kBackward:
      case PassKind::kBackwardInput:
        ENGINE_RETURN_IF_ERROR(TakeForward(open, pass));
        open.forwards.pop_back();
        LinkAgain(open);
        if (!open.once.empty() && open.once.back() == pass.forward) {
          open.once.pop_back();
        }
        if (call.kind == PassKind::kBackwardInput) {
          open.halves.push_back(index);
        }
        break;
      case PassKind::kBackwardWeight:
        if (open.halves.empty()) {
          return Refuse(index, pass,
                        "which no BACKWARD_INPUT comes before that has no "
                        "BACKWARD_WEIGHT yet");
        }
        pass.forward = passes_[open.halves.front()].forward;
        pass.use = passes_[pass.forward].use;
        open.halves.pop_front();
        break;
    }
    passes_.push_back(pass);
    return Status();
  }

  // Call it after the last pass. An error names the first that lacks something.
  Status TakePasses(std::vector<Pass>* out_passes) {
    for (const Pass& pass : passes_) {
      const Open& open = open_[{pass.module, pass.micro_batch}];
      if (!open.forwards.empty()) {
        const uint32_t index = open.forwards.front();
        return Refuse(index, passes_[index],
                      "which no BACKWARD comes after; a forward without one is "
                      "NO_GRAD");
      }
      if (!open.halves.empty()) {
        const uint32_t index = open.halves.front();
        return Refuse(index, passes_[index],
                      "which no BACKWARD_WEIGHT comes after");
      }
    }
    *out_passes = std::move(passes_);
    return Status();
  }

 private:
  // Forwards of a module in a micro-batch that lack their backwards.
  struct Open {
    uint32_t num_forwards = 0;
    uint32_t num_without = 0;  // NO_GRAD.
    std::vector<uint32_t> forwards;
    std::vector<uint32_t> once;   // Those of `forwards` that do not run again,
                                  // or of which `again` may be.
    std::vector<uint32_t> again;  // Forwards that run again, not linked yet.
    std::deque<uint32_t> halves;  // First halves of backwards.
  };

  // What runs again before a backward are the last forwards, in their order.
  void LinkAgain(Open& open) {
    const size_t first = open.once.size() - open.again.size();
    for (size_t i = 0; i < open.again.size(); ++i) {
      Pass& again = passes_[open.again[i]];
      again.forward = open.once[first + i];
      again.use = passes_[again.forward].use;
    }
    open.once.resize(first);
    open.again.clear();
  }

  Status Refuse(uint32_t index, const Pass& pass, const char* why) const {
    return InvalidArgument("engine: pass " + std::to_string(index) + " is " +
                           TextOf(pass, names_[pass.module]) + ", " + why);
  }
  // The last one.
  Status TakeForward(const Open& open, Pass& pass) const {
    if (open.forwards.empty()) {
      return Refuse(static_cast<uint32_t>(passes_.size()), pass,
                    "which no FORWARD comes before that has no backward yet");
    }
    pass.forward = open.forwards.back();
    pass.use = passes_[pass.forward].use;
    return Status();
  }

  const std::vector<std::string>& names_;
  std::vector<Pass> passes_;
  // Keyed by module and micro-batch.
  std::map<std::pair<uint32_t, uint32_t>, Open> open_;
};

}  // namespace

std::string PassName(const std::string& module, uint32_t use) {
  std::string name = module;
  if (use == 0) return name;
  name.push_back('#');
  return name.append(std::to_string(use + 1));
}

const char* OpName(PassKind kind) {
  switch (kind) {
    case PassKind::kForward:
      return "forward";
    case PassKind::kRecompute:
      return "recompute";
    case PassKind::kBackward:
      return "backward";
    case PassKind::kBackwardInput:
      return "backward_input";
    case PassKind::kBackwardWeight:
      return "backward_weight";
    case PassKind::kNoGrad:
      return "no_grad";
  }
  return "";
}

std::string TextOf(const Pass& pass, const std::string& module) {
  std::string text = NameOf(pass.kind);
  text += " of module " + std::to_string(pass.module);
  if (!module.empty()) text += " '" + module + "'";
  text += ", micro-batch " + std::to_string(pass.micro_batch);
  if (pass.use > 0) text += ", pass " + std::to_string(pass.use + 1);
  return text;
}

std::string CallText(const char* which, const Pass& pass,
                     const std::string& module) {
  return std::string("pass_") + which + " of " + TextOf(pass, module);
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

Status LinkPasses(const std::vector<PassCall>& calls,
                  const std::vector<std::string>& names,
                  std::vector<Pass>* out_passes) {
  Linker linker(names);
  for (const PassCall& call : calls) ENGINE_RETURN_IF_ERROR(linker.Add(call));
  return linker.TakePasses(out_passes);
}

Status CheckPasses(const std::vector<Pass>& passes,
                   const std::vector<std::string>& names,
                   uint32_t micro_batches) {
  // Whether a module runs forward, and backward, by micro-batch and module.
  std::vector<bool> forward(size_t{micro_batches} * names.size());
  std::vector<bool> backward(forward.size());
  std::vector<bool> any_backward(names.size());
  for (size_t i = 0; i < passes.size(); ++i) {
    const Pass& pass = passes[i];
    if (pass.micro_batch >= micro_batches) {
      return InvalidArgument("engine: pass " + std::to_string(i) + " is " +
                             TextOf(pass, names[pass.module]) +
                             "; micro_batches is " +
                             std::to_string(micro_batches));
    }
    const size_t at = pass.micro_batch * names.size() + pass.module;
    if (pass.forward == i) forward[at] = true;
    if (!AddsGradients(pass.kind)) continue;
    backward[at] = true;
    any_backward[pass.module] = true;
  }
  for (size_t at = 0; at < forward.size(); ++at) {
    const size_t module = at % names.size();
    const char* missing = nullptr;
    if (!backward[at] && any_backward[module]) missing = "backward";
    if (!forward[at]) missing = "forward";
    if (missing == nullptr) continue;
    return InvalidArgument(
        "engine: the passes have no " + std::string(missing) + " of module " +
        std::to_string(module) + " '" + names[module] + "' in micro-batch " +
        std::to_string(at / names.size()) + "; micro_batches is " +
        std::to_string(micro_batches));
  }
  return Status();
}

std::vector<bool> WithoutBackward(const std::vector<Pass>& passes,
                                  size_t num_modules) {
  std::vector<bool> without(num_modules, true);
  for (const Pass& pass : passes) {
    if (AddsGradients(pass.kind)) without[pass.module] = false;
  }
  return without;
}

std::vector<uint32_t> OneForward(const std::vector<Pass>& passes,
                                 size_t num_modules) {
  std::vector<bool> has_forward(num_modules);
  for (const Pass& pass : passes) {
    if (pass.kind == PassKind::kForward) has_forward[pass.module] = true;
  }
  std::vector<uint32_t> indices;
  for (uint32_t i = 0; i < passes.size(); ++i) {
    const Pass& pass = passes[i];
    if (pass.micro_batch != 0 || pass.forward != i) continue;
    if (pass.kind == PassKind::kNoGrad && has_forward[pass.module]) continue;
    indices.push_back(i);
  }
  return indices;
}

}  // namespace commsched::engine
