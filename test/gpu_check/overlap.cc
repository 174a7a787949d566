// What of the time of copies and reductions is hidden beside matrix products.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "test/gpu_check/gpu_check.h"
#include "test/gpu_check/job.h"
#include "test/gpu_check/launcher.h"

namespace commsched::gpu_check {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr uint32_t kMostTimes = 10'000;
constexpr double kMostOfSerial = 1.05;  // Of a clock that is not steady.

// Products of matrices of device 0, on a stream.
class Products {
 public:
  ~Products() {
    if (stream_ != nullptr) cuda_->StreamDestroy(stream_);
    if (memory_ != nullptr) (void)cuda_->driver.Free(memory_);
  }
  absl::Status Make(uint32_t n) {
    ASSIGN_OR_RETURN(cuda_, CudaRuntime::Get());
    ASSIGN_OR_RETURN(launcher_, Launcher::Get());
    const uint64_t bytes = uint64_t{n} * n * sizeof(float);
    RETURN_IF_ERROR(cuda_->Check("cudaSetDevice", cuda_->SetDevice(0)));
    RETURN_IF_ERROR(cuda_->Check("cuMemAlloc",
                                 cuda_->driver.Allocate(3 * bytes, &memory_)));
    RETURN_IF_ERROR(
        cuda_->Check("cudaMemset", cuda_->Memset(memory_, 0, 3 * bytes)));
    auto* const values = static_cast<float*>(memory_);
    args_ = {values, values + uint64_t{n} * n, values + 2 * uint64_t{n} * n, n,
             /*times=*/1};
    return cuda_->Check(
        "cudaStreamCreateWithPriority",
        cuda_->StreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0));
  }

  absl::Status Enqueue(cudaStream_t stream) const {
    return launcher_->Launch<Multiply>(0, args_, stream);
  }

  // How long `num_products` take, with nothing beside them.
  absl::StatusOr<double> Alone(int num_products) const {
    double least = 0;
    for (int round = 0; round < 4; ++round) {  // The first warms up.
      const auto begin = SteadyClock::now();
      for (int i = 0; i < num_products; ++i) RETURN_IF_ERROR(Enqueue(stream_));
      RETURN_IF_ERROR(cuda_->Check("cudaStreamSynchronize",
                                   cuda_->StreamSynchronize(stream_)));
      const std::chrono::duration<double> took = SteadyClock::now() - begin;
      if (round != 0 && (least == 0 || took.count() < least)) {
        least = took.count();
      }
    }
    return least;
  }

  // Has a product take about `seconds`.
  absl::Status Fit(double seconds) {
    ASSIGN_OR_RETURN(const double once, Alone(8));
    const double times = std::round(seconds / (once / 8));
    args_.times = static_cast<uint32_t>(
        std::clamp(times, 1.0, static_cast<double>(kMostTimes)));
    return absl::OkStatus();
  }

 private:
  const CudaRuntime* cuda_ = nullptr;
  const Launcher* launcher_ = nullptr;
  cudaStream_t stream_ = nullptr;
  void* memory_ = nullptr;
  MultiplyArgs args_ = {};
};

absl::StatusOr<double> StepSeconds(const StepShape& shape,
                                   const PlanOptions& plan, uint64_t steps,
                                   const Products* products) {
  Job job(shape);
  RETURN_IF_ERROR(job.Make(plan));
  RunSpec spec = {.warm_up = 2, .steps = steps, .moves_data = false};
  if (products != nullptr) {
    spec.work = [products](int /*device*/, cudaStream_t stream) {
      return products->Enqueue(stream);
    };
  }
  Times times;
  RETURN_IF_ERROR(job.Run(spec, &times));
  return times.step_s;
}

// One rank: a gather is a copy on the device, and a sum in the tree's order a
// copy and a kernel of ours.
absl::Status CheckBeside(const Options& options, StepShape shape,
                         PlanOptions plan, std::string* figures) {
  const uint64_t steps = options.quick ? 2 : 20;
  Products products;
  RETURN_IF_ERROR(products.Make(options.quick ? 16 : 512));
  ASSIGN_OR_RETURN(const double alone,
                   StepSeconds(shape, plan, steps, nullptr));
  // A fifth more than what is to be hidden.
  RETURN_IF_ERROR(products.Fit(1.2 * alone / shape.buckets));
  ASSIGN_OR_RETURN(const double compute, products.Alone(shape.buckets));
  plan.schedule = Schedule::kSerial;
  ASSIGN_OR_RETURN(const double serial,
                   StepSeconds(shape, plan, steps, &products));
  plan.schedule = Schedule::kOverlap;
  ASSIGN_OR_RETURN(const double overall,
                   StepSeconds(shape, plan, steps, &products));
  // The formula of the OSU microbenchmarks.
  const double hidden = std::max(0.0, 100 - 100 * (overall - compute) / alone);
  *figures = absl::StrFormat(
      "products %.2f ms, communication %.2f ms; serial %.2f ms, planned %.2f "
      "ms: %.2f x, overlap %.0f %% (1 rank: copies)",
      compute * 1e3, alone * 1e3, serial * 1e3, overall * 1e3, serial / overall,
      hidden);
  ASSIGN_OR_RETURN(const Launcher* launcher, Launcher::Get());
  if (launcher->on_stand_ins() || overall <= kMostOfSerial * serial) {
    return absl::OkStatus();
  }
  return absl::InternalError("the planned step is slower than the serial one");
}

}  // namespace

void CheckOverlap(const Options& options, Results* results) {
  StepShape shape;
  shape.buckets = 16;
  shape.elements = options.quick ? 1 << 10 : uint64_t{16} << 20;
  shape.kind = CollectiveKind::kAllGather;
  std::string figures;
  absl::Status status = CheckBeside(options, shape, {}, &figures);
  results->Add("copies beside matrix products", status, figures);
  shape.kind = CollectiveKind::kAllReduce;
  PlanOptions in_rank_order;
  in_rank_order.deterministic = true;
  figures.clear();
  status = CheckBeside(options, shape, in_rank_order, &figures);
  results->Add("reductions beside matrix products", status, figures);
}

}  // namespace commsched::gpu_check
