#include "comm/inproc/runner.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include "base/dtype.h"
#include "comm/launch_check.h"
#include "comm/reduce.h"
#include "graph/collective_shape.h"

namespace commsched {
namespace {

constexpr uint64_t kLineBytes = 64;
constexpr int64_t kNoParts = -1;  // An input or output in one piece.

// In longer blocks the processor's own prefetching is in stride most of the
// time, and memcpy is faster on what is in the cache.
constexpr uint64_t kShortBytes = 4 * 1024;

void Prefetch(const void* memory, uint64_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(memory);
  for (uint64_t b = 0; b < bytes; b += kLineBytes) {
    __builtin_prefetch(begin + b);
  }
}

// Fetches as many bytes from `next` meanwhile, line by line: more at a time
// than the processor can have under way would be waited for.
void CopyAndPrefetch(void* to, const void* from, uint64_t bytes,
                     const void* next) {
  auto* const out = static_cast<std::byte*>(to);
  const auto* const in = static_cast<const std::byte*>(from);
  const auto* const ahead = static_cast<const std::byte*>(next);
  uint64_t b = 0;
  for (; b + kLineBytes <= bytes; b += kLineBytes) {
    __builtin_prefetch(ahead + b);
    std::memcpy(out + b, in + b, kLineBytes);
  }
  std::memcpy(out + b, in + b, bytes - b);
}

// Elements in front of part `part` of a rank's input or output. `uneven` as the
// block has it.
uint64_t BaseOf(const commsched_member_t& member, uint64_t stride, int64_t part,
                uint64_t uneven) {
  if (part == kNoParts) return 0;
  if (member.counts != nullptr) return uneven;
  return (stride != 0 ? stride : member.count) * static_cast<uint64_t>(part);
}

}  // namespace

BlockRunner::BlockRunner(const Transfer& transfer, TransferScratch* scratch)
    : transfer_(transfer),
      kind_(transfer.shape().kind),
      element_bytes_(DTypeSize(static_cast<DType>(transfer.shape().dtype))),
      cursor_(transfer),
      now_(&scratch->blocks[0]),
      next_(&scratch->blocks[1]) {}

void BlockRunner::Run(uint64_t index, uint64_t end) {
  if (index == next_index_) {
    std::swap(now_, next_);
  } else {
    Find(index, now_);
  }
  const BlockMemory* next = nullptr;
  if (index + 1 < end && now_->count * element_bytes_ <= kShortBytes) {
    next_index_ = index + 1;
    Find(next_index_, next_);
    next = next_;
  }
  if (IsReducing(KindOf(kind_))) ReduceInputs(next);
  CopyToOutputs(next);
}

void BlockRunner::Find(uint64_t index, BlockMemory* memory) {
  const TransferBlock& block = cursor_.At(index);
  memory->count = block.count;
  FindInputs(block, memory);
  FindOutputs(block, memory);
}

void BlockRunner::FindInputs(const TransferBlock& block,
                             BlockMemory* memory) const {
  const auto add = [&](int rank, int64_t part) {
    memory->inputs[memory->num_inputs++] = InputOf(block, rank, part);
  };
  memory->num_inputs = 0;
  switch (kind_) {
    case COMMSCHED_BROADCAST:
      return add(transfer_.shape().root, kNoParts);
    case COMMSCHED_ALL_GATHER:
      return add(static_cast<int>(block.part), kNoParts);
    case COMMSCHED_ALL_TO_ALL:
      return add(static_cast<int>(block.part / transfer_.size),
                 block.part % transfer_.size);
  }
  const bool has_parts = kind_ == COMMSCHED_REDUCE_SCATTER;
  int rank = transfer_.first_rank;
  for (int i = 0; i < transfer_.size; ++i) {
    add(rank, has_parts ? block.part : kNoParts);
    if (++rank == transfer_.size) rank = 0;
  }
}

void BlockRunner::FindOutputs(const TransferBlock& block,
                              BlockMemory* memory) const {
  const auto add = [&](int rank, int64_t part) {
    memory->outputs[memory->num_outputs++] = OutputOf(block, rank, part);
  };
  memory->num_outputs = 0;
  switch (kind_) {
    case COMMSCHED_REDUCE:
      return add(transfer_.shape().root, kNoParts);
    case COMMSCHED_REDUCE_SCATTER:
      return add(static_cast<int>(block.part), kNoParts);
    case COMMSCHED_ALL_TO_ALL:
      return add(static_cast<int>(block.part % transfer_.size),
                 block.part / transfer_.size);
  }
  const bool has_parts = kind_ == COMMSCHED_ALL_GATHER;
  for (int rank = 0; rank < transfer_.size; ++rank) {
    add(rank, has_parts ? block.part : kNoParts);
  }
}

const void* BlockRunner::InputOf(const TransferBlock& block, int rank,
                                 int64_t part) const {
  const auto& member = transfer_.launches[rank].members[block.member];
  const uint64_t base =
      BaseOf(member, member.input_stride, part, block.input_base);
  return static_cast<const std::byte*>(member.input) +
         (base + block.offset) * element_bytes_;
}

void* BlockRunner::OutputOf(const TransferBlock& block, int rank,
                            int64_t part) const {
  const auto& member = transfer_.launches[rank].members[block.member];
  const uint64_t base =
      BaseOf(member, member.output_stride, part, block.output_base);
  return static_cast<std::byte*>(member.output) +
         (base + block.offset) * element_bytes_;
}

// Into the first output, which the others are then copied from: it is in the
// cache.
void BlockRunner::ReduceInputs(const BlockMemory* next) const {
  Reduction reduction;
  reduction.op = static_cast<ReduceOp>(transfer_.shape().reduce_op);
  reduction.scale = transfer_.shape().scale;
  reduction.num_inputs = now_->num_inputs;
  reduction.inputs = now_->inputs.data();
  reduction.result = now_->outputs[0];
  reduction.count = now_->count;
  if (next != nullptr) {
    reduction.next_inputs = next->inputs.data();
    reduction.next_result = next->outputs[0];
  }
  Reduce(static_cast<DType>(transfer_.shape().dtype), reduction);
}

void BlockRunner::CopyToOutputs(const BlockMemory* next) const {
  const bool reduced = IsReducing(KindOf(kind_));
  const void* const from = reduced ? now_->outputs[0] : now_->inputs[0];
  const uint64_t bytes = now_->count * element_bytes_;
  if (!reduced && next != nullptr) Prefetch(next->inputs[0], bytes);
  for (int i = reduced ? 1 : 0; i < now_->num_outputs; ++i) {
    void* const to = now_->outputs[i];
    if (to == from) continue;  // In place.
    if (next == nullptr) {
      std::memcpy(to, from, bytes);
    } else {
      CopyAndPrefetch(to, from, bytes, next->outputs[i]);
    }
  }
}

}  // namespace commsched
