// The library's types and reductions, as NCCL's.
#ifndef COMMSCHED_PLUGINS_NCCL_ELEMENTS_H_
#define COMMSCHED_PLUGINS_NCCL_ELEMENTS_H_

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "commsched/plugin.h"
#include "support/outcome.h"

namespace commsched::nccl {

struct DType {
  ncclDataType_t type;
  size_t bytes;
};

// By commsched_dtype_t.
inline constexpr DType kDTypes[] = {
    {ncclFloat32, 4}, {ncclFloat64, 8}, {ncclFloat16, 2}, {ncclBfloat16, 2},
    {ncclInt8, 1},    {ncclInt32, 4},   {ncclInt64, 8},   {ncclUint8, 1}};
// By commsched_reduce_op_t, but for PREMUL_SUM, which is made for a launch.
inline constexpr ncclRedOp_t kReductions[] = {ncclSum, ncclAvg, ncclMin,
                                              ncclMax, ncclProd};

inline const DType& DTypeOf(const commsched_launch_t& launch) {
  return kDTypes[launch.dtype];
}

inline bool IsReducing(const commsched_launch_t& launch) {
  return launch.kind == COMMSCHED_ALL_REDUCE ||
         launch.kind == COMMSCHED_REDUCE_SCATTER ||
         launch.kind == COMMSCHED_REDUCE;
}

inline bool IsScaled(const commsched_launch_t& launch) {
  return IsReducing(launch) && launch.reduce_op == COMMSCHED_PREMUL_SUM;
}

// kInvalidArgument or kUnimplemented, naming the reduction, for one that NCCL
// does not have, or not in the order of the tree.
inline Outcome CheckReduction(const commsched_launch_t& launch) {
  if (!IsReducing(launch) || launch.reduce_op <= COMMSCHED_PROD) return {};
  const auto refuse = [](commsched_status_t code,
                         const std::string& what) -> Outcome {
    return {code, "NCCL has no reduction " + what +
                      "; it has sum, avg, min, max, prod, and premul_sum of "
                      "floating-point types in an order of its own"};
  };
  switch (launch.reduce_op) {
    case COMMSCHED_BAND:
      return refuse(COMMSCHED_UNIMPLEMENTED, "band");
    case COMMSCHED_BOR:
      return refuse(COMMSCHED_UNIMPLEMENTED, "bor");
    case COMMSCHED_BXOR:
      return refuse(COMMSCHED_UNIMPLEMENTED, "bxor");
    case COMMSCHED_PREMUL_SUM:
      break;
    default:
      return refuse(COMMSCHED_INVALID_ARGUMENT,
                    std::to_string(launch.reduce_op));
  }
  if (launch.dtype > COMMSCHED_BF16) {
    return refuse(COMMSCHED_INVALID_ARGUMENT, "premul_sum of integers");
  }
  if (launch.deterministic != 0) {
    return refuse(COMMSCHED_UNIMPLEMENTED,
                  "premul_sum in the order of the tree");
  }
  return {};
}

// How many there are in the counts of a member, of `size` ranks.
inline uint64_t NumCounts(const commsched_launch_t& launch, int size) {
  const auto n = static_cast<uint64_t>(size);
  return launch.kind == COMMSCHED_ALL_TO_ALL ? n * n : n;
}

inline bool IsMeanOfIntegers(const commsched_launch_t& launch) {
  return launch.reduce_op == COMMSCHED_AVG && launch.dtype >= COMMSCHED_I8;
}

inline const char* At(const void* address, uint64_t elements,
                      const DType& dtype) {
  return static_cast<const char*>(address) + elements * dtype.bytes;
}
inline char* At(void* address, uint64_t elements, const DType& dtype) {
  return static_cast<char*>(address) + elements * dtype.bytes;
}

}  // namespace commsched::nccl

#endif  // COMMSCHED_PLUGINS_NCCL_ELEMENTS_H_
