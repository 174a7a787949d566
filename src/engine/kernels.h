#ifndef COMMSCHED_SRC_ENGINE_KERNELS_H_
#define COMMSCHED_SRC_ENGINE_KERNELS_H_

#include "commsched/engine.h"

namespace commsched::engine {

// The CPU kernels, for the entries that a caller's table leaves NULL. They
// are compiled without contraction of a * b + c, and treat every element, or
// every block of 256, by itself: the bits do not depend on where a shard or a
// bucket ends.
commsched_engine_kernels_t CpuKernels();

// `table` (may be NULL) with the CPU kernels in its empty entries.
commsched_engine_kernels_t CompleteKernels(
    const commsched_engine_kernels_t* table);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_KERNELS_H_
