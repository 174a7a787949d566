#ifndef COMMSCHED_TEST_ENGINE_TOY_TRAINING_H_
#define COMMSCHED_TEST_ENGINE_TOY_TRAINING_H_

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "test/engine/toy_model.h"
#include "test/engine/toy_rank.h"

namespace commsched::engine {

struct ToyResult {
  std::string error;                        // Of any rank.
  std::vector<std::vector<float>> weights;  // By rank; parameters end to end.
  double norm = 0;  // Of the last step; 0 unless clipped.
  commsched_engine_info_t info = commsched_engine_info_init();
};

ToyResult RunToy(const ToyRun& run);

// Equal to the bit, and quick to say so for thousands of values.
bool SameBits(const std::vector<float>& a, const std::vector<float>& b);

// Heap allocations of the whole process while every rank runs 40 steps, after
// 3 to warm up. `step` runs one; a message of its fails the test.
uint64_t AllocationsOnceWarm(
    const ToyRun& run,
    const std::function<std::string(ToyRank&, uint32_t step)>& step);

// Bytes from the first to the last element, of values and gradients, that the
// backwards of two steps see on a rank: the most of any.
uint64_t BytesSeenInBackwards(const ToyRun& run);

// The plan as JSON, and what the engine says of itself.
struct Planned {
  std::string error;  // Of any rank.
  nlohmann::json plan;
  commsched_engine_info_t info = commsched_engine_info_init();
};
Planned PlanOf(const ToyRun& run);

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_TOY_TRAINING_H_
