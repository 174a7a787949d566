#ifndef COMMSCHED_TEST_GPU_CHECK_ENGINE_TRAINING_H_
#define COMMSCHED_TEST_GPU_CHECK_ENGINE_TRAINING_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <vector>

#include "commsched/commsched.h"
#include "commsched/engine.h"
#include "test/gpu_check/launcher.h"

namespace commsched::gpu_check {

// A training of the toy model of test/engine whose compute is kernels.
struct TrainingSpec {
  int32_t ranks = 1;
  uint32_t steps = 6;
  commsched_engine_desc_t engine = commsched_engine_desc_init();
  commsched_step_plan_options_t options = commsched_step_plan_options_init();
  const Launcher* launcher = nullptr;  // Null: on the host, by loops.
};

struct TrainingEnd {
  std::string error;  // "" or the first failure.
  std::vector<float> weights;
  double norm = 0;
};

// Rank `rank` of it, on `world`.
TrainingEnd TrainRank(const TrainingSpec& spec, commsched_world_t* world,
                      int32_t rank);

// All ranks, as threads: on the host, or with a device each. By rank.
std::vector<TrainingEnd> TrainAll(const TrainingSpec& spec);

}  // namespace commsched::gpu_check

#endif  // COMMSCHED_TEST_GPU_CHECK_ENGINE_TRAINING_H_
