#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "device/cuda_device.h"
#include "test/gpu_check/gpu_check.h"
#include "test/gpu_check/job.h"
#include "test/gpu_check/recordings.h"

namespace commsched::gpu_check {
namespace {

absl::Status RunAndCheck(const StepShape& shape, const PlanOptions& options,
                         std::string* figures) {
  Job job(shape);
  RETURN_IF_ERROR(job.Make(options));
  Times times;
  RETURN_IF_ERROR(job.Run({.warm_up = 3, .steps = 20}, &times));
  *figures = absl::StrFormat("%s, %d launches per step, %.2f ms per step",
                             RanksText(shape.ranks), job.num_launches(),
                             times.step_s * 1e3);
  return job.CheckResults();
}

}  // namespace

void CheckSessions(const Options& options, Results* results) {
  const auto devices = NumCudaDevices();
  if (!devices.ok()) return results->Add("sessions", devices.status());
  StepShape shape;
  shape.ranks = std::min(*devices, options.max_ranks);
  if (options.quick) shape.elements = 1 << 12;
  const auto run = [&](const char* name, const PlanOptions& plan) {
    std::string figures;
    const absl::Status status = RunAndCheck(shape, plan, &figures);
    results->Add(name, status, figures);
  };
  PlanOptions plan;
  run("all-reduces", plan);
  plan.coalesce_bytes = shape.elements * sizeof(float) * 4;
  run("coalesced all-reduces", plan);
  plan.deterministic = true;
  run("all-reduces in the tree's order", plan);
  plan = {};
  plan.num_comm_lanes = 2;
  plan.max_launches_in_flight = 2;
  run("all-reduces on two lanes", plan);
  shape.kind = CollectiveKind::kAllGather;
  plan = {};
  plan.coalesce_bytes = shape.elements * sizeof(float) * 64;
  run("coalesced all-gathers", plan);
  CheckRecordings(shape.ranks, results);
}

}  // namespace commsched::gpu_check
