#ifndef COMMSCHED_SRC_COMM_REDUCE_H_
#define COMMSCHED_SRC_COMM_REDUCE_H_

#include <cstdint>

#include "base/dtype.h"
#include "commsched/plugin.h"

namespace commsched {

// The order of sums (I4): a binary tree over the positions of a group. What
// [lo, hi) has is the sum of [lo, m) and of [m, hi), with m - lo the largest
// power of two below hi - lo. So its nodes are aligned blocks, and those that
// end where the group does; and who has a whole node sums it up by itself.

// Whether [lo, hi) is a node of the tree over `size` positions.
bool IsTreeNode(uint32_t lo, uint32_t hi, uint32_t size);

// `count` elements of each input, combined in that order.
struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  int num_inputs = 0;  // At least 1.
  const void* const* inputs = nullptr;
  void* result = nullptr;  // Apart from the inputs, or at the address of one
                           // whose elements are as wide.
  uint64_t count = 0;
  // kPremulSum: what inputs that are no partial sums are multiplied by.
  double scale = 1;

  // What the inputs are the sums of; `data` of each is that of `inputs`, which
  // may then be null. Without it, input i is what position i has.
  const commsched_piece_t* pieces = nullptr;
  // Positions of the group, which a mean divides by; 0: as many as inputs.
  uint32_t size = 0;
  bool result_is_partial = false;

  // What is reduced next, as many inputs of as many elements, or nullptr. It is
  // fetched into the cache meanwhile: inputs that are only a few cache lines
  // each are over before the processor sees where they lead. Not with pieces.
  const void* const* next_inputs = nullptr;
  const void* next_result = nullptr;
};

// Accumulators, which is what partial sums are made of, are fp32 for f32, f16
// and bf16, else of the type itself. So the result of a 16-bit type is rounded
// once. Sums and products of integers wrap. NaN wins over numbers in min and
// max. kAvg divides the sum by the size of the group: f64 by multiplying with
// 1/size in f64, other floats in fp32; integers divide the exact sum, which is
// wider than the type (PartialBytes()), truncating towards zero. kPremulSum
// rounds the scale to the accumulator's type, once, and each product to it,
// before it is added; a partial sum is of products, and not multiplied again.
//
// IsReducible(dtype, reduction.op).
void Reduce(DType dtype, const Reduction& reduction);

// Bytes of an element of a partial sum.
uint64_t PartialBytes(DType dtype, ReduceOp op);

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_REDUCE_H_
