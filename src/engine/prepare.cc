// What each rank does alone before the first step: layout, plan, memory.

#include <algorithm>
#include <utility>

#include "engine.h"
#include "engine/step_plan/accumulation.h"
#include "engine/step_plan/step_needs.h"

namespace commsched::engine {
namespace {

// What 0 means in a commsched_cost_profile_t.
constexpr double kDefaultLinkBytesPerS = 10e9;
constexpr int64_t kDefaultLaunchNs = 20'000;

// Forwards and backwards of a step.
constexpr uint64_t kMaxPasses = uint64_t{1} << 20;

// Of float to the host, at a time.
constexpr uint64_t kStagingElements = uint64_t{1} << 18;

}  // namespace

template <typename T>
Status Engine::AllocateZeros(const std::string& what, uint64_t count,
                             Array<T>* out) {
  return Array<T>::Create(allocator_, kernels_, what, count, out);
}

Status Engine::Prepare() {
  if (phase_ == Phase::kPrepared) return OutOfOrder("prepare");
  ENGINE_RETURN_IF_ERROR(CheckRegistering());
  if (model_.parameters().empty()) {
    return FailedPrecondition("engine: no parameters were added before build");
  }
  layout_ = BuildLayout(model_.modules(), model_.parameters(),
                        {.bucket_bytes = desc_.bucket_bytes,
                         .num_shards = static_cast<uint64_t>(spec_.world),
                         .edge_bytes = desc_.edge_bucket_bytes,
                         .persist_bytes = desc_.persist_below});
  if (recording_) ENGINE_RETURN_IF_ERROR(CheckCanRecord());
  sequence_ = RegisteredSequence(model_.modules().size());
  ChooseAccumulating();
  if (spec_.offloads) {
    ENGINE_RETURN_IF_ERROR(
        PlanStaging(spec_, desc_.offload_staging_bytes, &layout_));
  }
  ENGINE_RETURN_IF_ERROR(CheckMemory(/*arena=*/0));
  ENGINE_RETURN_IF_ERROR(PlanStep());
  commsched_plan_info_t plan = commsched_plan_info_init();
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_plan_get_info(plan_.get(), &plan), "reading the plan"));
  ENGINE_RETURN_IF_ERROR(CheckMemory(plan.arena_bytes));
  num_ops_ = commsched_graph_num_ops(graph_.graph.get());
  ENGINE_RETURN_IF_ERROR(Allocate());
  phase_ = Phase::kPrepared;
  return Status();
}

void Engine::ChooseAccumulating() {
  if (spec_.micro_batches == 1) return;
  AccumulationCosts costs;
  costs.budget_bytes = desc_.accumulate_bytes;
  costs.element_bytes = SizeOf(kSumDType);
  costs.sent_element_bytes = SizeOf(spec_.precision.reduced);
  costs.bytes_per_s = profile_.link_bytes_per_s > 0 ? profile_.link_bytes_per_s
                                                    : kDefaultLinkBytesPerS;
  costs.latency_ns =
      profile_.link_latency_ns +
      (profile_.launch_ns > 0 ? profile_.launch_ns : kDefaultLaunchNs);
  ChooseAccumulation(costs, &layout_);
}

// Of buckets that are whole through all micro-batches.
uint64_t Engine::AccumulatedBytes() const {
  if (spec_.micro_batches == 1) return 0;
  uint64_t elements = 0;
  for (const Bucket& bucket : layout_.buckets) {
    if (!bucket.reduced_at_once) elements += bucket.count;
  }
  return elements * SizeOf(kSumDType);
}

// What the plan has to find memory for.
uint64_t Engine::GradientArenaBytes() const {
  uint64_t bytes = 0;
  for (uint32_t b = 0; b < layout_.buckets.size(); ++b) {
    bytes += ArenaBytes(BuffersOf(b));
  }
  return bytes;
}

Engine::NormCounts Engine::CountsOfNorm() const {
  NormCounts counts;
  if (!spec_.needs_norm()) return counts;
  for (uint32_t b = 0; b < layout_.buckets.size(); ++b) {
    counts.local += ShardCount(b) / kBlockElements;
  }
  if (spec_.gathers_block_sums()) {
    ++counts.local;
    counts.all = counts.local * spec_.num_shards();
  }
  if (spec_.reduces_norm()) counts.total = 1 + spec_.num_shards();
  return counts;
}

// More than the machine has is refused rather than left to overcommit: the
// first touch of such memory would kill the process. Each rank on this host has
// an engine that takes about as much, also where other groups share the model
// among themselves.
Status Engine::CheckMemory(uint64_t arena) const {
  uint64_t bytes =
      arena + layout_.staging_slots * layout_.staging_count * sizeof(float);
  bytes += CountsOfNorm().sum() * sizeof(double);
  for (uint32_t b = 0; b < layout_.buckets.size(); ++b) {
    bytes += BoundBytes(BuffersOf(b));
  }
  const auto ranks =
      static_cast<uint64_t>(commsched_context_local_size(desc_.context));
  if (bytes <= PhysicalBytes() / ranks) return Status();
  std::string message =
      "engine: parameters, gradients and optimizer state take " +
      std::to_string(bytes) + " bytes";
  if (ranks > 1) {
    message += " on each of the " + std::to_string(ranks) +
               " ranks, which share this machine";
  }
  return Status(COMMSCHED_RESOURCE_EXHAUSTED,
                message + "; the machine has " +
                    std::to_string(PhysicalBytes()) + " bytes of memory");
}

Status Engine::Allocate() {
  memory_.resize(layout_.buckets.size());
  for (uint32_t b = 0; b < memory_.size(); ++b) {
    BucketMemory& memory = memory_[b];
    const std::string what = "bucket " + std::to_string(b);
    for (const BucketBuffer& row : BuffersOf(b)) {
      if (row.ownership != COMMSCHED_BOUND) continue;
      ENGINE_RETURN_IF_ERROR(
          AllocateZeros(what, row.bytes(), &memory.of(row.kind)));
    }
    memory.segments = ShardSegments(layout_, model_.parameters(), b,
                                    spec_.zero_stage == 0 ? 0 : group_rank_,
                                    spec_.num_shards());
  }
  if (desc_.measure_steps > 0) {
    op_cost_ns_.assign(num_ops_, std::numeric_limits<int64_t>::max());
  }
  if (on_device_) {
    ENGINE_RETURN_IF_ERROR(
        AllocateZeros("staging", kStagingElements, &staging_));
  }
  ENGINE_RETURN_IF_ERROR(AllocateZeros("the loss scale", 1, &state_));
  if (spec_.scales_loss) last_state_.scale = desc_.loss_scale;
  ENGINE_RETURN_IF_ERROR(SetState());
  if (spec_.needs_norm()) ENGINE_RETURN_IF_ERROR(AllocateNorm());
  if (spec_.needs_norm() || spec_.gathers_rates()) {
    ENGINE_RETURN_IF_ERROR(reports_.Init(allocator_, kernels_,
                                         static_cast<uint64_t>(spec_.world)));
  }
  if (spec_.gathers_rates()) {
    ENGINE_RETURN_IF_ERROR(AllocateZeros(
        "learning rates", static_cast<uint64_t>(spec_.world), &rates_));
  }
  ENGINE_RETURN_IF_ERROR(kernels_.Synchronize());
  if (!spec_.offloads) return Status();
  return Offload::Create({.context = desc_.context,
                          .pool = pool_,
                          .rank = group_rank_,
                          .step = spec_,
                          .memory = &allocator_,
                          .kernels = &kernels_},
                         layout_, &offload_);
}

Status Engine::SetState() {
  const commsched_step_state_t& state = last_state_;
  return kernels_.Copy(state_.data(), &state, sizeof(state));
}

Status Engine::AllocateNorm() {
  const NormCounts counts = CountsOfNorm();
  ENGINE_RETURN_IF_ERROR(AllocateZeros("norms", counts.local, &local_sums_));
  if (spec_.reduces_norm()) {
    ENGINE_RETURN_IF_ERROR(AllocateZeros("norms", counts.total, &total_));
    return norm_sums_.Init(allocator_, kernels_, {{{0, graph_.local_blocks}}});
  }
  std::vector<std::vector<commsched_run_t>> parts;
  for (uint32_t p = 0; p < model_.parameters().size(); ++p) {
    parts.push_back(BlocksOf(p));
  }
  ENGINE_RETURN_IF_ERROR(norm_sums_.Init(allocator_, kernels_, parts));
  ENGINE_RETURN_IF_ERROR(AllocateZeros("norms", parts.size(), &part_sums_));
  if (!spec_.gathers_block_sums()) return Status();
  ENGINE_RETURN_IF_ERROR(AllocateZeros("norms", counts.all, &all_sums_));
  std::vector<std::vector<commsched_run_t>> rates;
  for (uint64_t rank = 0; rank < spec_.num_shards(); ++rank) {
    rates.push_back({{rank * graph_.local_count + graph_.local_blocks, 1}});
  }
  ENGINE_RETURN_IF_ERROR(rates_in_sums_.Init(allocator_, kernels_, rates));
  return AllocateZeros("learning rates", rates.size(), &sent_rates_);
}

// ---- The plan ---------------------------------------------------------------

std::vector<Pass> Engine::Order() const {
  return PassOrder(sequence_, model_.Segments(), spec_.micro_batches);
}

// Planning takes about 1 KiB for each.
Status Engine::CheckNumPasses() const {
  const uint64_t passes = uint64_t{2} * spec_.micro_batches * sequence_.size();
  if (passes <= kMaxPasses) return Status();
  return Status(COMMSCHED_OUT_OF_RANGE,
                "engine: micro_batches is " +
                    std::to_string(spec_.micro_batches) + ": with " +
                    std::to_string(sequence_.size()) + " modules a step has " +
                    std::to_string(passes) +
                    " forwards and backwards; at most " +
                    std::to_string(kMaxPasses) + " are planned");
}

Status Engine::TryPlan(const std::vector<Stay>& stays, uint64_t arena_bytes) {
  ENGINE_RETURN_IF_ERROR(BuildStepGraph(spec_, model_.modules(),
                                        model_.exchanges(), layout_, Order(),
                                        stays, &graph_));
  commsched_plan_options_t options = plan_options_;
  options.arena_bytes = arena_bytes;
  commsched_plan_t* plan = nullptr;
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_plan_build(graph_.graph.get(), &options, &profile_, &plan),
      "planning the step"));
  plan_.reset(plan);
  return Status();
}

Status Engine::TryLimits(const std::vector<Stay>& stays,
                         const std::vector<uint64_t>& limits) {
  Status status;
  for (uint64_t limit : limits) {
    status = TryPlan(stays, limit);
    if (status.code() != COMMSCHED_RESOURCE_EXHAUSTED) break;
  }
  return status;
}

// Gradient buckets of stages 2 and 3 share memory: unless a limit was given,
// within half of what they would take side by side, three quarters if that is
// not enough (a large bucket that is alive all the time), and else all of it.
Status Engine::PlanStep() {
  ENGINE_RETURN_IF_ERROR(CheckNumPasses());
  const LastErrorKeeper keeper;  // A plan that is too large is tried again.
  if (spec_.zero_stage == 3) return PlanGathering();
  if (GradientArenaBytes() == 0 || plan_options_.arena_bytes != 0) {
    return TryPlan({}, plan_options_.arena_bytes);
  }
  return TryLimits({}, ArenaLimits(/*parameter_bytes=*/0));
}

// Without a limit nothing shares memory. That is for buckets which all
// accumulate as much as memory for all of them, which else is tried first.
std::vector<uint64_t> Engine::ArenaLimits(uint64_t parameter_bytes) const {
  const uint64_t gradients = GradientArenaBytes();
  std::vector<uint64_t> limits = {parameter_bytes + gradients / 2,
                                  parameter_bytes + gradients / 4 * 3};
  if (spec_.micro_batches > 1 && AccumulatedBytes() < gradients) {
    limits.push_back(parameter_bytes + gradients);
  }
  limits.push_back(0);
  return limits;
}

// What is alive at once within a limit need not find places in memory of that
// size. Then less stays beside what module ops need, in steps down to nothing.
Status Engine::PlanGathering() {
  const LiveNeeds needs =
      NeedsOfStep(spec_, layout_, Order(), /*reduction_ops=*/1);
  const uint64_t limit = LiveLimit();
  if (limit == 0) {
    uint64_t parameters = 0;
    for (uint32_t b = 0; b < layout_.buckets.size(); ++b) {
      if (gathered(b)) parameters += needs.bucket_bytes[b];
    }
    return TryLimits(PlanStays(needs, 0, desc_.prefetch_bytes),
                     ArenaLimits(parameters));
  }
  ENGINE_RETURN_IF_ERROR(CheckLiveLimit(limit));
  Status status;
  for (uint64_t less = 0; less <= 8; ++less) {
    const uint64_t budget = limit - limit / 8 * less;
    status = TryPlan(
        PlanStays(needs, less == 8 ? 1 : budget, desc_.prefetch_bytes), limit);
    if (status.code() != COMMSCHED_RESOURCE_EXHAUSTED) return status;
  }
  return Status(status.code(),
                "engine: with " + NameOf(limit) + ": " + status.message());
}

uint64_t Engine::LiveLimit() const {
  if (plan_options_.arena_bytes == 0) return desc_.max_live_bytes;
  if (desc_.max_live_bytes == 0) return plan_options_.arena_bytes;
  return std::min(desc_.max_live_bytes, plan_options_.arena_bytes);
}

// "max_live_bytes 4096"
std::string Engine::NameOf(uint64_t live_limit) const {
  const bool ours = live_limit == desc_.max_live_bytes;
  return std::string(ours ? "max_live_bytes " : "plan.arena_bytes ") +
         std::to_string(live_limit);
}

// Of the op that needs most.
Status Engine::CheckLiveLimit(uint64_t limit) const {
  const std::vector<Pass> passes = Order();
  const LiveNeeds needs =
      NeedsOfStep(spec_, layout_, passes, /*reduction_ops=*/0);
  size_t largest = 0;
  for (size_t op = 0; op < needs.used.size(); ++op) {
    if (needs.BytesAt(op) > needs.BytesAt(largest)) largest = op;
  }
  const uint64_t least = needs.BytesAt(largest);
  if (least <= limit) return Status();
  const Pass& pass = passes[largest];
  std::string message =
      "engine: " + NameOf(limit) +
      " is too small: " + (pass.backward ? "backward" : "forward") +
      " of module '" + model_.modules()[pass.module].name + "' needs " +
      std::to_string(least) + ": " +
      std::to_string(least - needs.other_bytes[largest]) +
      " of gathered parameter buckets and " +
      std::to_string(needs.other_bytes[largest]) + " of gradient buckets";
  if (AccumulatedBytes() > 0) {
    message += ", of which " + std::to_string(AccumulatedBytes()) +
               " accumulate over " + std::to_string(spec_.micro_batches) +
               " micro-batches; accumulate_bytes limits that";
  }
  return Status(COMMSCHED_RESOURCE_EXHAUSTED, message);
}

}  // namespace commsched::engine
