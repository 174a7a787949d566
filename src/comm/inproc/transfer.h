#ifndef COMMSCHED_SRC_COMM_INPROC_TRANSFER_H_
#define COMMSCHED_SRC_COMM_INPROC_TRANSFER_H_

#include <cstdint>

#include "commsched/plugin.h"

namespace commsched {

// A launch that all members of a communicator have posted, as work on memory
// that one thread can reach.
//
// The work is cut into blocks. An element is read from every input that it
// needs before it is written to any output, and no other block touches its
// bytes: so blocks may run in any order, on any member's thread, and in place
// (runner.h).
struct Transfer {
  int size = 0;  // Members of the communicator.
  // Rank whose data is the first of a sum's; 0 when deterministic (I4).
  int first_rank = 0;
  // What each member posted, by rank; normalized and equal but for addresses,
  // strides, and counts of their own, which fit each other.
  const commsched_launch_t* launches = nullptr;

  const commsched_launch_t& shape() const { return launches[0]; }
  // Elements of part `part` of member `m`; of an all-to-all what rank
  // part / size sends to rank part % size.
  uint64_t PartOf(uint32_t m, int64_t part) const;
};

// One block: `count` elements from `offset` of part `part` of a member.
struct TransferBlock {
  uint32_t member = 0;
  int64_t part = 0;
  uint64_t offset = 0;
  uint64_t count = 0;
  // Of uneven parts, elements in front of the part: where parts lie behind each
  // other, in the whole array; for all_to_all, in the sender's and receiver's.
  uint64_t input_base = 0;
  uint64_t output_base = 0;
};

// Walks through the blocks of a transfer. Thread-compatible.
class BlockCursor {
 public:
  explicit BlockCursor(const Transfer& transfer);

  // The block with number `index`, which must not be less than in the call
  // before and be less than NumBlocks(). Valid until the next call.
  //
  // Not a copy: that reads two fields at once which were just written one by
  // one, and so waits until all that was stored before, the results of the last
  // block among it, has left the processor's store buffer.
  const TransferBlock& At(uint64_t index);

 private:
  void EnterPart();
  void NextPart();
  void FindBases();

  const Transfer& transfer_;
  const uint64_t block_elements_;
  const int64_t num_parts_;
  TransferBlock at_;
  uint64_t part_elements_ = 0;
  uint64_t part_blocks_ = 0;
  uint64_t first_index_ = 0;  // Its number.
};

uint64_t NumBlocks(const Transfer& transfer);

// What one direction of a member's link carries: the array's bytes times
// (n-1)/n, twice that for all_reduce; for all_to_all, what the busiest member
// sends to others or receives from them.
double WireBytes(const Transfer& transfer);

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_INPROC_TRANSFER_H_
