#ifndef COMMSCHED_SRC_ENGINE_MODEL_REGISTRATION_H_
#define COMMSCHED_SRC_ENGINE_MODEL_REGISTRATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/model.h"

namespace commsched::engine {

// What of a model has been registered, in words: "parameter 3" is "'w' [2, 8]".
struct RegisteredFact {
  std::string subject;
  std::string value;

  bool operator==(const RegisteredFact&) const = default;
};

// What ranks that share the parameters of a model have in common: parameters,
// and modules with what they use and call, in order.
std::vector<RegisteredFact> CommonFacts(const Model& model);

// All of it that a rank's memory and calls depend on, its own addresses among
// it, and how many there are of everything. Only passes and hints of cost are
// left out. Of two lists that differ, the first entries to do so are of one
// subject.
std::vector<RegisteredFact> FactsOfRank(const Model& model);

// "BF16"
std::string NameOfDType(uint32_t dtype);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_MODEL_REGISTRATION_H_
