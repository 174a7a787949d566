#include "device/cuda_device.h"

#include <utility>

#include "absl/base/optimization.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "device/cuda_event.h"
#include "device/cuda_runtime.h"
#include "device/device_counters.h"

namespace commsched {
namespace {

// The caller's stream, or one of our own.
class CudaStream final : public Stream {
 public:
  CudaStream(std::shared_ptr<CudaPlace> place, cudaStream_t native, bool owned)
      : place_(std::move(place)), native_(native), owned_(owned) {}
  ~CudaStream() override {
    if (!owned_) return;
    const CudaPlace::Current current(place_.get());
    place_->Check("cudaStreamDestroy", place_->cuda().StreamDestroy(native_));
  }

  void Wait(Event* event, uint64_t generation) override {
    void* const native = event->ToWaitFor(generation);
    if (native == nullptr) {
      if (!event->IsOrdered(generation) && !place_->failed()) {
        place_->Fail(absl::InternalError(
            "a stream was to wait for an event that is not of its device"));
      }
      return;
    }
    Check("cudaStreamWaitEvent", [&] {
      return place_->cuda().StreamWaitEvent(
          native_, static_cast<cudaEvent_t>(native), 0);
    });
  }

  void Record(Event* event, uint64_t generation) override {
    void* const native = event->ToRecord(generation);
    if (native == nullptr) {
      place_->Fail(absl::InternalError(
          "a stream was to record an event that is not of its device"));
      return;
    }
    Check("cudaEventRecord", [&] {
      return place_->cuda().EventRecord(static_cast<cudaEvent_t>(native),
                                        native_);
    });
    event->Recorded(generation);
  }

  // Another thread may capture in the global mode, which what this one waits
  // for is not to break.
  void Synchronize() override {
    const CudaPlace::Unrestricted unrestricted(place_.get());
    Check("cudaStreamSynchronize",
          [&] { return place_->cuda().StreamSynchronize(native_); });
  }

  bool is_caller() const override { return false; }
  bool is_device() const override { return true; }

  bool is_legacy() const override {
    return native_ == nullptr || native_ == cudaStreamLegacy;
  }

  void Copy(const RowCopy& copy) override {
    if (copy.row_bytes == 0 || copy.rows == 0) return;
    if (copy.rows == 1) {
      Check("cudaMemcpyAsync", [&] {
        return place_->cuda().MemcpyAsync(copy.to, copy.from, copy.row_bytes,
                                          cudaMemcpyDefault, native_);
      });
      return;
    }
    Check("cudaMemcpy2DAsync", [&] {
      return place_->cuda().Memcpy2DAsync(
          copy.to, copy.to_stride, copy.from, copy.from_stride, copy.row_bytes,
          copy.rows, cudaMemcpyDefault, native_);
    });
  }

  void Zero(void* to, uint64_t bytes) override {
    if (bytes == 0) return;
    Check("cudaMemsetAsync",
          [&] { return place_->cuda().MemsetAsync(to, 0, bytes, native_); });
  }

  // The value is part of the call: no memory of the host has to last.
  void Store(int32_t* to, int32_t value) override {
    const kernels::CudaDriver& driver = place_->cuda().driver;
    Check("cuMemsetD32Async", [&] {
      return driver.InContext([&] {
        return driver.MemsetD32Async(reinterpret_cast<CUdeviceptr>(to),
                                     static_cast<unsigned>(value), 1, native_);
      });
    });
  }

  commsched_stream_t handle() const override {
    return {COMMSCHED_STREAM_CUDA, 0, native_};
  }

  // The legacy stream cannot be captured, and asking it may fail for other
  // streams that are.
  absl::StatusOr<uint64_t> CaptureId() override {
    if (is_legacy()) return 0;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    const kernels::CudaDriver& driver = place_->cuda().driver;
    // What comes after the id is not asked for.
    const CUresult code = driver.InContext([&] {
      return driver.StreamGetCaptureInfo(native_, &status, &id, nullptr,
                                         nullptr, nullptr);
    });
    RETURN_IF_ERROR(place_->StatusOf("cuStreamGetCaptureInfo", code));
    if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) {
      return place_->StatusOf("cuStreamGetCaptureInfo",
                              CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    return status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? id : 0;
  }

  absl::StatusOr<bool> IsCapturing() override {
    if (is_legacy()) return false;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    RETURN_IF_ERROR(
        place_->StatusOf("cudaStreamIsCapturing",
                         place_->cuda().StreamIsCapturing(native_, &status)));
    return status != cudaStreamCaptureStatusNone;
  }

  void WaitInCapture(Event* event) override {
    const auto native = static_cast<cudaEvent_t>(event->InCapture());
    Check("cudaStreamWaitEvent",
          [&] { return place_->cuda().StreamWaitEvent(native_, native, 0); });
  }

  void RecordInCapture(Event* event) override {
    const CudaRuntime& cuda = place_->cuda();
    Check("cudaEventRecord", [&] {
      return cuda.EventRecord(static_cast<cudaEvent_t>(event->InCapture()),
                              native_);
    });
    if (event->InGraph() == nullptr) return;
    Check("cudaEventRecordWithFlags", [&] {
      return cuda.EventRecordWithFlags(
          static_cast<cudaEvent_t>(event->InGraph()), native_,
          cudaEventRecordExternal);
    });
  }

 private:
  // A stream says which device it is of; the legacy one is the current
  // device's.
  template <typename Call>
  void Check(const char* name, const Call& call) {
    if (ABSL_PREDICT_TRUE(!is_legacy())) {
      place_->Check(name, call());
      return;
    }
    const CudaPlace::Current current(place_.get());
    place_->Check(name, call());
  }

  const std::shared_ptr<CudaPlace> place_;
  const cudaStream_t native_;
  const bool owned_;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(std::shared_ptr<CudaPlace> place)
      : place_(std::move(place)) {}

  commsched_device_kind_t kind() const override {
    return COMMSCHED_DEVICE_CUDA;
  }
  int ordinal() const override { return place_->ordinal(); }
  std::string name() const override {
    return absl::StrCat("CUDA device ", place_->ordinal());
  }

  // Whoever cannot ask does not know.
  int num_multiprocessors() const override {
    int found = 0;
    const CUresult code =
        place_->cuda().driver.NumMultiprocessors(place_->ordinal(), &found);
    return code == CUDA_SUCCESS ? found : 0;
  }

  absl::StatusOr<std::unique_ptr<Event>> CreateEvent(uint32_t depth) override {
    return CudaEvent::Create(place_, depth);
  }

  absl::StatusOr<std::unique_ptr<Stream>> CreateSideStream() override {
    const CudaPlace::Current current(place_.get());
    const CudaRuntime& cuda = place_->cuda();
    int least = 0;
    int greatest = 0;
    RETURN_IF_ERROR(
        cuda.Check("cudaDeviceGetStreamPriorityRange",
                   cuda.DeviceGetStreamPriorityRange(&least, &greatest)));
    cudaStream_t native = nullptr;
    RETURN_IF_ERROR(cuda.Check("cudaStreamCreateWithPriority",
                               cuda.StreamCreateWithPriority(
                                   &native, cudaStreamNonBlocking, greatest)));
    GlobalDeviceCounters().streams_created.fetch_add(1,
                                                     std::memory_order_relaxed);
    return std::unique_ptr<Stream>(
        std::make_unique<CudaStream>(place_, native, /*owned=*/true));
  }

  // The per-thread default stream is another one for each thread that names it,
  // ours included, so that nothing would be in order.
  absl::StatusOr<Stream*> Adopt(void* native) override {
    if (native == cudaStreamPerThread) {
      return absl::InvalidArgumentError(
          absl::StrCat(name(),
                       ": cudaStreamPerThread (0x2) is another stream on each "
                       "thread; give a stream that was created"));
    }
    MutexLock lock(&mu_);
    std::unique_ptr<CudaStream>& adopted = adopted_[native];
    if (adopted == nullptr) {
      adopted = std::make_unique<CudaStream>(
          place_, static_cast<cudaStream_t>(native), /*owned=*/false);
    }
    return adopted.get();
  }

  absl::StatusOr<void*> Allocate(uint64_t bytes) override {
    const CudaPlace::Current current(place_.get());
    const CudaPlace::Unrestricted unrestricted(place_.get());
    const CudaRuntime& cuda = place_->cuda();
    void* address = nullptr;
    const absl::Status status =
        cuda.Check("cuMemAlloc", cuda.driver.Allocate(bytes, &address));
    if (status.ok()) return address;
    return absl::Status(status.code(),
                        absl::StrCat(name(), ": cannot allocate ", bytes,
                                     " bytes: ", status.message()));
  }

  void Free(void* address) override {
    const CudaPlace::Current current(place_.get());
    const CudaPlace::Unrestricted unrestricted(place_.get());
    place_->Check("cuMemFree", place_->cuda().driver.Free(address));
  }

  absl::StatusOr<void*> AllocateOnHost(uint64_t bytes) override {
    const CudaPlace::Current current(place_.get());
    const CudaPlace::Unrestricted unrestricted(place_.get());
    const CudaRuntime& cuda = place_->cuda();
    void* address = nullptr;
    const absl::Status status =
        cuda.Check("cuMemHostAlloc", cuda.driver.AllocateHost(bytes, &address));
    if (status.ok()) return address;
    return absl::Status(status.code(),
                        absl::StrCat(name(), ": cannot allocate ", bytes,
                                     " bytes of pinned memory of the host: ",
                                     status.message()));
  }

  void FreeOnHost(void* address) override {
    const CudaPlace::Current current(place_.get());
    const CudaPlace::Unrestricted unrestricted(place_.get());
    place_->Check("cuMemFreeHost", place_->cuda().driver.FreeHost(address));
  }

  absl::Status Fill(void* to, int value, uint64_t bytes) override {
    if (bytes == 0) return absl::OkStatus();
    const CudaPlace::Current current(place_.get());
    const CudaPlace::Unrestricted unrestricted(place_.get());
    const CudaRuntime& cuda = place_->cuda();
    RETURN_IF_ERROR(cuda.Check("cudaMemset", cuda.Memset(to, value, bytes)));
    return cuda.Check("cudaStreamSynchronize", cuda.StreamSynchronize(nullptr));
  }

  absl::Status CheckHere(const void* address) override {
    const CudaPlace::Current current(place_.get());
    const CudaRuntime& cuda = place_->cuda();
    unsigned type = 0;
    unsigned is_managed = 0;
    int ordinal = 0;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void* data[] = {&type, &is_managed, &ordinal};
    RETURN_IF_ERROR(
        cuda.Check("cuPointerGetAttributes", cuda.driver.InContext([&] {
          return cuda.driver.PointerGetAttributes(
              3, attributes, data, reinterpret_cast<CUdeviceptr>(address));
        })));
    const bool of_device = type == CU_MEMORYTYPE_DEVICE && is_managed == 0;
    if (is_managed != 0 || (of_device && ordinal == place_->ordinal())) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("is not memory of ", name(),
                     of_device ? absl::StrCat(" but of device ", ordinal)
                               : " but of the host"));
  }

  // A framework may capture what it enqueues: what this thread calls must not
  // break that.
  void EnterMonitor() override {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
    place_->Check("cudaThreadExchangeStreamCaptureMode",
                  place_->cuda().ThreadExchangeStreamCaptureMode(&mode));
    place_->Check("cudaSetDevice", place_->cuda().SetDevice(place_->ordinal()));
  }

  bool failed() const override { return place_->failed(); }
  absl::Status status() const override { return place_->status(); }

 private:
  const std::shared_ptr<CudaPlace> place_;
  Mutex mu_;
  absl::flat_hash_map<void*, std::unique_ptr<CudaStream>> adopted_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::shared_ptr<Device>> OpenCudaDevice(int ordinal) {
  ASSIGN_OR_RETURN(const CudaRuntime* cuda, CudaRuntime::Get());
  if (ordinal < 0 || ordinal >= cuda->num_devices) {
    return absl::UnavailableError(absl::StrCat("there is no CUDA device ",
                                               ordinal, "; this process sees ",
                                               cuda->num_devices));
  }
  return std::shared_ptr<Device>(
      std::make_shared<CudaDevice>(std::make_shared<CudaPlace>(cuda, ordinal)));
}

absl::StatusOr<int> NumCudaDevices() {
  ASSIGN_OR_RETURN(const CudaRuntime* cuda, CudaRuntime::Get());
  return cuda->num_devices;
}

}  // namespace commsched
