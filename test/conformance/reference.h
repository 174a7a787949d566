// Collectives computed one element after the other, from their definition.
#ifndef COMMSCHED_TEST_CONFORMANCE_REFERENCE_H_
#define COMMSCHED_TEST_CONFORMANCE_REFERENCE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "commsched/plugin.h"

namespace commsched {

using Bytes = std::vector<std::byte>;

// One member of a launch as every rank has it.
struct MemberCase {
  uint64_t count = 0;
  std::vector<uint64_t> counts;  // Empty: equal parts of `count`.
  // Elements that rank 0 leaves free between equal parts. Others leave more.
  uint64_t gap = 0;

  uint64_t Part(int64_t index) const {
    return counts.empty() ? count : counts[index];
  }
};

struct Shape {
  commsched_collective_t kind = COMMSCHED_ALL_REDUCE;
  commsched_dtype_t dtype = COMMSCHED_F32;
  commsched_reduce_op_t reduce_op = COMMSCHED_SUM;
  int32_t root = 0;
  int size = 1;
  // The least and the greatest of something and NaN is NaN; else either.
  bool keeps_nan = true;
  double scale = 1;  // PREMUL_SUM
};

uint64_t ElementBytes(commsched_dtype_t dtype);

// Elements that `rank` reads and writes.
uint64_t InputElements(const Shape& shape, const MemberCase& member, int rank);
uint64_t OutputElements(const Shape& shape, const MemberCase& member, int rank);

// Elements in front of the part of `rank` in the array that is shared out or
// put together (REDUCE_SCATTER, ALL_GATHER).
uint64_t PartOffset(const MemberCase& member, int rank);

// The outputs of all ranks from their inputs, reductions in the order of the
// tree (plugin.h).
std::vector<Bytes> ReferenceOutputs(const Shape& shape,
                                    const MemberCase& member,
                                    const std::vector<Bytes>& inputs);

// Whether two elements are the same bits, or both NaN.
bool SameElements(commsched_dtype_t dtype, const Bytes& a, const Bytes& b);

// Whether floating-point elements are equal but for the order of `size` sums of
// terms no greater than about 4; other types must be the same. `any_for_nan`:
// where `b` is NaN `a` may be anything.
bool CloseElements(commsched_dtype_t dtype, int size, const Bytes& a,
                   const Bytes& b, bool any_for_nan);

}  // namespace commsched

#endif  // COMMSCHED_TEST_CONFORMANCE_REFERENCE_H_
