#ifndef COMMSCHED_TEST_ENGINE_RANDOM_RANK_H_
#define COMMSCHED_TEST_ENGINE_RANDOM_RANK_H_

#include <string>
#include <vector>

#include "commsched/engine.h"
#include "test/engine/plain_training.h"
#include "test/engine/random_case.h"

namespace commsched::engine {

// What came of a case on one rank. Either text is empty.
struct Outcome {
  std::string refusal;  // Of create, prepare or build.
  std::string failure;
  commsched_engine_info_t info = commsched_engine_info_init();
};

// Trains the case on a thread per rank, in a world of its own. Wherever a rank
// reads parameters they are compared with those of the plain loop: to the bit
// where the case has one result, else to 1e-5. Ends the process if it hangs.
std::vector<Outcome> RunCase(const RandomCase& random_case,
                             const PlainTraining& plain);

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_RANDOM_RANK_H_
