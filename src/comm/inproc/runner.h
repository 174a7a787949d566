#ifndef COMMSCHED_SRC_COMM_INPROC_RUNNER_H_
#define COMMSCHED_SRC_COMM_INPROC_RUNNER_H_

#include <cstdint>
#include <vector>

#include "comm/inproc/transfer.h"

namespace commsched {

// Where one block is read and written, over all members.
struct BlockMemory {
  explicit BlockMemory(int max_size) : inputs(max_size), outputs(max_size) {}

  std::vector<const void*> inputs;  // In the order of the sum; 1 to be copied.
  std::vector<void*> outputs;       // All get the same.
  int num_inputs = 0;
  int num_outputs = 0;
  uint64_t count = 0;  // Elements.
};

// The addresses a runner works with, kept so that it need not allocate. For
// communicators of up to `max_size` members. Owned by one thread at a time.
struct TransferScratch {
  explicit TransferScratch(int max_size)
      : blocks{BlockMemory(max_size), BlockMemory(max_size)} {}

  BlockMemory blocks[2];
};

// Runs blocks of a transfer, on any of its members' threads.
//
// In a list of small members every block is a jump to other memory, and over
// before the processor has seen where it leads: the first cache lines of each
// would be waited for, on every rank. So while a short block runs, the one
// behind it is fetched into the cache.
//
// Thread-compatible.
class BlockRunner {
 public:
  BlockRunner(const Transfer& transfer, TransferScratch* scratch);
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  // Runs block `index`, which is beyond that of the call before; likely to be
  // followed by the next one, if that is less than `end`.
  void Run(uint64_t index, uint64_t end);

 private:
  static constexpr uint64_t kNone = UINT64_MAX;

  void Find(uint64_t index, BlockMemory* memory);
  void FindInputs(const TransferBlock& block, BlockMemory* memory) const;
  void FindOutputs(const TransferBlock& block, BlockMemory* memory) const;
  const void* InputOf(const TransferBlock& block, int rank, int64_t part) const;
  void* OutputOf(const TransferBlock& block, int rank, int64_t part) const;
  void ReduceInputs(const BlockMemory* next) const;
  void CopyToOutputs(const BlockMemory* next) const;

  const Transfer& transfer_;
  const commsched_collective_t kind_;
  const uint64_t element_bytes_;
  BlockCursor cursor_;
  BlockMemory* now_;
  BlockMemory* next_;
  uint64_t next_index_ = kNone;  // Of the block that `next_` is.
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_INPROC_RUNNER_H_
