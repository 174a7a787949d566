#include "engine/model/registration.h"

#include <charconv>
#include <cstddef>
#include <utility>

namespace commsched::engine {
namespace {

std::string Quote(const std::string& name) {
  return std::string("'").append(name).append("'");
}

std::string AddressText(const void* address) {
  char text[17];
  const auto end = std::to_chars(text, text + sizeof(text),
                                 reinterpret_cast<uintptr_t>(address), 16)
                       .ptr;
  return "0x" + std::string(text, end);
}

// "1, 0"
template <typename Number>
std::string Joined(const std::vector<Number>& numbers) {
  std::string text;
  for (Number number : numbers) {
    text += (text.empty() ? "" : ", ") + std::to_string(number);
  }
  return text;
}

std::string WithIds(const char* what, const std::vector<uint32_t>& ids) {
  if (ids.empty()) return "";
  return std::string(what) + Joined(ids);
}

std::string Describe(const Module& module) {
  std::string text = Quote(module.name);
  text += WithIds(" with parameters ", module.used);
  if (module.segment > 0) {
    text += ", recomputed with segment " + std::to_string(module.segment);
  }
  return text;
}

std::string Describe(const ModuleStep& step) {
  return (step.is_collective ? "collective " : "op ") + Quote(step.name) +
         WithIds(", parameters ", step.parameters) +
         WithIds(", gradients ", step.gradients);
}

std::string Describe(const Parameter& parameter) {
  std::string text =
      Quote(parameter.name) + " [" + Joined(parameter.dims) + "]";
  if (parameter.has_dtype) text += ", " + NameOfDType(parameter.dtype);
  if (parameter.frozen) text += ", frozen";
  if (parameter.option_set != 0) {
    text += ", option set " + std::to_string(parameter.option_set);
  }
  if (parameter.atomic) text += ", atomic";
  if (parameter.replicated_over != 0) {
    text +=
        ", replicated over group " + std::to_string(parameter.replicated_over);
  }
  return text;
}

// "activation 2, 8 from 16"
std::string Describe(const commsched_access_t& access) {
  const std::string text = "activation " + std::to_string(access.buffer);
  switch (access.region) {
    case COMMSCHED_RANGE:
      return text + ", " + std::to_string(access.count) + " from " +
             std::to_string(access.offset);
    case COMMSCHED_SHARD:
      return text + ", shard among group " + std::to_string(access.group);
    case COMMSCHED_TILE:
      return text + ", " + std::to_string(access.rows) + " x " +
             std::to_string(access.count) + " from " +
             std::to_string(access.offset) + " with stride " +
             std::to_string(access.stride);
    default:
      return text;
  }
}

const char* VerbOf(commsched_access_mode_t mode) {
  if (mode == COMMSCHED_READ) return "reads ";
  return mode == COMMSCHED_WRITE ? "writes " : "reads and writes ";
}

// What the step touches of activations, and with whom.
std::string DescribeTouched(const ModuleStep& step) {
  std::string text = Describe(step);
  for (const commsched_access_t& access : step.accesses) {
    text += std::string("; ") + VerbOf(access.mode) + Describe(access);
  }
  if (!step.is_collective) return text;
  const commsched_module_collective_desc_t& of = step.collective;
  text += " of kind " + std::to_string(of.kind) + " and reduce_op " +
          std::to_string(of.reduce_op) + " in group " +
          std::to_string(of.group) + ", root " + std::to_string(of.root) +
          ", peer_offset " + std::to_string(of.peer_offset) + "; reads " +
          Describe(of.input) + "; writes " + Describe(of.output);
  if (!step.counts.empty()) text += "; counts " + Joined(step.counts);
  return text;
}

using Facts = std::vector<RegisteredFact>;

void AddCalls(const Module& module, const std::string& subject,
              std::string (*describe)(const ModuleStep&), bool with_count,
              Facts* facts) {
  for (const bool backward : {false, true}) {
    const std::vector<ModuleStep>& steps = module.steps[backward];
    const std::string where =
        std::string(backward ? "backward" : "forward") + " of " + subject;
    if (with_count) {
      facts->push_back({"calls of the " + where, std::to_string(steps.size())});
    }
    for (size_t i = 0; i < steps.size(); ++i) {
      facts->push_back({"call " + std::to_string(i) + " of the " + where,
                        describe(steps[i])});
    }
  }
}

void AddParameters(const Model& model, Facts* facts) {
  for (size_t p = 0; p < model.parameters().size(); ++p) {
    facts->push_back(
        {"parameter " + std::to_string(p), Describe(model.parameters()[p])});
  }
}

void AddModules(const Model& model, std::string (*describe)(const ModuleStep&),
                bool with_count, Facts* facts) {
  for (size_t m = 0; m < model.modules().size(); ++m) {
    const Module& module = model.modules()[m];
    const std::string subject = "module " + std::to_string(m);
    facts->push_back({subject, Describe(module)});
    AddCalls(module, subject, describe, with_count, facts);
  }
}

void AddExchangeFacts(const Exchanges& exchanges, Facts* facts) {
  for (size_t g = 0; g < exchanges.groups.size(); ++g) {
    const AddedGroup& group = exchanges.groups[g];
    facts->push_back(
        {"group " + std::to_string(g + 1),
         Quote(group.name) + " of " + std::to_string(group.num_ranks)});
  }
  for (size_t a = 0; a < exchanges.activations.size(); ++a) {
    const Activation& activation = exchanges.activations[a];
    facts->push_back({"activation " + std::to_string(a),
                      Quote(activation.name) + ", " +
                          std::to_string(activation.count) + " of " +
                          NameOfDType(activation.dtype) + " at " +
                          AddressText(activation.address)});
  }
}

}  // namespace

std::string NameOfDType(uint32_t dtype) {
  switch (dtype) {
    case COMMSCHED_F64:
      return "F64";
    case COMMSCHED_F16:
      return "F16";
    case COMMSCHED_BF16:
      return "BF16";
    case COMMSCHED_I64:
      return "I64";
    case COMMSCHED_I32:
      return "I32";
    case COMMSCHED_I8:
      return "I8";
    case COMMSCHED_U8:
      return "U8";
    default:
      return "F32";
  }
}

std::vector<RegisteredFact> CommonFacts(const Model& model) {
  Facts facts;
  AddParameters(model, &facts);
  AddModules(model, Describe, /*with_count=*/false, &facts);
  return facts;
}

std::vector<RegisteredFact> FactsOfRank(const Model& model) {
  const Exchanges& exchanges = model.exchanges();
  Facts facts = {{"modules:", std::to_string(model.modules().size())},
                 {"parameters:", std::to_string(model.parameters().size())},
                 {"groups:", std::to_string(exchanges.groups.size())},
                 {"activations:", std::to_string(exchanges.activations.size())},
                 {"ops:", std::to_string(model.ops().size())}};
  AddParameters(model, &facts);
  AddExchangeFacts(exchanges, &facts);
  AddModules(model, DescribeTouched, /*with_count=*/true, &facts);
  // The order in which they were added to modules says what their ids are.
  for (uint32_t op = 0; op < model.ops().size(); ++op) {
    facts.push_back({"ids of ops:", model.TextOfOp(op)});
  }
  return facts;
}

}  // namespace commsched::engine
