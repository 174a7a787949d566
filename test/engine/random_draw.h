#ifndef COMMSCHED_TEST_ENGINE_RANDOM_DRAW_H_
#define COMMSCHED_TEST_ENGINE_RANDOM_DRAW_H_

#include <cstdint>

#include "test/engine/random_case.h"

namespace commsched::engine {

// Every choice follows from the seed.
RandomCase DrawCase(uint64_t seed);

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_RANDOM_DRAW_H_
