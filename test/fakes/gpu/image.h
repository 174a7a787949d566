#ifndef COMMSCHED_TEST_FAKES_GPU_IMAGE_H_
#define COMMSCHED_TEST_FAKES_GPU_IMAGE_H_

namespace fake_gpu {

// What an image of kernels is to the devices and the driver.
enum class ImageKind {
  kUnknown,         // No image.
  kTooNew,          // All that is in it is of a newer version than the driver.
  kFatbinOfOthers,  // Nothing that the driver takes is for the devices.
  kCubinOfOthers,
  kUsable,
};

// `code` is a fat binary or a cubin, as compilers of CUDA 12 and 13 write them.
ImageKind KindOf(const void* code);

}  // namespace fake_gpu

#endif  // COMMSCHED_TEST_FAKES_GPU_IMAGE_H_
