// Steps that are launches of a CUDA graph, beside steps that are enqueued.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "device/cuda_device.h"
#include "test/gpu_check/gpu_check.h"
#include "test/gpu_check/job.h"

namespace commsched::gpu_check {
namespace {

using Bits = std::vector<uint32_t>;

// Sums of up to 8 ranks stay exact for the 6 steps of a run, in whatever order
// NCCL adds.
constexpr uint64_t kSumSteps = 3;
constexpr uint64_t kGatherSteps = 40;
constexpr uint64_t kSmallLaunches = 100;

absl::Status CheckEqual(const Bits& captured, const Bits& plain) {
  for (size_t i = 0; i < plain.size(); ++i) {
    if (captured[i] == plain[i]) continue;
    return absl::InternalError(absl::StrCat(
        "value ", i, " of ", plain.size(), " in the memory of all ranks is ",
        std::bit_cast<float>(captured[i]), " after launches of a graph, but ",
        std::bit_cast<float>(plain[i]), " after plain steps"));
  }
  return absl::OkStatus();
}

// Launches of a graph between plain steps leave the memory that as many plain
// steps leave, bit for bit.
absl::Status RunAndCompare(StepShape shape, const PlanOptions& options,
                           std::string* figures) {
  shape.feeds_back = true;
  const uint64_t steps =
      shape.kind == CollectiveKind::kAllGather ? kGatherSteps : kSumSteps;
  Job job(shape);
  RETURN_IF_ERROR(job.Make(options));
  ASSIGN_OR_RETURN(const Bits before, job.ReadMemory());
  RunSpec spec = {.warm_up = 1, .steps = steps, .plain_around = 1};
  Times times;
  RETURN_IF_ERROR(job.Run(spec, &times));
  ASSIGN_OR_RETURN(const Bits plain, job.ReadMemory());
  if (plain == before) {
    return absl::InternalError("plain steps have left the memory as it was");
  }
  RETURN_IF_ERROR(job.Reset());
  spec.captured = true;
  RETURN_IF_ERROR(job.Run(spec, &times));
  ASSIGN_OR_RETURN(const Bits captured, job.ReadMemory());
  *figures = absl::StrFormat("%s, %d launches as one, %d times",
                             RanksText(shape.ranks), job.num_launches(), steps);
  return CheckEqual(captured, plain);
}

// Of one rank, whose collectives move nothing between devices.
absl::Status CompareTimes(const Options& options, std::string* figures) {
  Job job({.ranks = 1, .buckets = kSmallLaunches, .elements = 1024});
  RETURN_IF_ERROR(job.Make(PlanOptions{}));
  RunSpec spec = {.warm_up = 5,
                  .steps = options.quick ? 10u : 200u,
                  .moves_data = false,
                  .drains_each_step = true};
  Times plain;
  RETURN_IF_ERROR(job.Run(spec, &plain));
  spec.captured = true;
  Times captured;
  RETURN_IF_ERROR(job.Run(spec, &captured));
  const double plain_us = Median(plain.enqueue_s) * 1e6;
  const double captured_us = Median(captured.enqueue_s) * 1e6;
  const auto launches = static_cast<double>(job.num_launches());
  *figures = absl::StrFormat(
      "host: graph %.2f us, plain step %.2f us, %.2f us for each of %d "
      "launches: %.1f x; until done: %.2f us, %.2f us",
      captured_us, plain_us, plain_us / launches, job.num_launches(),
      plain_us / captured_us, captured.step_s * 1e6, plain.step_s * 1e6);
  return absl::OkStatus();
}

}  // namespace

void CheckCapture(const Options& options, Results* results) {
  const auto devices = NumCudaDevices();
  if (!devices.ok()) return results->Add("capture", devices.status());
  StepShape shape;
  if (options.quick) shape.elements = 1 << 12;
  const auto run = [&](const char* name, const PlanOptions& plan) {
    std::string figures;
    const absl::Status status = RunAndCompare(shape, plan, &figures);
    results->Add(absl::StrCat("captured ", name, " end as plain ones"), status,
                 figures);
  };
  run("all-reduces of one rank", {});
  shape.ranks = std::min(*devices, options.max_ranks);
  if (shape.ranks > 1) run("all-reduces", {});
  PlanOptions plan;
  plan.coalesce_bytes = shape.elements * sizeof(float) * 4;
  run("coalesced all-reduces", plan);
  plan.deterministic = true;
  run("all-reduces in the tree's order", plan);
  plan = {};
  plan.num_comm_lanes = 2;
  plan.max_launches_in_flight = 2;
  run("all-reduces on two lanes", plan);
  shape.kind = CollectiveKind::kAllGather;
  run("all-gathers", {});
  std::string figures;
  const absl::Status status = CompareTimes(options, &figures);
  results->Add("a captured step is one launch", status, figures);
}

}  // namespace commsched::gpu_check
