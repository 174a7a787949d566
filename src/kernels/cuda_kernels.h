#ifndef COMMSCHED_SRC_KERNELS_CUDA_KERNELS_H_
#define COMMSCHED_SRC_KERNELS_CUDA_KERNELS_H_

#include <span>
#include <string>

#include "kernels/bodies.h"
#include "kernels/cuda_api.h"
#include "kernels/cuda_images.h"

namespace commsched::kernels {

// The kernels of kernels.cu, ready to be launched on one device.
//
// Constant after Load(): thread-safe.
class CudaKernels {
 public:
  // "", or why they cannot be used: of no image the driver has all of them for
  // this device. The first of which it has is taken. The device is the current
  // one: all of them are brought there now, since to do so at a first launch
  // may wait for what the device is doing. `api` must outlive it. The code
  // stays loaded.
  std::string Load(const CudaApi* api,
                   std::span<const KernelImage> images = KernelImages());

  // The name of the image that was taken; "" before.
  const char* image() const { return image_; }

  // Enqueues; nothing if there are no indices. "", or what went wrong.
  template <typename Kernel>
  std::string Launch(const typename Kernel::Args& args,
                     cudaStream_t stream) const {
    typename Kernel::Args copy = args;
    return LaunchNamed(FunctionOf<Kernel>(),
                       Kernel::Count(args) * LanesOf<Kernel>(), &copy, stream);
  }

 private:
  struct Functions {
#define COMMSCHED_KERNELS_MEMBER(name, kernel) CUfunction name = nullptr;
    COMMSCHED_DEVICE_KERNELS(COMMSCHED_KERNELS_MEMBER)
#undef COMMSCHED_KERNELS_MEMBER
  };

  template <typename Kernel>
  CUfunction FunctionOf() const {
#define COMMSCHED_KERNELS_RETURN(name, kernel)    \
  if constexpr (std::is_same_v<Kernel, kernel>) { \
    return functions_.name;                       \
  }
    COMMSCHED_DEVICE_KERNELS(COMMSCHED_KERNELS_RETURN)
#undef COMMSCHED_KERNELS_RETURN
  }
  std::string LoadImage(const KernelImage& image);
  std::string LaunchNamed(CUfunction function, uint64_t threads, void* args,
                          cudaStream_t stream) const;

  const CudaApi* api_ = nullptr;
  const char* image_ = "";
  Functions functions_;
};

}  // namespace commsched::kernels

#endif  // COMMSCHED_SRC_KERNELS_CUDA_KERNELS_H_
