#include "comm/inproc_transfer.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/dtype.h"
#include "comm/launch_check.h"
#include "comm/reduce.h"

namespace commsched {
namespace {

// A block of accumulators and its inputs one by one stay in the first- or
// second-level cache; the cost of claiming a block is small beside it.
constexpr uint64_t kReduceElements = 8192;
constexpr uint64_t kMaxAccumulatorBytes = 8;
constexpr uint64_t kCopyBytes = 128 * 1024;
constexpr std::align_val_t kScratchAlignment{64};

DType DTypeOf(const Transfer& transfer) {
  return static_cast<DType>(transfer.shape().dtype);
}

uint64_t ElementBytes(const Transfer& transfer) {
  return static_cast<uint64_t>(DTypeSize(DTypeOf(transfer)));
}

uint64_t BlockElements(const Transfer& transfer) {
  if (IsReducing(transfer.shape().kind)) return kReduceElements;
  return kCopyBytes / ElementBytes(transfer);
}

// Not rounded up by adding: elements may be near the top. Most parts of long
// lists are a block or less.
uint64_t NumBlocksOf(uint64_t elements, uint64_t block_elements) {
  if (elements <= block_elements) return elements != 0;
  return elements / block_elements + (elements % block_elements != 0);
}

const std::byte* InputAt(const Transfer& transfer, int rank, uint32_t member,
                         uint64_t element) {
  const void* input = transfer.launches[rank].members[member].input;
  return static_cast<const std::byte*>(input) +
         element * ElementBytes(transfer);
}

std::byte* OutputAt(const Transfer& transfer, int rank, uint32_t member,
                    uint64_t element) {
  void* output = transfer.launches[rank].members[member].output;
  return static_cast<std::byte*>(output) + element * ElementBytes(transfer);
}

// Elements in front of part `index` of a rank's input or output, which has a
// part per rank. `uneven` as the block has it.
uint64_t BaseOf(const commsched_member_t& member, uint64_t stride,
                int64_t index, uint64_t uneven) {
  if (member.counts != nullptr) return uneven;
  return (stride != 0 ? stride : member.count) * static_cast<uint64_t>(index);
}

uint64_t InputBase(const Transfer& transfer, const TransferBlock& block,
                   int rank, int64_t index) {
  const auto& member = transfer.launches[rank].members[block.member];
  return BaseOf(member, member.input_stride, index, block.input_base);
}

uint64_t OutputBase(const Transfer& transfer, const TransferBlock& block,
                    int rank, int64_t index) {
  const auto& member = transfer.launches[rank].members[block.member];
  return BaseOf(member, member.output_stride, index, block.output_base);
}

// In place, source and destination are the same.
void Copy(void* to, const void* from, uint64_t bytes) {
  if (to != from) std::memcpy(to, from, bytes);
}

// Sums a block of all inputs.
void Accumulate(const Transfer& transfer, const TransferBlock& block,
                void* accumulators) {
  const bool has_parts = transfer.shape().kind == COMMSCHED_REDUCE_SCATTER;
  const auto input = [&](int rank) {
    const uint64_t base =
        has_parts ? InputBase(transfer, block, rank, block.part) : 0;
    return InputAt(transfer, rank, block.member, base + block.offset);
  };
  const ReduceKernel& kernel = ReduceKernelFor(DTypeOf(transfer));
  const auto op = static_cast<ReduceOp>(transfer.shape().reduce_op);
  int rank = transfer.first_rank;
  kernel.load(accumulators, input(rank), block.count);
  for (int i = 1; i < transfer.size; ++i) {
    if (++rank == transfer.size) rank = 0;
    kernel.combine(op, accumulators, input(rank), block.count);
  }
}

void StoreTo(const Transfer& transfer, const TransferBlock& block,
             const void* accumulators, void* result) {
  ReduceKernelFor(DTypeOf(transfer))
      .store(static_cast<ReduceOp>(transfer.shape().reduce_op), transfer.size,
             result, accumulators, block.count);
}

void ReduceToAll(const Transfer& transfer, const TransferBlock& block,
                 TransferScratch* scratch) {
  Accumulate(transfer, block, scratch->accumulators());
  // The first output, still in the cache, is what the others are copied from.
  void* const first = OutputAt(transfer, 0, block.member, block.offset);
  StoreTo(transfer, block, scratch->accumulators(), first);
  for (int rank = 1; rank < transfer.size; ++rank) {
    std::memcpy(OutputAt(transfer, rank, block.member, block.offset), first,
                block.count * ElementBytes(transfer));
  }
}

void ReduceToOne(const Transfer& transfer, const TransferBlock& block, int rank,
                 TransferScratch* scratch) {
  Accumulate(transfer, block, scratch->accumulators());
  StoreTo(transfer, block, scratch->accumulators(),
          OutputAt(transfer, rank, block.member, block.offset));
}

void CopyToAll(const Transfer& transfer, const TransferBlock& block, int from) {
  const bool has_parts = transfer.shape().kind == COMMSCHED_ALL_GATHER;
  const void* source = InputAt(transfer, from, block.member, block.offset);
  for (int rank = 0; rank < transfer.size; ++rank) {
    const uint64_t base =
        has_parts ? OutputBase(transfer, block, rank, block.part) : 0;
    Copy(OutputAt(transfer, rank, block.member, base + block.offset), source,
         block.count * ElementBytes(transfer));
  }
}

void Exchange(const Transfer& transfer, const TransferBlock& block) {
  const int sender = static_cast<int>(block.part / transfer.size);
  const int receiver = static_cast<int>(block.part % transfer.size);
  const uint64_t from = InputBase(transfer, block, sender, receiver);
  const uint64_t to = OutputBase(transfer, block, receiver, sender);
  std::memcpy(OutputAt(transfer, receiver, block.member, to + block.offset),
              InputAt(transfer, sender, block.member, from + block.offset),
              block.count * ElementBytes(transfer));
}

// Elements of all_to_all that the busiest member sends to others, or receives
// from them.
double BusiestElements(const commsched_member_t& member, int size) {
  if (member.counts == nullptr) {
    return static_cast<double>(member.count) * (size - 1);
  }
  double most = 0;
  for (int64_t rank = 0; rank < size; ++rank) {
    double sent = 0, received = 0;
    for (int64_t peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      sent += static_cast<double>(member.counts[rank * size + peer]);
      received += static_cast<double>(member.counts[peer * size + rank]);
    }
    most = std::max({most, sent, received});
  }
  return most;
}

// Elements that a direction of a member's link carries.
double WireElements(const Transfer& transfer,
                    const commsched_member_t& member) {
  const int size = transfer.size;
  const commsched_collective_t kind = transfer.shape().kind;
  if (kind == COMMSCHED_ALL_TO_ALL) return BusiestElements(member, size);
  double array = 0;
  const int64_t num_parts = NumParts(kind, size);
  for (int64_t p = 0; p < num_parts; ++p) {
    array += static_cast<double>(PartElements(member, p));
  }
  const double share = static_cast<double>(size - 1) / size;
  return (kind == COMMSCHED_ALL_REDUCE ? 2 : 1) * share * array;
}

}  // namespace

TransferScratch::TransferScratch()
    : memory_(new (kScratchAlignment)
                  std::byte[kReduceElements * kMaxAccumulatorBytes]) {}

void TransferScratch::Deleter::operator()(std::byte* memory) const {
  ::operator delete[](memory, kScratchAlignment);
}

BlockCursor::BlockCursor(const Transfer& transfer)
    : transfer_(transfer),
      block_elements_(BlockElements(transfer)),
      num_parts_(NumParts(transfer.shape().kind, transfer.size)) {
  if (transfer.shape().num_members != 0) EnterPart();
}

void BlockCursor::EnterPart() {
  part_elements_ =
      PartElements(transfer_.shape().members[at_.member], at_.part);
  part_blocks_ = NumBlocksOf(part_elements_, block_elements_);
}

void BlockCursor::NextPart() {
  first_index_ += part_blocks_;
  if (++at_.part == num_parts_) {
    at_.part = 0;
    ++at_.member;
  }
  EnterPart();
}

void BlockCursor::FindBases() {
  const commsched_member_t& member = transfer_.shape().members[at_.member];
  at_.input_base = at_.output_base = 0;
  if (member.counts == nullptr) return;
  if (transfer_.shape().kind != COMMSCHED_ALL_TO_ALL) {
    for (int64_t p = 0; p < at_.part; ++p) {
      at_.input_base += PartElements(member, p);
    }
    at_.output_base = at_.input_base;
    return;
  }
  const int64_t size = transfer_.size;
  const int64_t sender = at_.part / size;
  const int64_t receiver = at_.part % size;
  for (int64_t r = 0; r < receiver; ++r) {
    at_.input_base += PartElements(member, sender * size + r);
  }
  for (int64_t s = 0; s < sender; ++s) {
    at_.output_base += PartElements(member, s * size + receiver);
  }
}

TransferBlock BlockCursor::At(uint64_t index) {
  bool moved = false;
  while (index - first_index_ >= part_blocks_) {
    NextPart();
    moved = true;
  }
  if (moved) FindBases();
  TransferBlock block = at_;
  block.offset = (index - first_index_) * block_elements_;
  block.count = std::min(block_elements_, part_elements_ - block.offset);
  return block;
}

uint64_t NumBlocks(const Transfer& transfer) {
  const commsched_launch_t& shape = transfer.shape();
  if (shape.kind == COMMSCHED_BARRIER) return 0;
  const uint64_t per_block = BlockElements(transfer);
  const int64_t num_parts = NumParts(shape.kind, transfer.size);
  uint64_t num_blocks = 0;
  for (uint32_t m = 0; m < shape.num_members; ++m) {
    for (int64_t p = 0; p < num_parts; ++p) {
      num_blocks += NumBlocksOf(PartElements(shape.members[m], p), per_block);
    }
  }
  return num_blocks;
}

void RunBlock(const Transfer& transfer, const TransferBlock& block,
              TransferScratch* scratch) {
  const commsched_launch_t& shape = transfer.shape();
  switch (shape.kind) {
    case COMMSCHED_ALL_REDUCE:
      ReduceToAll(transfer, block, scratch);
      break;
    case COMMSCHED_REDUCE_SCATTER:
      ReduceToOne(transfer, block, static_cast<int>(block.part), scratch);
      break;
    case COMMSCHED_REDUCE:
      ReduceToOne(transfer, block, shape.root, scratch);
      break;
    case COMMSCHED_ALL_GATHER:
      CopyToAll(transfer, block, static_cast<int>(block.part));
      break;
    case COMMSCHED_BROADCAST:
      CopyToAll(transfer, block, shape.root);
      break;
    case COMMSCHED_ALL_TO_ALL:
      Exchange(transfer, block);
      break;
  }
}

double WireBytes(const Transfer& transfer) {
  const commsched_launch_t& shape = transfer.shape();
  if (shape.kind == COMMSCHED_BARRIER) return 0;
  double elements = 0;
  for (uint32_t m = 0; m < shape.num_members; ++m) {
    elements += WireElements(transfer, shape.members[m]);
  }
  return elements * static_cast<double>(ElementBytes(transfer));
}

}  // namespace commsched
