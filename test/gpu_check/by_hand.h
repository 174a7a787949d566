#ifndef COMMSCHED_TEST_GPU_CHECK_BY_HAND_H_
#define COMMSCHED_TEST_GPU_CHECK_BY_HAND_H_

// Ahead of nccl.h, which brings templates of the names that this looks up.
// clang-format off
#include "device/cuda_runtime.h"
#include <nccl.h>
// clang-format on

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace commsched::gpu_check {

// X(name): nccl<name>, with the type that the vendor's header gives it.
#define COMMSCHED_BY_HAND_FUNCTIONS(X) \
  X(GetVersion)                        \
  X(GetErrorString)                    \
  X(GetUniqueId)                       \
  X(CommInitRankConfig)                \
  X(CommDestroy)                       \
  X(GroupStart)                        \
  X(GroupEnd)                          \
  X(AllReduce)

// NCCL as a program calls it that has no scheduler. Constant after Get().
struct NcclByHand {
#define COMMSCHED_BY_HAND_MEMBER(name) decltype(&::nccl##name) name = nullptr;
  COMMSCHED_BY_HAND_FUNCTIONS(COMMSCHED_BY_HAND_MEMBER)
#undef COMMSCHED_BY_HAND_MEMBER

  int version = 0;
  std::string file;

  // The copy that the backend uses.
  static absl::StatusOr<const NcclByHand*> Get();
  absl::Status Check(const char* call, ncclResult_t result) const;
};

// A step of a program that waits, launches and records by itself: for each
// launch a record on the compute stream, a wait on the side stream, a group of
// one all-reduce, and a record there; one rank, on device 0.
class StepByHand {
 public:
  StepByHand(const CudaRuntime& cuda, const NcclByHand& nccl)
      : cuda_(cuda), nccl_(nccl) {}
  ~StepByHand();
  StepByHand(const StepByHand&) = delete;
  StepByHand& operator=(const StepByHand&) = delete;

  absl::Status Make(int num_launches, uint64_t elements);
  // Enqueues a step. Stops at the first call that fails.
  absl::Status Enqueue();
  absl::Status Drain();

 private:
  const CudaRuntime& cuda_;
  const NcclByHand& nccl_;
  cudaStream_t compute_ = nullptr;
  cudaStream_t side_ = nullptr;
  std::vector<cudaEvent_t> computed_, reduced_;
  ncclComm_t comm_ = nullptr;
  void* memory_ = nullptr;
  size_t elements_ = 0;
};

}  // namespace commsched::gpu_check

#endif  // COMMSCHED_TEST_GPU_CHECK_BY_HAND_H_
