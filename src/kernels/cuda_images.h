#ifndef COMMSCHED_SRC_KERNELS_CUDA_IMAGES_H_
#define COMMSCHED_SRC_KERNELS_CUDA_IMAGES_H_

#include <span>

namespace commsched::kernels {

// What a compiler has made of kernels.cu: bytes of this library.
struct KernelImage {
  const char* name;  // For people: "nvcc's", "CUDA 12.4's for sm_80".
  const void* code;  // A fat binary, or a cubin.
  int least_driver;  // The oldest CUDA whose driver takes it: 12040 for 12.4.
};

// The newest first. That an image is of another device is not found when it is
// loaded, but when it is asked for a kernel.
std::span<const KernelImage> KernelImages();

}  // namespace commsched::kernels

#endif  // COMMSCHED_SRC_KERNELS_CUDA_IMAGES_H_
