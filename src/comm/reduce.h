#ifndef COMMSCHED_SRC_COMM_REDUCE_H_
#define COMMSCHED_SRC_COMM_REDUCE_H_

#include <cstdint>

#include "base/dtype.h"

namespace commsched {

// `count` elements of each input, combined one by one in the order of the
// inputs (I4).
struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  int num_inputs = 0;  // At least 1.
  const void* const* inputs = nullptr;
  void* result = nullptr;  // Apart from the inputs, or at the address of one.
  uint64_t count = 0;

  // What is reduced next, as many inputs of as many elements, or nullptr. It is
  // fetched into the cache meanwhile: inputs that are only a few cache lines
  // each are over before the processor sees where they lead.
  const void* const* next_inputs = nullptr;
  const void* next_result = nullptr;
};

// Accumulators are fp32 for f32, f16 and bf16, else of the type itself. So the
// result of a 16-bit type is rounded once. Sums and products of integers wrap.
// NaN wins over numbers in min and max. kAvg divides the sum by the number of
// inputs: f64 by multiplying with 1/inputs in f64, other floats in fp32;
// integers divide the exact sum, which is wider than the type, truncating
// towards zero.
void Reduce(DType dtype, const Reduction& reduction);

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_REDUCE_H_
