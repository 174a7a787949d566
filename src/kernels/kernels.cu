// The kernels of CUDA.
#include "kernels/bodies.h"
#include "kernels/device_kernel.h"

namespace commsched::kernels {

// How many blocks a multiprocessor is to have room for.
template <typename Kernel>
inline constexpr unsigned kMinBlocks = 4;
// With more registers it has too few reads under way; ptxas needs more for
// older devices, and for those of compute capability 10.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000
template <>
inline constexpr unsigned kMinBlocks<ReduceRanks> = 5;
#endif

}  // namespace commsched::kernels

#define COMMSCHED_DEFINE_KERNEL(name, kernel)                     \
  extern "C" __global__ void __launch_bounds__(                   \
      commsched::kernels::kThreads,                               \
      commsched::kernels::kMinBlocks<commsched::kernels::kernel>) \
      name(const commsched::kernels::kernel::Args args) {         \
    commsched::kernels::RunAll<commsched::kernels::kernel>(args); \
  }
COMMSCHED_DEVICE_KERNELS(COMMSCHED_DEFINE_KERNEL)
