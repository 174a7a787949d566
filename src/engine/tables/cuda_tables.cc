// The engine's kernels and memory on CUDA devices.
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "engine/tables/device_tables.h"
#include "kernels/cuda_kernels.h"

namespace commsched::engine {
namespace {

using kernels::CudaApi;
using kernels::CudaKernels;

commsched_status_t Report(const std::string& why) {
  if (why.empty()) return COMMSCHED_OK;
  commsched_set_last_error(why.c_str());
  return COMMSCHED_INTERNAL;
}

// A device: what `user` of the tables points to. Constant after Load().
class CudaPlace {
 public:
  static const CudaPlace& Of(void* user) {
    return *static_cast<const CudaPlace*>(user);
  }

  std::string Load(int device) {
    device_ = device;
    std::string why = api_.Load();
    if (!why.empty()) return why;
    const Current current(*this);
    return kernels_.Load(&api_);
  }

  const CudaApi& api() const { return api_; }

  // Runs `call` with this device as the thread's current one.
  template <typename Call>
  commsched_status_t Do(const char* name, const Call& call) const {
    const Current current(*this);
    const CUresult code = call();
    const commsched_status_t status = Report(api_.Check(name, code));
    return code == CUDA_ERROR_OUT_OF_MEMORY ? COMMSCHED_RESOURCE_EXHAUSTED
                                            : status;
  }

  // Enqueues; on the calling thread: waits for it, too.
  template <typename Enqueue>
  commsched_status_t On(commsched_stream_t stream, const char* name,
                        const Enqueue& enqueue) const {
    const Current current(*this);
    const auto native = static_cast<cudaStream_t>(stream.native);
    return Finish(stream, api_.Check(name, enqueue(native)));
  }

  template <typename Kernel>
  commsched_status_t Launch(commsched_stream_t stream,
                            const typename Kernel::Args& args) const {
    const Current current(*this);
    const auto native = static_cast<cudaStream_t>(stream.native);
    return Finish(stream, kernels_.Launch<Kernel>(args, native));
  }

 private:
  // The thread's current device is this one, and then again what it was.
  class Current {
   public:
    explicit Current(const CudaPlace& place) : api_(place.api_) {
      if (api_.GetDevice(&before_) != cudaSuccess) before_ = place.device_;
      changed_ = before_ != place.device_;
      if (changed_) (void)api_.SetDevice(place.device_);
    }
    ~Current() {
      if (changed_) (void)api_.SetDevice(before_);
    }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    const CudaApi& api_;
    int before_ = 0;
    bool changed_ = false;
  };

  commsched_status_t Finish(commsched_stream_t stream, std::string why) const {
    if (why.empty() && stream.kind == COMMSCHED_STREAM_CALLER) {
      why =
          api_.Check("cudaStreamSynchronize", api_.StreamSynchronize(nullptr));
    }
    return Report(why);
  }

  CudaApi api_;
  CudaKernels kernels_;
  int device_ = 0;
};

// ---- Kernels ----------------------------------------------------------------

commsched_status_t Adamw(void* user, commsched_stream_t stream,
                         const commsched_adamw_args_t* args) {
  return CudaPlace::Of(user).Launch<kernels::Adamw>(stream, *args);
}

commsched_status_t Sgd(void* user, commsched_stream_t stream,
                       const commsched_sgd_args_t* args) {
  return CudaPlace::Of(user).Launch<kernels::Sgd>(stream, *args);
}

commsched_status_t BlockSquares(void* user, commsched_stream_t stream,
                                const void* values, commsched_dtype_t dtype,
                                uint64_t count, double* out_sums) {
  return CudaPlace::Of(user).Launch<kernels::BlockSquares>(
      stream, {values, out_sums, count, dtype});
}

commsched_status_t Zero(void* user, commsched_stream_t stream, void* memory,
                        uint64_t bytes) {
  const CudaPlace& place = CudaPlace::Of(user);
  return place.On(stream, "cudaMemsetAsync", [&](cudaStream_t native) {
    return place.api().MemsetAsync(memory, 0, bytes, native);
  });
}

commsched_status_t Add(void* user, commsched_stream_t stream, void* into,
                       commsched_dtype_t into_dtype, const void* values,
                       commsched_dtype_t dtype, uint64_t count) {
  return CudaPlace::Of(user).Launch<kernels::Add>(
      stream, {into, values, count, into_dtype, dtype});
}

commsched_status_t Convert(void* user, commsched_stream_t stream, void* into,
                           commsched_dtype_t into_dtype, const void* values,
                           commsched_dtype_t dtype, uint64_t count) {
  return CudaPlace::Of(user).Launch<kernels::Convert>(
      stream, {into, values, count, into_dtype, dtype});
}

commsched_status_t SumRuns(void* user, commsched_stream_t stream,
                           const commsched_sum_runs_args_t* args) {
  return CudaPlace::Of(user).Launch<kernels::SumRuns>(stream, *args);
}

commsched_status_t Decide(void* user, commsched_stream_t stream,
                          const commsched_decide_args_t* args) {
  return CudaPlace::Of(user).Launch<kernels::DecideStep>(stream, *args);
}

commsched_status_t Fill(void* user, commsched_stream_t stream, double* values,
                        double value, uint64_t count) {
  return CudaPlace::Of(user).Launch<kernels::Fill>(stream,
                                                   {values, value, count});
}

commsched_status_t Copy(void* user, commsched_stream_t stream, void* into,
                        const void* from, uint64_t bytes) {
  const CudaPlace& place = CudaPlace::Of(user);
  return place.On(stream, "cudaMemcpyAsync", [&](cudaStream_t native) {
    return place.api().MemcpyAsync(into, from, bytes, cudaMemcpyDefault,
                                   native);
  });
}

commsched_status_t Synchronize(void* user, commsched_stream_t stream) {
  const CudaPlace& place = CudaPlace::Of(user);
  return place.On(stream, "cudaStreamSynchronize", [&](cudaStream_t native) {
    return place.api().StreamSynchronize(native);
  });
}

// ---- Memory -----------------------------------------------------------------

commsched_status_t Allocate(void* user, uint64_t bytes, void** out_address) {
  const CudaPlace& place = CudaPlace::Of(user);
  return place.Do("cuMemAlloc", [&] {
    return place.api().driver.Allocate(bytes, out_address);
  });
}

void Release(void* user, void* address, uint64_t /*bytes*/) {
  const CudaPlace& place = CudaPlace::Of(user);
  (void)place.Do("cuMemFree", [&] { return place.api().driver.Free(address); });
}

commsched_status_t AllocateHost(void* user, uint64_t bytes,
                                void** out_address) {
  const CudaPlace& place = CudaPlace::Of(user);
  return place.Do("cuMemHostAlloc", [&] {
    return place.api().driver.AllocateHost(bytes, out_address);
  });
}

void ReleaseHost(void* user, void* address, uint64_t /*bytes*/) {
  const CudaPlace& place = CudaPlace::Of(user);
  (void)place.Do("cuMemFreeHost",
                 [&] { return place.api().driver.FreeHost(address); });
}

}  // namespace

Status CudaTables(int32_t device, DeviceTables* out_tables) {
  static std::mutex mutex;
  static auto* const places = new std::map<int32_t, CudaPlace*>;
  const std::lock_guard<std::mutex> lock(mutex);
  CudaPlace*& place = (*places)[device];
  if (place == nullptr) {
    auto made = std::make_unique<CudaPlace>();
    const std::string why = made->Load(device);
    if (!why.empty()) {
      return Status(COMMSCHED_UNAVAILABLE,
                    "engine: no kernels for CUDA device " +
                        std::to_string(device) + ": " + why);
    }
    place = made.release();
  }
  out_tables->kernels = {.struct_size = sizeof(commsched_engine_kernels_t),
                         .user = place,
                         .adamw = Adamw,
                         .block_squares = BlockSquares,
                         .zero = Zero,
                         .add = Add,
                         .sgd = Sgd,
                         .convert = Convert,
                         .sum_runs = SumRuns,
                         .decide = Decide,
                         .fill = Fill,
                         .copy = Copy,
                         .synchronize = Synchronize};
  out_tables->memory = {.struct_size = sizeof(commsched_engine_memory_t),
                        .user = place,
                        .allocate = Allocate,
                        .release = Release,
                        .allocate_host = AllocateHost,
                        .release_host = ReleaseHost};
  return Status();
}

}  // namespace commsched::engine
