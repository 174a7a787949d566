// The library's types and reductions, as NCCL's.
#ifndef COMMSCHED_PLUGINS_NCCL_ELEMENTS_H_
#define COMMSCHED_PLUGINS_NCCL_ELEMENTS_H_

#include <nccl.h>

#include <cstddef>
#include <cstdint>

#include "commsched/plugin.h"

namespace commsched::nccl {

struct DType {
  ncclDataType_t type;
  size_t bytes;
};

// By commsched_dtype_t.
inline constexpr DType kDTypes[] = {
    {ncclFloat32, 4}, {ncclFloat64, 8}, {ncclFloat16, 2}, {ncclBfloat16, 2},
    {ncclInt8, 1},    {ncclInt32, 4},   {ncclInt64, 8},   {ncclUint8, 1}};
// By commsched_reduce_op_t.
inline constexpr ncclRedOp_t kReductions[] = {ncclSum, ncclAvg, ncclMin,
                                              ncclMax, ncclProd};

inline const DType& DTypeOf(const commsched_launch_t& launch) {
  return kDTypes[launch.dtype];
}
inline ncclRedOp_t ReductionOf(const commsched_launch_t& launch) {
  return kReductions[launch.reduce_op];
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
