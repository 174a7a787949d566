/// Element types, reductions, collective kinds, kinds of devices. Shared by
/// every header.
#ifndef COMMSCHED_TYPES_H_
#define COMMSCHED_TYPES_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Element type. The first eight are those of graphs and of backends. The
/// others are for channels: they travel as bytes, and of some there are sums
/// (docs/types.md).
typedef uint32_t commsched_dtype_t;
enum {
  COMMSCHED_F32 = 0,
  COMMSCHED_F64 = 1,
  COMMSCHED_F16 = 2,
  COMMSCHED_BF16 = 3,
  COMMSCHED_I8 = 4,
  COMMSCHED_I32 = 5,
  COMMSCHED_I64 = 6,
  COMMSCHED_U8 = 7,
  COMMSCHED_I16 = 8,
  COMMSCHED_U16 = 9,
  COMMSCHED_U32 = 10,
  COMMSCHED_U64 = 11,
  COMMSCHED_F8_E4M3 = 12,
  COMMSCHED_F8_E5M2 = 13,
  COMMSCHED_C64 = 14,   ///< Two f32: real and imaginary part.
  COMMSCHED_C128 = 15,  ///< Two f64.
  COMMSCHED_BOOL = 16   ///< A byte: 0 is false, all else true.
};

/// Reduction. AVG multiplies the sum by the reciprocal of the group size; of
/// integers it is the exact sum, which may not fit, divided towards zero. The
/// last four are not for graphs. BAND, BOR and BXOR combine the bits of
/// integers. PREMUL_SUM multiplies each input by the launch's scale before it
/// is added (commsched_launch_t::scale).
typedef uint32_t commsched_reduce_op_t;
enum {
  COMMSCHED_SUM = 0,
  COMMSCHED_AVG = 1,
  COMMSCHED_MIN = 2,
  COMMSCHED_MAX = 3,
  COMMSCHED_PROD = 4,
  COMMSCHED_BAND = 5,
  COMMSCHED_BOR = 6,
  COMMSCHED_BXOR = 7,
  COMMSCHED_PREMUL_SUM = 8
};

/// Collective. n is the size of the group; counts are elements.
typedef uint32_t commsched_collective_t;
enum {
  COMMSCHED_ALL_REDUCE = 0,      ///< in c -> out c
  COMMSCHED_REDUCE_SCATTER = 1,  ///< in n*c -> out c (or counts[rank])
  COMMSCHED_ALL_GATHER = 2,      ///< in c (or counts[rank]) -> out n*c
  COMMSCHED_ALL_TO_ALL = 3,      ///< in n*c -> out n*c (or n x n counts)
  COMMSCHED_BROADCAST = 4,       ///< root's in c -> every out c
  COMMSCHED_REDUCE = 5,          ///< every in c -> root's out c
  COMMSCHED_BARRIER = 6,         ///< no buffers
  COMMSCHED_SEND = 7,            ///< in c -> the peer's RECV
  COMMSCHED_RECV = 8             ///< the peer's SEND -> out c
};

/// Where a rank computes, and where the memory of launches is.
typedef uint32_t commsched_device_kind_t;
enum { COMMSCHED_DEVICE_HOST = 0, COMMSCHED_DEVICE_CUDA = 1 };

/// Id of an op, a buffer or a group within one graph: dense, from 0, in the
/// order in which they were added.
typedef uint32_t commsched_op_id_t;
typedef uint32_t commsched_buffer_id_t;
typedef uint32_t commsched_group_id_t;

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_TYPES_H_
