#include "comm/inproc/transfer.h"

#include <algorithm>

#include "base/dtype.h"
#include "comm/launch_check.h"
#include "graph/collective_shape.h"

namespace commsched {
namespace {

// What a block is copied from stays in the second-level cache while it is
// copied to all; the cost of claiming a block is small beside it.
constexpr uint64_t kReduceElements = 8192;
constexpr uint64_t kCopyBytes = 128 * 1024;

uint64_t ElementBytes(const Transfer& transfer) {
  return DTypeSize(static_cast<DType>(transfer.shape().dtype));
}

uint64_t BlockElements(const Transfer& transfer) {
  if (IsReducing(KindOf(transfer.shape().kind))) return kReduceElements;
  return kCopyBytes / ElementBytes(transfer);
}

// Not rounded up by adding: elements may be near the top. Most parts of long
// lists are a block or less.
uint64_t NumBlocksOf(uint64_t elements, uint64_t block_elements) {
  if (elements <= block_elements) return elements != 0;
  return elements / block_elements + (elements % block_elements != 0);
}

// Elements of all members' arrays.
double ArrayElements(const Transfer& transfer) {
  const commsched_launch_t& shape = transfer.shape();
  const int64_t num_parts = NumParts(KindOf(shape.kind), transfer.size);
  double elements = 0;
  for (uint32_t m = 0; m < shape.num_members; ++m) {
    const commsched_member_t& member = shape.members[m];
    if (member.counts == nullptr) {
      elements += static_cast<double>(member.count) * num_parts;
      continue;
    }
    for (int64_t p = 0; p < num_parts; ++p) {
      elements += static_cast<double>(member.counts[p]);
    }
  }
  return elements;
}

// Elements that the busiest rank sends to others, or gets from them.
double BusiestOwnElements(const Transfer& transfer, uint32_t m) {
  const int size = transfer.size;
  double busiest = 0;
  for (int rank = 0; rank < size; ++rank) {
    const uint64_t* const counts = transfer.launches[rank].members[m].counts;
    double sent = 0;
    double received = 0;
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      sent += static_cast<double>(counts[peer]);
      received += static_cast<double>(counts[size + peer]);
    }
    busiest = std::max({busiest, sent, received});
  }
  return busiest;
}

// Elements that one direction of a member's link carries.
double WireElements(const Transfer& transfer) {
  const commsched_launch_t& shape = transfer.shape();
  const int size = transfer.size;
  if (shape.kind != COMMSCHED_ALL_TO_ALL) {
    return LinkShare(KindOf(shape.kind), size) * ArrayElements(transfer);
  }
  double elements = 0;
  for (uint32_t m = 0; m < shape.num_members; ++m) {
    if (HasOwnCounts(shape)) {
      elements += BusiestOwnElements(transfer, m);
      continue;
    }
    const commsched_member_t& member = shape.members[m];
    elements +=
        member.counts == nullptr
            ? static_cast<double>(member.count) * (size - 1)
            : BusiestElements(
                  absl::MakeConstSpan(member.counts, uint64_t{1} * size * size),
                  size);
  }
  return elements;
}

}  // namespace

uint64_t Transfer::PartOf(uint32_t m, int64_t part) const {
  if (!HasOwnCounts(shape())) return PartElements(shape().members[m], part);
  return launches[part / size].members[m].counts[part % size];
}

BlockCursor::BlockCursor(const Transfer& transfer)
    : transfer_(transfer),
      block_elements_(BlockElements(transfer)),
      num_parts_(NumParts(KindOf(transfer.shape().kind), transfer.size)) {
  if (transfer.shape().num_members != 0) EnterPart();
}

void BlockCursor::EnterPart() {
  part_elements_ = transfer_.PartOf(at_.member, at_.part);
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
    at_.input_base += transfer_.PartOf(at_.member, sender * size + r);
  }
  for (int64_t s = 0; s < sender; ++s) {
    at_.output_base += transfer_.PartOf(at_.member, s * size + receiver);
  }
}

const TransferBlock& BlockCursor::At(uint64_t index) {
  bool moved = false;
  while (index - first_index_ >= part_blocks_) {
    NextPart();
    moved = true;
  }
  if (moved) FindBases();
  at_.offset = (index - first_index_) * block_elements_;
  at_.count = std::min(block_elements_, part_elements_ - at_.offset);
  return at_;
}

uint64_t NumBlocks(const Transfer& transfer) {
  const commsched_launch_t& shape = transfer.shape();
  if (shape.kind == COMMSCHED_BARRIER) return 0;
  const uint64_t per_block = BlockElements(transfer);
  const int64_t num_parts = NumParts(KindOf(shape.kind), transfer.size);
  uint64_t num_blocks = 0;
  for (uint32_t m = 0; m < shape.num_members; ++m) {
    for (int64_t p = 0; p < num_parts; ++p) {
      num_blocks += NumBlocksOf(transfer.PartOf(m, p), per_block);
    }
  }
  return num_blocks;
}

double WireBytes(const Transfer& transfer) {
  if (transfer.shape().kind == COMMSCHED_BARRIER) return 0;
  return WireElements(transfer) * static_cast<double>(ElementBytes(transfer));
}

}  // namespace commsched
