// Of one rank, whose collectives move nothing between devices: what is left is
// what the host and the launches cost.
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "test/gpu_check/by_hand.h"
#include "test/gpu_check/gpu_check.h"
#include "test/gpu_check/job.h"
#include "test/gpu_check/launcher.h"

namespace commsched::gpu_check {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Few enough that no queue of the driver's gets full.
constexpr int kLaunches = 100;
constexpr double kMostOver_us = 1.0;
constexpr double kMostRatio = 1.1;

absl::StatusOr<double> SessionUs(Job& job, int steps) {
  Times times;
  RETURN_IF_ERROR(job.Run({.warm_up = 5,
                           .steps = static_cast<uint64_t>(steps),
                           .moves_data = false,
                           .drains_each_step = true},
                          &times));
  return Median(times.enqueue_s) * 1e6 / kLaunches;
}

absl::StatusOr<double> ByHandUs(StepByHand& by_hand, int steps) {
  std::vector<double> seconds;
  for (int i = 0; i < steps + 5; ++i) {
    const auto begin = SteadyClock::now();
    RETURN_IF_ERROR(by_hand.Enqueue());
    const std::chrono::duration<double> took = SteadyClock::now() - begin;
    if (i >= 5) seconds.push_back(took.count());
    RETURN_IF_ERROR(by_hand.Drain());
  }
  return Median(seconds) * 1e6 / kLaunches;
}

// The medians of rounds that take turns, so that a slower clock is everybody's.
absl::Status CheckLaunchCost(const Options& options, std::string* figures) {
  ASSIGN_OR_RETURN(const CudaRuntime* cuda, CudaRuntime::Get());
  ASSIGN_OR_RETURN(const NcclByHand* nccl, NcclByHand::Get());
  ASSIGN_OR_RETURN(const Launcher* launcher, Launcher::Get());
  constexpr uint64_t kElements = 1024;
  const int steps = options.quick ? 5 : 50;
  StepByHand by_hand(*cuda, *nccl);
  RETURN_IF_ERROR(by_hand.Make(kLaunches, kElements));
  Job job({.ranks = 1, .buckets = kLaunches, .elements = kElements});
  RETURN_IF_ERROR(job.Make(PlanOptions{}));
  if (job.num_launches() != kLaunches) {
    return absl::InternalError(absl::StrCat("the plan has ", job.num_launches(),
                                            " launches, not ", kLaunches));
  }
  std::vector<double> by_hand_us, session_us;
  for (int round = 0; round < (options.quick ? 2 : 5); ++round) {
    ASSIGN_OR_RETURN(const double hand, ByHandUs(by_hand, steps));
    by_hand_us.push_back(hand);
    ASSIGN_OR_RETURN(const double session, SessionUs(job, steps));
    session_us.push_back(session);
  }
  const double hand = Median(by_hand_us);
  const double session = Median(session_us);
  *figures = absl::StrFormat(
      "session %.2f us per launch, by hand %.2f us: %+.2f us, %.2f x (1 rank, "
      "in place: NCCL launches nothing)",
      session, hand, session - hand, session / hand);
  if (launcher->on_stand_ins()) return absl::OkStatus();
  if (session - hand <= kMostOver_us && session <= kMostRatio * hand) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrFormat("more than %.1f us or %.1f x over the calls by hand",
                      kMostOver_us, kMostRatio));
}

struct Small {
  uint64_t launches = 0;
  double step_s = 0;
};

// 1,000 gathers, merged up to `coalesce_bytes`.
absl::Status RunSmall(const Options& options, uint64_t coalesce_bytes,
                      Small* out_small) {
  Job job({.ranks = 1,
           .buckets = options.quick ? 200 : 1000,
           .elements = 1024,
           .kind = CollectiveKind::kAllGather});
  PlanOptions plan;
  plan.coalesce_bytes = coalesce_bytes;
  RETURN_IF_ERROR(job.Make(plan));
  Times times;
  RETURN_IF_ERROR(job.Run({.warm_up = 1, .steps = 1}, &times));
  RETURN_IF_ERROR(job.CheckResults());
  RETURN_IF_ERROR(job.Run(
      {.warm_up = 2, .steps = options.quick ? 3u : 20u, .moves_data = false},
      &times));
  *out_small = {job.num_launches(), times.step_s};
  return absl::OkStatus();
}

absl::Status CheckSmallGathers(const Options& options, std::string* figures) {
  Small many;
  Small few;
  RETURN_IF_ERROR(RunSmall(options, 0, &many));
  RETURN_IF_ERROR(RunSmall(options, uint64_t{1} << 20, &few));
  *figures = absl::StrFormat(
      "%d launches %.2f ms per step, %d launches %.2f ms: %.1f x (1 rank: "
      "copies)",
      many.launches, many.step_s * 1e3, few.launches, few.step_s * 1e3,
      many.step_s / few.step_s);
  if (few.launches * 10 <= many.launches) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      many.launches, " small gathers are still ", few.launches, " launches"));
}

}  // namespace

void CheckCosts(const Options& options, Results* results) {
  std::string figures;
  absl::Status status = CheckLaunchCost(options, &figures);
  results->Add("a launch costs what the calls by hand cost", status, figures);
  figures.clear();
  status = CheckSmallGathers(options, &figures);
  results->Add(absl::StrCat(options.quick ? "200" : "1,000",
                            " small all-gathers are few launches"),
               status, figures);
}

}  // namespace commsched::gpu_check
