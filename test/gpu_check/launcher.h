#ifndef COMMSCHED_TEST_GPU_CHECK_LAUNCHER_H_
#define COMMSCHED_TEST_GPU_CHECK_LAUNCHER_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda_api.h"
#include "test/gpu_check/bodies.h"

namespace commsched::gpu_check {

// Launches the kernels of bodies.h: those of the fat binary, or on the
// stand-ins their twins of the host's compiler.
//
// Constant after creation: thread-safe.
class Launcher {
 public:
  // Of this process, loaded once.
  static absl::StatusOr<const Launcher*> Get();

  const kernels::CudaApi& cuda() const { return cuda_; }
  int num_devices() const { return num_devices_; }
  // Times say nothing, and ranks of NCCL are threads of one process.
  bool on_stand_ins() const { return launch_twin_ != nullptr; }

  // On a stream of `device`, which becomes the current one.
  template <typename Kernel>
  absl::Status Launch(int device, const typename Kernel::Args& args,
                      cudaStream_t stream) const {
    typename Kernel::Args copy = args;
    if (on_stand_ins()) return LaunchTwin<Kernel>(copy, stream);
    return LaunchKernel(device, FunctionOf<Kernel>(), Kernel::Count(args),
                        &copy, stream);
  }

  absl::Status Check(const char* call, cudaError_t code) const;
  absl::Status Check(const char* call, CUresult code) const;

 private:
  struct Functions {
#define COMMSCHED_CHECK_MEMBER(name, kernel) CUfunction name = nullptr;
    COMMSCHED_GPU_CHECK_KERNELS(COMMSCHED_CHECK_MEMBER)
#undef COMMSCHED_CHECK_MEMBER
  };

  static absl::StatusOr<const Launcher*> Make();
  absl::Status LoadKernels();
  absl::Status LaunchKernel(int device, CUfunction function, uint64_t count,
                            void* args, cudaStream_t stream) const;

  template <typename Kernel>
  CUfunction FunctionOf() const {
#define COMMSCHED_CHECK_RETURN(name, kernel)      \
  if constexpr (std::is_same_v<Kernel, kernel>) { \
    return functions_.name;                       \
  }
    COMMSCHED_GPU_CHECK_KERNELS(COMMSCHED_CHECK_RETURN)
#undef COMMSCHED_CHECK_RETURN
  }

  template <typename Kernel>
  absl::Status LaunchTwin(typename Kernel::Args args,
                          cudaStream_t stream) const {
    Kernel::MapPointers(args, [this](auto& pointer) {
      using Pointer = std::remove_reference_t<decltype(pointer)>;
      pointer = static_cast<Pointer>(
          peek_(const_cast<void*>(static_cast<const void*>(pointer))));
    });
    const auto run = [](void* user) {
      const std::unique_ptr<typename Kernel::Args> mine(
          static_cast<typename Kernel::Args*>(user));
      const uint64_t count = Kernel::Count(*mine);
      for (uint64_t i = 0; i < count; ++i) Kernel::Run(*mine, i);
    };
    return Check("fake_gpu_launch",
                 static_cast<cudaError_t>(launch_twin_(
                     stream, run, new typename Kernel::Args(args))));
  }

  kernels::CudaApi cuda_;
  int num_devices_ = 0;
  Functions functions_;
  // Of test/fakes/gpu/fake_gpu.h, if the runtime is that; else null.
  int (*launch_twin_)(void* stream, void (*fn)(void* user),
                      void* user) = nullptr;
  void* (*peek_)(void* device_address) = nullptr;
};

}  // namespace commsched::gpu_check

#endif  // COMMSCHED_TEST_GPU_CHECK_LAUNCHER_H_
