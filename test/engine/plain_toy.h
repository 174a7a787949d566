#ifndef COMMSCHED_TEST_ENGINE_PLAIN_TOY_H_
#define COMMSCHED_TEST_ENGINE_PLAIN_TOY_H_

#include <vector>

#include "test/engine/toy_model.h"

namespace commsched::engine {

// The same training by a plain loop, in the engine's order of additions.
std::vector<float> ReferenceWeights(const ToyRun& run);

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_PLAIN_TOY_H_
