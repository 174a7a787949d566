// Worlds and sessions that share a device. What is launched on lanes of their
// own needs no order between ranks, and what one launches in the middle of
// another's step does not hold that up.
#include "test/gpu_check/lanes.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "device/cuda_device.h"
#include "test/gpu_check/child.h"
#include "test/gpu_check/gpu_check.h"
#include "test/gpu_check/job.h"
#include "test/gpu_check/launcher.h"
#include "test/gpu_check/processes.h"
#include "test/support/rank_group.h"

namespace commsched::gpu_check {
namespace {

constexpr int kRanks = kProcesses;
constexpr int kSteps = 12;
constexpr int64_t kSplitNs = int64_t{30} * 1000 * 1000 * 1000;

using StepsOf = std::unique_ptr<Job::Steps>;

StepShape ShapeOn(const char* axis, uint64_t instance) {
  return {.ranks = kRanks,
          .buckets = 4,
          .elements = 1 << 12,
          .axis = axis,
          .first_instance = instance};
}

// A job of a world, whose sessions there have numbers from `instance` on.
struct Pair {
  Pair(const char* axis, uint64_t instance) : job(ShapeOn(axis, instance)) {}
  explicit Pair(const StepShape& shape) : job(shape) {}

  absl::Status Make(const std::shared_ptr<World>& world, int rank,
                    const PlanOptions& options = {}) {
    RETURN_IF_ERROR(job.MakeRank(options, world, rank));
    ASSIGN_OR_RETURN(steps, job.Open());
    return absl::OkStatus();
  }
  absl::Status End() {
    RETURN_IF_ERROR(steps->Drain());
    return job.CheckResults();
  }

  Job job;
  StepsOf steps;
};

absl::StatusOr<std::shared_ptr<World>> Split(
    const std::shared_ptr<World>& world, int rank, const char* name) {
  return world->Split(rank, {0, 1}, name, kSplitNs);
}

// One rank enqueues a step of `a` first, the other one of `b`; at the end three
// of each, which is as far as a host may be ahead.
absl::Status InOppositeOrders(Pair* a, Pair* b, int rank) {
  Pair* const first = rank == 0 ? a : b;
  Pair* const second = rank == 0 ? b : a;
  for (int i = 0; i < kSteps; ++i) {
    RETURN_IF_ERROR(first->steps->Enqueue());
    RETURN_IF_ERROR(second->steps->Enqueue());
  }
  RETURN_IF_ERROR(first->steps->Drain());
  RETURN_IF_ERROR(second->steps->Drain());
  for (Pair* each : {first, second}) {
    for (int i = 0; i < 3; ++i) RETURN_IF_ERROR(each->steps->Enqueue());
  }
  RETURN_IF_ERROR(a->End());
  return b->End();
}

absl::Status TwoWorlds(const std::shared_ptr<World>& world, int rank) {
  ASSIGN_OR_RETURN(const auto of_a, Split(world, rank, "a"));
  ASSIGN_OR_RETURN(const auto of_b, Split(world, rank, "b"));
  Pair a("dp", 0);
  Pair b("dp", 0);
  RETURN_IF_ERROR(a.Make(of_a, rank));
  RETURN_IF_ERROR(b.Make(of_b, rank));
  return InOppositeOrders(&a, &b, rank);
}

absl::Status TwoAxes(const std::shared_ptr<World>& world, int rank) {
  ASSIGN_OR_RETURN(const auto both, Split(world, rank, "axes"));
  Pair a("dp", 0);
  Pair b("tp", 1);
  RETURN_IF_ERROR(a.Make(both, rank));
  RETURN_IF_ERROR(b.Make(both, rank));
  return InOppositeOrders(&a, &b, rank);
}

// As a synchronised batch norm does within a backward pass: the host waits for
// a step of `inner` behind each op of a step of `outer`.
absl::Status InTheMiddle(const std::shared_ptr<World>& world, int rank,
                         const char* inner_axis) {
  ASSIGN_OR_RETURN(const auto both, Split(world, rank, inner_axis));
  Pair outer("dp", 0);
  Pair inner(inner_axis, 1);
  RETURN_IF_ERROR(outer.Make(both, rank));
  RETURN_IF_ERROR(inner.Make(both, rank));
  for (int i = 0; i < kSteps; ++i) {
    RETURN_IF_ERROR(outer.steps->Enqueue([&]() -> absl::Status {
      RETURN_IF_ERROR(inner.steps->Enqueue());
      return inner.steps->Drain();
    }));
  }
  RETURN_IF_ERROR(outer.End());
  return inner.End();
}

// Rank 1 enqueues its first step once rank 0 has enqueued one: were something
// left to connect, rank 0 would wait in a launch. `out_ms`: how long it took.
absl::Status AFirstStepAlone(const std::shared_ptr<World>& world, int rank,
                             const StepShape& shape, const PlanOptions& options,
                             double* out_ms) {
  const std::string name = absl::StrCat(
      "first step ", static_cast<int>(shape.kind), " ", shape.elements, " ",
      options.deterministic ? "in order" : "");
  ASSIGN_OR_RETURN(const auto own, Split(world, rank, name.c_str()));
  Pair pair(shape);
  RETURN_IF_ERROR(pair.Make(own, rank, options));
  const auto meet = [&] {
    return own->meeting()->AllGather(name, rank, "", kSplitNs).status();
  };
  if (rank != 0) RETURN_IF_ERROR(meet());
  const auto begin = std::chrono::steady_clock::now();
  RETURN_IF_ERROR(pair.steps->Enqueue());
  *out_ms = std::max(*out_ms, std::chrono::duration<double, std::milli>(
                                  std::chrono::steady_clock::now() - begin)
                                  .count());
  if (rank == 0) RETURN_IF_ERROR(meet());
  return pair.End();
}

absl::Status FirstSteps(const std::shared_ptr<World>& world, int rank,
                        std::string* figures) {
  double most_ms = 0;
  StepShape shape = ShapeOn("dp", 0);
  for (const uint64_t elements : {uint64_t{1} << 8, uint64_t{1} << 20}) {
    shape.elements = elements;
    for (const auto kind :
         {CollectiveKind::kAllReduce, CollectiveKind::kAllGather}) {
      shape.kind = kind;
      RETURN_IF_ERROR(AFirstStepAlone(world, rank, shape, {}, &most_ms));
    }
    shape.kind = CollectiveKind::kAllReduce;
    PlanOptions in_order;
    in_order.deterministic = true;
    RETURN_IF_ERROR(AFirstStepAlone(world, rank, shape, in_order, &most_ms));
  }
  *figures = absl::StrFormat("6 sessions, at most %.2f ms to enqueue", most_ms);
  return absl::OkStatus();
}

// Rank 0 has launches of a step under way, for which rank 1 aborts its session.
absl::Status AnAbortBeside(const std::shared_ptr<World>& world, int rank) {
  ASSIGN_OR_RETURN(const auto of_failed, Split(world, rank, "failed"));
  ASSIGN_OR_RETURN(const auto of_healthy, Split(world, rank, "healthy"));
  Pair failed("dp", 0);
  Pair healthy("dp", 0);
  RETURN_IF_ERROR(failed.Make(of_failed, rank));
  RETURN_IF_ERROR(healthy.Make(of_healthy, rank));
  RETURN_IF_ERROR(failed.steps->Enqueue());
  RETURN_IF_ERROR(healthy.steps->Enqueue());
  RETURN_IF_ERROR(failed.End());
  // Else rank 0 may still be draining when rank 1 aborts.
  RETURN_IF_ERROR(of_healthy->meeting()
                      ->AllGather("before the abort", rank, "", kSplitNs)
                      .status());
  if (rank == 0) {
    const absl::Status launched = failed.steps->Enqueue();
    if (!launched.ok() && !absl::IsAborted(launched)) return launched;
  } else {
    failed.steps->session()->Abort("enough");
  }
  for (int i = 0; i < kSteps; ++i) {
    RETURN_IF_ERROR(healthy.steps->Enqueue());
  }
  RETURN_IF_ERROR(healthy.End());
  while (failed.steps->session()->status().ok()) std::this_thread::yield();
  const absl::Status status = failed.steps->session()->status();
  if (absl::IsAborted(status)) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the session of the other world says: ", status.ToString()));
}

}  // namespace

std::vector<Result> LanesOf(const std::shared_ptr<World>& world, int rank) {
  std::vector<Result> results;
  // After a failure the ranks are no longer at one.
  const auto run = [&](const char* check, const char* figures,
                       const auto& body) {
    if (!results.empty() && !results.back().status.ok()) return;
    absl::Status status = body();
    const bool holds = status.ok();
    results.push_back({check, std::move(status), holds ? figures : ""});
  };
  std::string figures;
  absl::Status first = FirstSteps(world, rank, &figures);
  results.push_back({"the host waits for no other rank in a first step",
                     std::move(first), figures});
  run("two worlds in opposite orders", "15 steps of each",
      [&] { return TwoWorlds(world, rank); });
  run("two axes of a world in opposite orders", "15 steps of each",
      [&] { return TwoAxes(world, rank); });
  run("a session launches in the middle of another's step, on its lane",
      "12 steps, 60 within", [&] { return InTheMiddle(world, rank, "dp"); });
  run("the same on a lane of its own", "12 steps, 60 within",
      [&] { return InTheMiddle(world, rank, "tp"); });
  run("the abort of a world leaves another alone", "12 steps after it",
      [&] { return AnAbortBeside(world, rank); });
  return results;
}

namespace {

// A rank per device, as threads.
std::vector<ChildEnd> RunOnTwoDevices(const OfTwoRanks& body) {
  std::vector<ChildEnd> ends(kRanks);
  const auto make_world = []() -> absl::StatusOr<std::shared_ptr<World>> {
    WorldSpec spec;
    spec.size = kRanks;
    ASSIGN_OR_RETURN(spec.table, Nccl());
    for (int rank = 0; rank < kRanks; ++rank) {
      ASSIGN_OR_RETURN(std::shared_ptr<Device> device, OpenCudaDevice(rank));
      spec.devices.push_back(std::move(device));
    }
    return World::Create(spec);
  };
  const auto world = make_world();
  if (!world.ok()) {
    ends[0].status = world.status();
    return ends;
  }
  (void)RunRanks(kRanks, [&](int rank) {
    ends[static_cast<size_t>(rank)].results = body(*world, rank);
    return absl::OkStatus();
  });
  return ends;
}

}  // namespace

void CheckTwoRanks(const Options& options, const std::string& task,
                   const OfTwoRanks& body, Results* results) {
  const auto launcher = Launcher::Get();
  if (!launcher.ok()) return results->Add(task, launcher.status());
  if ((*launcher)->num_devices() >= kRanks && options.max_ranks >= kRanks) {
    Merge(RunOnTwoDevices(body), "2 devices: ", results);
  }
  if ((*launcher)->on_stand_ins()) {
    return results->Skip("processes that share a device",
                         "the ranks of the stand-in are threads");
  }
  Merge(
      RunProcesses(Beside("gpu_check", {"--member", task}), HostsOnOneDevice()),
      "2 processes, 1 device: ", results);
}

void CheckLanes(const Options& options, Results* results) {
  CheckTwoRanks(options, "lanes", LanesOf, results);
}

}  // namespace commsched::gpu_check
