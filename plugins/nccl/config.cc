#include "config.h"

#include <algorithm>
#include <charconv>

namespace commsched::nccl {
namespace {

// A number in `least`..`most`.
bool ParseNumber(const std::string& text, int least, int most, int* out) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *out);
  return error == std::errc() && rest == end && *out >= least && *out <= most;
}

Outcome SetField(const std::string& field, Config* config) {
  struct Key {
    const char* name;
    int least, most;
    int* value;
  };
  const Key keys[] = {
      {"max_ctas", 1, Config::kMostBudget, &config->max_ctas},
      {"lanes", 1, Config::kMostLanes, &config->lanes},
      {"min_ctas", 1, Config::kMostCtas, &config->min_ctas},
      {"cga", 0, Config::kMostCga, &config->cga},
      {"register", 0, 1, &config->registration},
  };
  const size_t equals = std::min(field.find('='), field.size());
  const std::string name = field.substr(0, equals);
  const std::string value =
      equals == field.size() ? "" : field.substr(equals + 1);
  for (const Key& key : keys) {
    if (name != key.name) continue;
    if (*key.value != Config::kUnset) {
      return {COMMSCHED_INVALID_ARGUMENT,
              "configuration: " + name + " is given twice; give it once"};
    }
    if (ParseNumber(value, key.least, key.most, key.value)) return {};
    return {COMMSCHED_INVALID_ARGUMENT,
            "configuration: " + name + " is '" + value +
                "'; it must be a number in " + std::to_string(key.least) +
                ".." + std::to_string(key.most)};
  }
  return {COMMSCHED_INVALID_ARGUMENT,
          "configuration: unknown key '" + name +
              "'; there are max_ctas, lanes, min_ctas, cga and register"};
}

}  // namespace

Outcome Config::Parse(const std::string& text, Config* out_config) {
  Config config;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    Outcome outcome = SetField(text.substr(begin, end - begin), &config);
    if (!outcome.ok()) return outcome;
    begin = end + 1;
  }
  if (config.max_ctas != kUnset && config.min_ctas > config.max_ctas) {
    return {COMMSCHED_INVALID_ARGUMENT, "configuration: min_ctas is " +
                                            std::to_string(config.min_ctas) +
                                            ", above max_ctas, which is " +
                                            std::to_string(config.max_ctas)};
  }
  *out_config = config;
  return {};
}

Outcome Config::ForLanes(uint32_t num_lanes, int multiprocessors,
                         ncclConfig_t* out_config) const {
  const int budget = max_ctas == kUnset ? multiprocessors : max_ctas;
  const int share = budget / static_cast<int>(std::max(num_lanes, 1u));
  const int least = std::max(min_ctas, 1);
  if (share < least) {
    return {COMMSCHED_INVALID_ARGUMENT,
            std::to_string(num_lanes) + " communication lanes with at least " +
                std::to_string(least) + " CTAs each do not fit into " +
                std::to_string(budget) +
                " (max_ctas of the backend's configuration, or one per "
                "multiprocessor); plan with fewer lanes"};
  }
  out_config->maxCTAs = std::min(share, kMostCtas);
  if (min_ctas != kUnset) out_config->minCTAs = min_ctas;
  if (cga != kUnset) out_config->cgaClusterSize = cga;
  return {};
}

}  // namespace commsched::nccl
