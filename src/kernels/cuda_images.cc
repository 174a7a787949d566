#include "kernels/cuda_images.h"

#include <cuda.h>

// The bytes of `file`, as commsched_kernels_<name>.
#define COMMSCHED_IMAGE(name, file)      \
  asm(".section .rodata\n"               \
      ".balign 64\n"                     \
      ".hidden commsched_kernels_" #name \
      "\n"                               \
      ".global commsched_kernels_" #name \
      "\n"                               \
      "commsched_kernels_" #name         \
      ":\n"                              \
      ".incbin \"" file                  \
      "\"\n"                             \
      ".byte 0\n"                        \
      ".previous\n");                    \
  extern "C" const unsigned char commsched_kernels_##name[];

// What nvcc has made: code of the devices that the build names, and PTX.
COMMSCHED_IMAGE(fatbin, COMMSCHED_KERNELS_FATBIN)
#ifdef COMMSCHED_KERNELS_12_SM_90
COMMSCHED_IMAGE(sm_90, COMMSCHED_KERNELS_12_SM_90)
COMMSCHED_IMAGE(sm_80, COMMSCHED_KERNELS_12_SM_80)
#endif

namespace commsched::kernels {
namespace {

const KernelImage kImages[] = {
    // Drivers take what compilers of their major version make.
    {"nvcc's", commsched_kernels_fatbin, CUDA_VERSION / 1000 * 1000},
#ifdef COMMSCHED_KERNELS_12_SM_90
    {"CUDA 12.4's for sm_90", commsched_kernels_sm_90, 12040},
    {"CUDA 12.4's for sm_80", commsched_kernels_sm_80, 12040},
#endif
};

}  // namespace

std::span<const KernelImage> KernelImages() { return kImages; }

}  // namespace commsched::kernels
