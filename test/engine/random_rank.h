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

// What a steady step does not do (I6), in the whole process.
struct Surprises {
  uint64_t allocations = 0;
  uint64_t lock_contentions = 0;
  uint64_t events = 0;
  uint64_t streams = 0;
  uint64_t registrations = 0;  // Of rank 0.
};

// Trains the case as RunCase() does, which must not fail, and counts from its
// `warm_up`-th step to its last, all of which every rank takes.
Surprises SurprisesOnceWarm(const RandomCase& random_case,
                            const PlainTraining& plain, uint32_t warm_up);

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_RANDOM_RANK_H_
