#include "test/gpu_check/by_hand.h"

#include <dlfcn.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/open_library.h"
#include "test/gpu_check/gpu_check.h"

namespace commsched::gpu_check {
namespace {

absl::StatusOr<const NcclByHand*> Load() {
  // The plugin has loaded the copy that it uses.
  RETURN_IF_ERROR(Nccl().status());
  void* handle = nullptr;
  const std::string why = kernels::OpenLibrary(
      {"COMMSCHED_NCCL_LIB", {"libnccl.so.2"}, {}}, &handle);
  if (!why.empty()) return absl::UnavailableError(why);
  auto nccl = std::make_unique<NcclByHand>();
#define COMMSCHED_BY_HAND_LOAD(name)                                       \
  nccl->name =                                                             \
      reinterpret_cast<decltype(nccl->name)>(dlsym(handle, "nccl" #name)); \
  if (nccl->name == nullptr) {                                             \
    return absl::UnavailableError("libnccl.so.2 has no nccl" #name);       \
  }
  COMMSCHED_BY_HAND_FUNCTIONS(COMMSCHED_BY_HAND_LOAD)
#undef COMMSCHED_BY_HAND_LOAD
  RETURN_IF_ERROR(
      nccl->Check("ncclGetVersion", nccl->GetVersion(&nccl->version)));
  Dl_info info = {};
  if (dladdr(reinterpret_cast<void*>(nccl->AllReduce), &info) != 0) {
    nccl->file = info.dli_fname;
  }
  return nccl.release();  // As long as the process.
}

}  // namespace

absl::StatusOr<const NcclByHand*> NcclByHand::Get() {
  static const auto* const loaded =
      new absl::StatusOr<const NcclByHand*>(Load());
  return *loaded;
}

absl::Status NcclByHand::Check(const char* call, ncclResult_t result) const {
  if (result == ncclSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, ": ", GetErrorString(result),
                                          " (", static_cast<int>(result), ")"));
}

StepByHand::~StepByHand() {
  for (cudaStream_t stream : {side_, compute_}) {
    if (stream != nullptr) cuda_.StreamSynchronize(stream);
  }
  if (comm_ != nullptr) nccl_.CommDestroy(comm_);
  for (const auto& events : {computed_, reduced_}) {
    for (cudaEvent_t event : events) cuda_.EventDestroy(event);
  }
  if (memory_ != nullptr) (void)cuda_.driver.Free(memory_);
  for (cudaStream_t stream : {side_, compute_}) {
    if (stream != nullptr) cuda_.StreamDestroy(stream);
  }
}

absl::Status StepByHand::Make(int num_launches, uint64_t elements) {
  elements_ = elements;
  RETURN_IF_ERROR(cuda_.Check("cudaSetDevice", cuda_.SetDevice(0)));
  int least = 0;
  int greatest = 0;
  RETURN_IF_ERROR(
      cuda_.Check("cudaDeviceGetStreamPriorityRange",
                  cuda_.DeviceGetStreamPriorityRange(&least, &greatest)));
  const auto make_stream = [&](cudaStream_t* stream, int priority) {
    return cuda_.Check("cudaStreamCreateWithPriority",
                       cuda_.StreamCreateWithPriority(
                           stream, cudaStreamNonBlocking, priority));
  };
  RETURN_IF_ERROR(make_stream(&compute_, least));
  RETURN_IF_ERROR(make_stream(&side_, greatest));
  for (auto* events : {&computed_, &reduced_}) {
    for (int i = 0; i < num_launches; ++i) {
      cudaEvent_t event = nullptr;
      RETURN_IF_ERROR(cuda_.Check(
          "cudaEventCreateWithFlags",
          cuda_.EventCreateWithFlags(&event, cudaEventDisableTiming)));
      events->push_back(event);
    }
  }
  ncclUniqueId id = {};
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  RETURN_IF_ERROR(nccl_.Check("ncclGetUniqueId", nccl_.GetUniqueId(&id)));
  RETURN_IF_ERROR(
      nccl_.Check("ncclCommInitRankConfig",
                  nccl_.CommInitRankConfig(&comm_, 1, id, 0, &config)));
  return cuda_.Check("cuMemAlloc",
                     cuda_.driver.Allocate(elements * sizeof(float), &memory_));
}

absl::Status StepByHand::Enqueue() {
  bool ok = true;
  for (size_t i = 0; i < computed_.size(); ++i) {
    ok &= cuda_.EventRecord(computed_[i], compute_) == cudaSuccess;
    ok &= cuda_.StreamWaitEvent(side_, computed_[i], 0) == cudaSuccess;
    ok &= nccl_.GroupStart() == ncclSuccess;
    ok &= nccl_.AllReduce(memory_, memory_, elements_, ncclFloat, ncclSum,
                          comm_, side_) == ncclSuccess;
    ok &= nccl_.GroupEnd() == ncclSuccess;
    ok &= cuda_.EventRecord(reduced_[i], side_) == cudaSuccess;
  }
  ok &= cuda_.StreamWaitEvent(compute_, reduced_.back(), 0) == cudaSuccess;
  return ok ? absl::OkStatus()
            : absl::InternalError("a call of the step by hand failed");
}

absl::Status StepByHand::Drain() {
  return cuda_.Check("cudaStreamSynchronize",
                     cuda_.StreamSynchronize(compute_));
}

}  // namespace commsched::gpu_check
