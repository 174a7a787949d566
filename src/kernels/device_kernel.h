// How a kernel of CUDA goes through its indices.
#ifndef COMMSCHED_SRC_KERNELS_DEVICE_KERNEL_H_
#define COMMSCHED_SRC_KERNELS_DEVICE_KERNEL_H_

#include <cstdint>

namespace commsched::kernels {

inline constexpr unsigned kThreads = 256;  // Of a block.

#ifdef __CUDACC__
// Each thread takes every so-many-th index.
template <typename Kernel>
__device__ void RunAll(const typename Kernel::Args& args) {
  const uint64_t count = Kernel::Count(args);
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i < count; i += stride) Kernel::Run(args, i);
}
#endif

}  // namespace commsched::kernels

#endif  // COMMSCHED_SRC_KERNELS_DEVICE_KERNEL_H_
