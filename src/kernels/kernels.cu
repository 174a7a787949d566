// The kernels of CUDA.
#include "kernels/bodies.h"
#include "kernels/device_kernel.h"

#define COMMSCHED_DEFINE_KERNEL(name, kernel)                     \
  extern "C" __global__ void name(                                \
      const commsched::kernels::kernel::Args args) {              \
    commsched::kernels::RunAll<commsched::kernels::kernel>(args); \
  }
COMMSCHED_DEVICE_KERNELS(COMMSCHED_DEFINE_KERNEL)
