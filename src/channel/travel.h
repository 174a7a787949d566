// As what the elements of a channel's operation travel.
//
// Backends take eight types (IsComputed()) and some reductions. Of the other
// types, what is moved goes as bytes; what is reduced goes as a type and a
// reduction that give the same:
//
//   i16, u16    by band, bor, bxor      bytes, by the same
//   u32, u64    by sum, prod, and those i32, i64, by the same: bits that wrap
//   c64, c128   by sum, avg, premul_sum pairs of f32, of f64, by the same
//   bool        by sum, max, bor        bytes, by max: true if any is not 0
//   bool        by prod, min, band      bytes, by min: true if none is 0
//
// Everything else is refused.
#ifndef COMMSCHED_SRC_CHANNEL_TRAVEL_H_
#define COMMSCHED_SRC_CHANNEL_TRAVEL_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "commsched/plugin.h"

namespace commsched {

// Fields of a launch.
struct Travel {
  commsched_dtype_t dtype = COMMSCHED_F32;
  commsched_reduce_op_t reduce_op = COMMSCHED_SUM;
  // Elements of the launch for each of the operation: what counts, and parts,
  // are multiplied by.
  uint64_t factor = 1;
  uint64_t count = 0;  // `count` of the operation times `factor`
};

// What `backend` is asked for. `count`: the elements of all parts together, so
// that the product of `factor` and any part's fits, too; bytes are at most
// 2^63-1. `dtype` is not looked at for a barrier, `reduce_op` for kinds that do
// not reduce.
//
// InvalidArgument, naming the value and what would be taken, for a dtype or a
// reduction that is none, a dtype that is not reduced by `reduce_op`, and too
// many elements; Unimplemented, naming the backend as well, if it does not take
// the kind, the type or the reduction. The caller says of which kind that is.
// Never allocates if it is OK. Any thread.
absl::StatusOr<Travel> TravelOf(const commsched_backend_t& backend,
                                commsched_collective_t kind,
                                commsched_dtype_t dtype,
                                commsched_reduce_op_t reduce_op,
                                uint64_t count);

}  // namespace commsched

#endif  // COMMSCHED_SRC_CHANNEL_TRAVEL_H_
