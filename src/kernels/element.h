// How functions of one element are compiled: into each loop of a processor that
// is made of them, and into the kernels of a device.
#ifndef COMMSCHED_SRC_KERNELS_ELEMENT_H_
#define COMMSCHED_SRC_KERNELS_ELEMENT_H_

#ifdef __CUDACC__
#define COMMSCHED_ELEMENT \
  __host__ __device__ inline __attribute__((always_inline))
#else
#define COMMSCHED_ELEMENT inline __attribute__((always_inline))
#endif

// In front of a loop whose number of rounds is a constant.
#if defined(__CUDACC__) || defined(__clang__)
#define COMMSCHED_UNROLL _Pragma("unroll")
#else
#define COMMSCHED_UNROLL _Pragma("GCC unroll 64")
#endif

// In front of a loop of many rounds: several reads of a thread are under way.
#ifdef __CUDACC__
#define COMMSCHED_UNROLL_SOME _Pragma("unroll 8")
#else
#define COMMSCHED_UNROLL_SOME
#endif

#endif  // COMMSCHED_SRC_KERNELS_ELEMENT_H_
