#ifndef COMMSCHED_SRC_COMM_REDUCE_H_
#define COMMSCHED_SRC_COMM_REDUCE_H_

#include <cstdint>

#include "base/dtype.h"

namespace commsched {

// How elements of one type are reduced: the first input is loaded into
// accumulators, the others are combined with them one after the other, then the
// result is stored. The order of the calls is the order of the sum (I4).
//
// Accumulators are fp32 for f32, f16 and bf16, else of the type itself. So the
// result of a 16-bit type is rounded once. Integers wrap. NaN wins over numbers
// in min and max. Accumulators must not overlap with inputs or results.
struct ReduceKernel {
  uint32_t accumulator_bytes;  // Of one element.
  void (*load)(void* accumulators, const void* input, uint64_t count);
  void (*combine)(ReduceOp op, void* accumulators, const void* input,
                  uint64_t count);
  // With kAvg divides by `divisor`: integers truncating towards zero, f64 by
  // multiplying with 1/divisor in f64, the others in fp32.
  void (*store)(ReduceOp op, int divisor, void* result,
                const void* accumulators, uint64_t count);
};

const ReduceKernel& ReduceKernelFor(DType dtype);

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_REDUCE_H_
