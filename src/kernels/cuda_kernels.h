#ifndef COMMSCHED_SRC_KERNELS_CUDA_KERNELS_H_
#define COMMSCHED_SRC_KERNELS_CUDA_KERNELS_H_

#include <string>

#include "kernels/bodies.h"
#include "kernels/cuda_api.h"

namespace commsched::kernels {

// The kernels of kernels.cu, ready to be launched on one device.
//
// Constant after Load(): thread-safe.
class CudaKernels {
 public:
  // "", or why they cannot be used. The device is the current one: all of them
  // are brought there now, since to do so at a first launch may wait for what
  // the device is doing. `api` must outlive it. The code stays loaded.
  std::string Load(const CudaApi* api);

  // Enqueues; nothing if there are no indices. "", or what went wrong.
  template <typename Kernel>
  std::string Launch(const typename Kernel::Args& args,
                     cudaStream_t stream) const {
    typename Kernel::Args copy = args;
    return LaunchNamed(FunctionOf<Kernel>(), Kernel::Count(args), &copy,
                       stream);
  }

 private:
  struct Functions {
#define COMMSCHED_KERNELS_MEMBER(name, kernel) const void* name = nullptr;
    COMMSCHED_DEVICE_KERNELS(COMMSCHED_KERNELS_MEMBER)
#undef COMMSCHED_KERNELS_MEMBER
  };

  template <typename Kernel>
  const void* FunctionOf() const {
#define COMMSCHED_KERNELS_RETURN(name, kernel)    \
  if constexpr (std::is_same_v<Kernel, kernel>) { \
    return functions_.name;                       \
  }
    COMMSCHED_DEVICE_KERNELS(COMMSCHED_KERNELS_RETURN)
#undef COMMSCHED_KERNELS_RETURN
  }
  std::string LaunchNamed(const void* function, uint64_t count, void* args,
                          cudaStream_t stream) const;

  const CudaApi* api_ = nullptr;
  Functions functions_;
};

}  // namespace commsched::kernels

#endif  // COMMSCHED_SRC_KERNELS_CUDA_KERNELS_H_
