#ifndef COMMSCHED_SRC_ENGINE_TABLES_DEVICE_TABLES_H_
#define COMMSCHED_SRC_ENGINE_TABLES_DEVICE_TABLES_H_

#include "checkpoint/status.h"
#include "commsched/engine_kernels.h"
#include "commsched/world.h"

namespace commsched::engine {

// What an engine computes with, and where, unless its caller says otherwise.
struct DeviceTables {
  commsched_engine_kernels_t kernels;
  commsched_engine_memory_t memory;
};

// Those of a CUDA device, for as long as the process lives. UNIMPLEMENTED in a
// build without CUDA; UNAVAILABLE if its kernels cannot be loaded.
Status CudaTables(int32_t device, DeviceTables* out_tables);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_TABLES_DEVICE_TABLES_H_
