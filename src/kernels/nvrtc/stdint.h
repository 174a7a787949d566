// For NVRTC, which has no headers of the C library (cmake/compile_kernels.py).
#ifndef COMMSCHED_SRC_KERNELS_NVRTC_STDINT_H_
#define COMMSCHED_SRC_KERNELS_NVRTC_STDINT_H_

using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned;
using uint64_t = unsigned long;
using uintptr_t = unsigned long;

#endif  // COMMSCHED_SRC_KERNELS_NVRTC_STDINT_H_
