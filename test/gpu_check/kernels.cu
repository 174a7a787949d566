// The kernels of these checks, for CUDA.
#include "kernels/device_kernel.h"
#include "test/gpu_check/bodies.h"

#define COMMSCHED_DEFINE_KERNEL(name, kernel)                       \
  extern "C" __global__ void name(                                  \
      const commsched::gpu_check::kernel::Args args) {              \
    commsched::kernels::RunAll<commsched::gpu_check::kernel>(args); \
  }
COMMSCHED_GPU_CHECK_KERNELS(COMMSCHED_DEFINE_KERNEL)
