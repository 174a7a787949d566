#ifndef COMMSCHED_TEST_ENGINE_CUDA_GPU_TOYS_H_
#define COMMSCHED_TEST_ENGINE_CUDA_GPU_TOYS_H_

#include <memory>

#include "test/engine/toy_model.h"

namespace commsched::engine {

// Stand-in devices: rank r on the r-th, with a stream, and the backend nccl.
// ctest sets COMMSCHED_CUDART_LIB and COMMSCHED_NCCL_LIB.
std::shared_ptr<ToyDevices> StandInDevices(int32_t ranks);

// `run` on them.
ToyRun OnDevices(ToyRun run);

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_CUDA_GPU_TOYS_H_
