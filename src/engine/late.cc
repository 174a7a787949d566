// Modules that come in another order than the planned one, on this rank.
//
// The session sees the planned order whatever the caller does, so that no rank
// has to know of another's. Ops of a module that has not come yet run empty,
// and its parameters are kept where the plan lets go of them. It runs when it
// comes, beside the session, and so does its backward if that comes before the
// planned one, which then adds its gradients: sums have one order.

#include <algorithm>
#include <utility>

#include "engine.h"

namespace commsched::engine {

// ---- Which modules ----------------------------------------------------------

// Exchanges within a module go out with the planned ops.
bool Engine::CanComeLate(const ModuleOp& op) const {
  const Module& module = modules_[op.module];
  return desc_.reorder_bytes > 0 && module.steps[0].empty() &&
         module.steps[1].empty();
}

// Whether both are of the forward of one micro-batch.
bool Engine::InOneForward(uint64_t from, uint64_t to) const {
  return std::max(from, to) < ops().size() && ops()[from].forward == from &&
         ops()[to].forward == to &&
         ops()[from].micro_batch == ops()[to].micro_batch;
}

// Whether the forward that is passed over on the way to `target` may come
// later.
bool Engine::ComesLate(uint64_t index, uint64_t target) const {
  const ModuleOp& op = ops()[index];
  if (op.backward || !CanComeLate(op)) return false;
  if (op.forward == index) return InOneForward(index, target);
  switch (fates_[op.forward]) {
    case Fate::kPlanned:
      return op.forward < cursor_ && target < ops().size() &&
             ops()[target].again;
    case Fate::kLate:
      return fates_[index] != Fate::kLate;
    case Fate::kAwaited:
    case Fate::kLeftOut:
      return false;
  }
  return false;
}

// Whether what has to come again before `backward` has.
bool Engine::WasRecomputed(uint64_t backward) const {
  const uint32_t forward = ops()[backward].forward;
  for (uint64_t i = forward + 1; i < backward; ++i) {
    if (ops()[i].forward != forward) continue;
    return fates_[i] == Fate::kLate ||
           (fates_[i] == Fate::kPlanned && i < cursor_);
  }
  return true;
}

// From the cursor on.
uint64_t Engine::EndOfForward() const {
  uint64_t end = cursor_;
  while (end < ops().size() && ops()[end].forward == end) ++end;
  return end;
}

// Whether what is found by FindLate() can begin: with a backward, or what is
// recomputed for it, the forward is over.
bool Engine::CanBeginLate(uint64_t index) const {
  if (index == ops().size()) return false;
  if (ops()[index].forward == index) return true;
  const uint64_t end = EndOfForward();
  return (end == cursor_ && num_awaited_ == 0) || CanPassTo(end);
}

// A forward that is awaited, or a pass that is to come of a module whose
// forward was late; beyond all if there is none.
uint64_t Engine::FindLate(bool backward, uint32_t module,
                          uint32_t micro_batch) const {
  const bool any = disordered_ && desc_.reorder_bytes > 0;
  for (uint64_t i = 0; any && i < ops().size(); ++i) {
    const ModuleOp& op = ops()[i];
    if (!IsPass(op, backward, module, micro_batch)) continue;
    if (fates_[i] == Fate::kAwaited) return i;
    if (i >= cursor_ && op.forward < i && fates_[op.forward] == Fate::kLate &&
        fates_[i] == Fate::kPlanned && (!backward || WasRecomputed(i))) {
      return i;
    }
  }
  return ops().size();
}

// Of the forwards that are awaited; beyond all if there are none.
uint64_t Engine::FirstAwaited() const {
  if (num_awaited_ == 0) return ops().size();
  uint64_t i = 0;
  while (fates_[i] != Fate::kAwaited || ops()[i].forward != i) ++i;
  return i;
}

// The first backward says that they do not come.
void Engine::LeaveOutAwaited() {
  for (uint64_t i = 0; num_awaited_ > 0; ++i) {
    if (fates_[i] != Fate::kAwaited || ops()[i].forward != i) continue;
    fates_[i] = Fate::kLeftOut;
    --num_awaited_;
  }
}

// ---- What they need ---------------------------------------------------------

LateBucket Engine::UsedOf(uint32_t module, uint32_t bucket) const {
  LateBucket used;
  used.begin = layout_.buckets[bucket].count;
  uint64_t end = 0;
  for (uint32_t p : modules_[module].used) {
    const Slot& slot = layout_.slots[p];
    if (slot.bucket != bucket) continue;
    used.begin = std::min(used.begin, slot.offset);
    end = std::max(end, slot.offset + parameters_[p].count);
  }
  used.count = end - used.begin;
  return used;
}

void Engine::BindLateModules() {
  late_bytes_ = 0;
  num_awaited_ = 0;
  disordered_ = false;
  fates_.assign(graph_.module_ops.size(), Fate::kPlanned);
  late_modules_.clear();
  for (uint32_t m : sequence_) {
    LateModule& module = late_modules_.emplace_back();
    for (uint32_t b : layout_.module_buckets[m]) {
      module.buckets.push_back(UsedOf(m, b));
    }
  }
  // In any micro-batch.
  for (const ModuleOp& op : graph_.module_ops) {
    if (!op.backward) continue;
    LateModule& module = late_modules_[PositionOf(op)];
    for (size_t i = 0; i < op.values.size(); ++i) {
      if (graph_.module_ops[op.forward].values[i] == op.values[i]) continue;
      module.buckets[i].leaves = true;
    }
  }
}

void Engine::ForgetLateModules() {
  if (!std::exchange(disordered_, false)) return;
  num_awaited_ = 0;
  std::fill(fates_.begin(), fates_.end(), Fate::kPlanned);
  for (LateModule& module : late_modules_) module.kept = false;
}

// Calls `missing` for what has no memory yet: elements, their type, where.
template <typename Missing>
void Engine::ForMissingMemory(const ModuleOp& op, Missing&& missing) {
  for (LateBucket& bucket : late_modules_[PositionOf(op)].buckets) {
    if (bucket.leaves && bucket.values.data() == nullptr) {
      missing(bucket.count * SizeOf(spec_.precision.parameters),
              &bucket.values);
    }
    if (!evaluating_ && !op.again && bucket.gradients.data() == nullptr) {
      missing(bucket.count * SizeOf(spec_.precision.parameters),
              &bucket.gradients);
    }
  }
}

// Memory of what is passed over on the way to `target`: mostly it is there. A
// rank that cannot go on takes the others along.
Status Engine::AllocateLate(uint64_t target) {
  uint64_t total = late_bytes_;
  for (uint64_t i = cursor_; i < target; ++i) {
    if (!ComesLate(i, target)) continue;
    ForMissingMemory(ops()[i], [&](uint64_t bytes, Bytes*) { total += bytes; });
  }
  if (total == late_bytes_) return Status();
  const bool is_allowed = total <= desc_.reorder_bytes;
  Status allocated;
  for (uint64_t i = cursor_; i < target && is_allowed; ++i) {
    if (!ComesLate(i, target)) continue;
    ForMissingMemory(ops()[i], [&](uint64_t bytes, Bytes* memory) {
      if (!allocated.ok()) return;
      allocated = Bytes::Create(allocator_, kernels_, bytes, memory);
    });
  }
  if (is_allowed && allocated.ok()) {
    late_bytes_ = total;
    return Status();
  }
  const ModuleOp& op = ops()[target];
  Status status(
      is_allowed ? allocated.code() : COMMSCHED_RESOURCE_EXHAUSTED,
      "engine: " + ModuleCall(op.backward, "begin", op.module, op.micro_batch) +
          " on rank " + std::to_string(group_rank_) +
          ": modules that come after it and not before need " +
          std::to_string(total) + " bytes" +
          (is_allowed
               ? ": " + allocated.message()
               : "; reorder_bytes is " + std::to_string(desc_.reorder_bytes)));
  Abort(status.message().c_str());
  return status;
}

// ---- Running them -----------------------------------------------------------

// While the session has them whole.
Status Engine::KeepValues(const ModuleOp& op) {
  LateModule& module = late_modules_[PositionOf(op)];
  if (module.kept) return Status();
  if (!evaluating_) ENGINE_RETURN_IF_ERROR(CheckVersions(op));
  const commsched_dtype_t dtype = spec_.precision.parameters;
  for (size_t i = 0; i < module.buckets.size(); ++i) {
    const LateBucket& bucket = module.buckets[i];
    if (!bucket.leaves) continue;
    const uint32_t b = layout_.module_buckets[op.module][i];
    ENGINE_RETURN_IF_ERROR(kernels_.Convert(
        bucket.values.data(), dtype,
        memory_[b].all_parameters + bucket.begin * SizeOf(dtype), dtype,
        bucket.count));
  }
  module.kept = true;
  return Status();
}

Status Engine::BeginLate(uint64_t index) {
  const ModuleOp& op = ops()[index];
  ENGINE_RETURN_IF_ERROR(SessionFailure());
  if (op.forward == index) {
    --num_awaited_;
  } else {
    ENGINE_RETURN_IF_ERROR(PassTo(EndOfForward()));
  }
  LateModule& module = late_modules_[PositionOf(op)];
  for (size_t i = 0; i < module.buckets.size(); ++i) {
    LateBucket& bucket = module.buckets[i];
    const uint32_t b = layout_.module_buckets[op.module][i];
    BucketMemory& memory = memory_[b];
    if (bucket.leaves) {
      memory.all_parameters = bucket.values.data();
      memory.parameters_begin = bucket.begin;
    } else if (gathered(b)) {
      memory.all_parameters = addresses_[index].values[i];
    }
    if (!op.backward) continue;
    bucket.replaced =
        std::exchange(memory.all_gradients, bucket.gradients.data());
    memory.gradients_begin = bucket.begin;
  }
  fates_[index] = Fate::kLate;
  late_ = index;
  phase_ = Phase::kInModule;
  return Status();
}

Status Engine::EndLate() {
  const ModuleOp& op = ops()[std::exchange(late_, kNoLate)];
  HideModule(op.module);
  const LateModule& module = late_modules_[PositionOf(op)];
  for (size_t i = 0; i < module.buckets.size(); ++i) {
    BucketMemory& memory = memory_[layout_.module_buckets[op.module][i]];
    memory.parameters_begin = 0;
    if (!op.backward) continue;
    memory.gradients_begin = 0;
    memory.all_gradients = module.buckets[i].replaced;
  }
  phase_ = Phase::kBetweenModules;
  return SessionFailure();
}

// Of a backward that has run, in the place of the planned one.
Status Engine::AddLateGradients(const ModuleOp& op) {
  const commsched_dtype_t dtype = spec_.precision.parameters;
  const std::vector<uint32_t>& buckets = layout_.module_buckets[op.module];
  const LateModule& module = late_modules_[PositionOf(op)];
  for (uint32_t p : modules_[op.module].used) {
    const Slot& slot = layout_.slots[p];
    const auto i = static_cast<size_t>(
        std::find(buckets.begin(), buckets.end(), slot.bucket) -
        buckets.begin());
    const LateBucket& bucket = module.buckets[i];
    std::byte* from =
        bucket.gradients.data() + (slot.offset - bucket.begin) * SizeOf(dtype);
    ENGINE_RETURN_IF_ERROR(kernels_.Add(
        memory_[slot.bucket].all_gradients + slot.offset * SizeOf(dtype), dtype,
        from, dtype, parameters_[p].count));
    ENGINE_RETURN_IF_ERROR(
        kernels_.Zero(from, parameters_[p].count * SizeOf(dtype)));
  }
  return Status();
}

}  // namespace commsched::engine
