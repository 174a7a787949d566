// How a kernel of CUDA goes through its indices.
#ifndef COMMSCHED_SRC_KERNELS_DEVICE_KERNEL_H_
#define COMMSCHED_SRC_KERNELS_DEVICE_KERNEL_H_

#include <cstdint>

#include "kernels/bodies.h"

namespace commsched::kernels {

inline constexpr unsigned kThreads = 256;  // Of a block.

#ifdef __CUDACC__
// Each kLanes threads take every so-many-th index. All threads of a warp go
// through the same rounds, those without an index, too, since they exchange
// their parts.
template <typename Kernel>
__device__ void RunAllInLanes(const typename Kernel::Args& args) {
  constexpr uint32_t kWarp = 32;
  static_assert(kWarp % Kernel::kLanes == 0);
  const uint64_t count = Kernel::Count(args);
  const uint64_t stride =
      static_cast<uint64_t>(gridDim.x) * blockDim.x / Kernel::kLanes;
  const uint64_t thread =
      static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const uint32_t lane = threadIdx.x % Kernel::kLanes;
  const uint32_t in_warp = threadIdx.x % kWarp / Kernel::kLanes;
  uint64_t first = thread / kWarp * (kWarp / Kernel::kLanes);
  for (; first < count; first += stride) {
    const uint64_t i = first + in_warp;
    double part = i < count ? Kernel::PartOfLane(args, i, lane) : 0;
    COMMSCHED_UNROLL
    for (uint32_t apart = 1; apart < Kernel::kLanes; apart *= 2) {
      part += __shfl_down_sync(0xFFFFFFFF, part, apart, Kernel::kLanes);
    }
    if (lane == 0 && i < count) Kernel::Keep(args, i, part);
  }
}

// Each thread takes every so-many-th index.
template <typename Kernel>
__device__ void RunEach(const typename Kernel::Args& args) {
  const uint64_t count = Kernel::Count(args);
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i < count; i += stride) Kernel::Run(args, i);
}

template <typename Kernel>
__device__ void RunAll(const typename Kernel::Args& args) {
  if constexpr (HasLanes<Kernel>) {
    RunAllInLanes<Kernel>(args);
  } else {
    RunEach<Kernel>(args);
  }
}
#endif

}  // namespace commsched::kernels

#endif  // COMMSCHED_SRC_KERNELS_DEVICE_KERNEL_H_
