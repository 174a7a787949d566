#include "engine/step_plan/search/arena_search.h"

#include <algorithm>
#include <string>

#include "engine/step_plan/accumulation.h"
#include "engine/step_plan/bucket_buffers.h"
#include "engine/step_plan/search/step_needs.h"

namespace commsched::engine {
namespace {

// For how many passes after its last backward a bucket's gradients are counted
// as alive where no limit is given. With fewer, backward waits for reductions
// on a slow link. With more, stage 3 would take as much memory as stage 2.
constexpr uint32_t kReductionOpsAlone = kReductionPasses;
constexpr uint32_t kReductionOpsBesideGathers = 2;

class Search {
 public:
  Search(const StepSpec& spec, const Model& model, const Layout& layout,
         const std::vector<Pass>& passes, const ArenaLimits& limits,
         const PlanAttempt& attempt)
      : spec_(spec),
        model_(model),
        layout_(layout),
        passes_(passes),
        limits_(limits),
        attempt_(attempt) {}

  // Plans within the limit that was given. Without one, plans within what the
  // passes need, or a little more: what is alive at once need not find places
  // in just as much.
  Status Run() const {
    if (spec_.zero_stage == 3) return PlanGathering();
    const bool shares = spec_.owned_gradients() && limits_.arena_bytes == 0;
    return shares ? PlanWithinNeeds() : attempt_({}, limits_.arena_bytes);
  }

 private:
  // What the passes need with room to gather for the next one, and no more than
  // with half of the gradients. Stays that find no room in it end.
  Status PlanWithinNeeds() const {
    const LiveNeeds needs =
        NeedsOfStep(spec_, layout_, passes_,
                    spec_.zero_stage == 3 ? kReductionOpsBesideGathers
                                          : kReductionOpsAlone);
    const uint64_t least =
        MostOf(NeedsOfStep(spec_, layout_, passes_, /*reduction_ops=*/0));
    const uint64_t most =
        std::max(least, std::min(MostOf(needs), WithHalfOfGradients()));
    const std::vector<Stay> stays =
        PlanStays(needs, most, limits_.prefetch_bytes);
    Status status;
    for (const uint64_t more : {0, 1, 2, 3, 4, 8, 16, 32}) {
      status = attempt_(stays, most + most / 32 * more);
      if (status.code() != COMMSCHED_RESOURCE_EXHAUSTED) return status;
    }
    return attempt_(stays, 0);
  }

  // The most that a pass needs with what is gathered for the next one.
  static uint64_t MostOf(const LiveNeeds& needs) {
    uint64_t most = 0;
    for (uint32_t pass = 0; pass < needs.used.size(); ++pass) {
      most = std::max(most, needs.BytesAt(pass) + needs.NextBytes(pass));
    }
    return most;
  }

  // Bytes of all gathered parameters and half of the gradients.
  uint64_t WithHalfOfGradients() const {
    uint64_t gathered = 0;
    uint64_t gradients = 0;
    for (const Bucket& bucket : layout_.buckets) {
      gradients += ArenaBytes(BuffersOfBucket(spec_, bucket));
      if (!spec_.gathers(bucket)) continue;
      gathered += bucket.count * SizeOf(bucket.dtype);
    }
    return gathered + gradients / 2;
  }

  // What is alive at once within a limit need not find places in memory of that
  // size. Then less stays beside what the passes need, in steps down to
  // nothing.
  Status PlanGathering() const {
    const uint64_t limit = limits_.least();
    if (limit == 0) return PlanWithinNeeds();
    const LiveNeeds needs =
        NeedsOfStep(spec_, layout_, passes_, /*reduction_ops=*/1);
    ENGINE_RETURN_IF_ERROR(CheckLiveLimit(limit));
    Status status;
    for (uint64_t less = 0; less <= 8; ++less) {
      const uint64_t budget = limit - limit / 8 * less;
      status = attempt_(
          PlanStays(needs, less == 8 ? 1 : budget, limits_.prefetch_bytes),
          limit);
      if (status.code() != COMMSCHED_RESOURCE_EXHAUSTED) return status;
    }
    return Status(status.code(), "engine: with " + limits_.NameOfLeast() +
                                     ": " + status.message());
  }

  // Fails with the pass that needs most if that is more than `limit`.
  Status CheckLiveLimit(uint64_t limit) const {
    const LiveNeeds needs =
        NeedsOfStep(spec_, layout_, passes_, /*reduction_ops=*/0);
    size_t largest = 0;
    for (size_t pass = 0; pass < needs.used.size(); ++pass) {
      if (needs.BytesAt(pass) > needs.BytesAt(largest)) largest = pass;
    }
    const uint64_t least = needs.BytesAt(largest);
    if (least <= limit) return Status();
    const Pass& pass = passes_[largest];
    std::string message =
        "engine: " + limits_.NameOfLeast() +
        " is too small: " + (IsBackward(pass.kind) ? "backward" : "forward") +
        " of module '" + model_.modules()[pass.module].name + "' needs " +
        std::to_string(least) + ": " +
        std::to_string(least - needs.other_bytes[largest]) +
        " of gathered parameter buckets and " +
        std::to_string(needs.other_bytes[largest]) + " of gradient buckets";
    const uint64_t accumulated = AccumulatedBytes(spec_, layout_);
    if (accumulated > 0) {
      message += ", of which " + std::to_string(accumulated) +
                 " accumulate over " + std::to_string(spec_.micro_batches) +
                 " micro-batches; accumulate_bytes limits that";
    }
    return Status(COMMSCHED_RESOURCE_EXHAUSTED, message);
  }

  const StepSpec& spec_;
  const Model& model_;
  const Layout& layout_;
  const std::vector<Pass>& passes_;
  const ArenaLimits& limits_;
  const PlanAttempt& attempt_;
};

}  // namespace

std::string ArenaLimits::NameOfLeast() const {
  const bool live = least() == max_live_bytes;
  return std::string(live ? "max_live_bytes " : "plan.arena_bytes ") +
         std::to_string(least());
}

Status SearchArena(const StepSpec& spec, const Model& model,
                   const Layout& layout, const std::vector<Pass>& passes,
                   const ArenaLimits& limits, const PlanAttempt& attempt) {
  return Search(spec, model, layout, passes, limits, attempt).Run();
}

uint64_t AccumulatedBytes(const StepSpec& spec, const Layout& layout) {
  if (spec.micro_batches == 1) return 0;
  uint64_t bytes = 0;
  for (const Bucket& bucket : layout.buckets) {
    if (bucket.reduced_at_once || bucket.frozen) continue;
    const BufferKind sum =
        spec.folds(bucket) ? BufferKind::kAccumulated : BufferKind::kGradients;
    bytes += FindBuffer(BuffersOfBucket(spec, bucket), sum)->bytes();
  }
  return bytes;
}

}  // namespace commsched::engine
