#include "engine/step_plan/arena_search.h"

#include <algorithm>
#include <string>

#include "engine/step_plan/bucket_buffers.h"
#include "engine/step_plan/step_needs.h"

namespace commsched::engine {
namespace {

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
        attempt_(attempt),
        gradient_bytes_(GradientBytes()) {}

  // Gradient buckets of stages 2 and 3 share memory: unless a limit was given,
  // within half of what they would take side by side, three quarters if that is
  // not enough (a large bucket that is alive all the time), and else all of it.
  Status Run() const {
    if (spec_.zero_stage == 3) return PlanGathering();
    if (gradient_bytes_ == 0 || limits_.arena_bytes != 0) {
      return attempt_({}, limits_.arena_bytes);
    }
    return TryAll({}, LimitsBeside(/*parameter_bytes=*/0));
  }

 private:
  // What the plan has to find memory for.
  uint64_t GradientBytes() const {
    uint64_t bytes = 0;
    for (const Bucket& bucket : layout_.buckets) {
      bytes += ArenaBytes(BuffersOfBucket(spec_, bucket));
    }
    return bytes;
  }

  // Without a limit nothing shares memory. That is for buckets which all
  // accumulate as much as memory for all of them, which else is tried first.
  std::vector<uint64_t> LimitsBeside(uint64_t parameter_bytes) const {
    const uint64_t gradients = gradient_bytes_;
    std::vector<uint64_t> limits = {parameter_bytes + gradients / 2,
                                    parameter_bytes + gradients / 4 * 3};
    if (spec_.micro_batches > 1 &&
        AccumulatedBytes(spec_, layout_) < gradients) {
      limits.push_back(parameter_bytes + gradients);
    }
    limits.push_back(0);
    return limits;
  }

  Status TryAll(const std::vector<Stay>& stays,
                const std::vector<uint64_t>& limits) const {
    Status status;
    for (uint64_t limit : limits) {
      status = attempt_(stays, limit);
      if (status.code() != COMMSCHED_RESOURCE_EXHAUSTED) break;
    }
    return status;
  }

  // What is alive at once within a limit need not find places in memory of that
  // size. Then less stays beside what the passes need, in steps down to
  // nothing.
  Status PlanGathering() const {
    const LiveNeeds needs =
        NeedsOfStep(spec_, layout_, passes_, /*reduction_ops=*/1);
    const uint64_t limit = LiveLimit();
    if (limit == 0) {
      uint64_t parameters = 0;
      for (size_t b = 0; b < layout_.buckets.size(); ++b) {
        if (!spec_.gathers(layout_.buckets[b])) continue;
        parameters += needs.bucket_bytes[b];
      }
      return TryAll(PlanStays(needs, 0, limits_.prefetch_bytes),
                    LimitsBeside(parameters));
    }
    ENGINE_RETURN_IF_ERROR(CheckLiveLimit(limit));
    Status status;
    for (uint64_t less = 0; less <= 8; ++less) {
      const uint64_t budget = limit - limit / 8 * less;
      status = attempt_(
          PlanStays(needs, less == 8 ? 1 : budget, limits_.prefetch_bytes),
          limit);
      if (status.code() != COMMSCHED_RESOURCE_EXHAUSTED) return status;
    }
    return Status(status.code(),
                  "engine: with " + NameOf(limit) + ": " + status.message());
  }

  uint64_t LiveLimit() const {
    if (limits_.arena_bytes == 0) return limits_.max_live_bytes;
    if (limits_.max_live_bytes == 0) return limits_.arena_bytes;
    return std::min(limits_.max_live_bytes, limits_.arena_bytes);
  }

  // "max_live_bytes 4096"
  std::string NameOf(uint64_t live_limit) const {
    const bool ours = live_limit == limits_.max_live_bytes;
    return std::string(ours ? "max_live_bytes " : "plan.arena_bytes ") +
           std::to_string(live_limit);
  }

  // Of the pass that needs most.
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
        "engine: " + NameOf(limit) +
        " is too small: " + (pass.backward ? "backward" : "forward") +
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
  const uint64_t gradient_bytes_;
};

}  // namespace

Status SearchArena(const StepSpec& spec, const Model& model,
                   const Layout& layout, const std::vector<Pass>& passes,
                   const ArenaLimits& limits, const PlanAttempt& attempt) {
  return Search(spec, model, layout, passes, limits, attempt).Run();
}

uint64_t AccumulatedBytes(const StepSpec& spec, const Layout& layout) {
  if (spec.micro_batches == 1) return 0;
  uint64_t elements = 0;
  for (const Bucket& bucket : layout.buckets) {
    if (!bucket.reduced_at_once) elements += bucket.count;
  }
  return elements * SizeOf(kSumDType);
}

}  // namespace commsched::engine
