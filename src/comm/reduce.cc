#include "comm/reduce.h"

#include <cstring>
#include <type_traits>

#include "comm/float16.h"

// Compiled for several instruction sets, the best one is bound when the library
// is loaded. Not under sanitizers: they are not ready at that time. No kernel
// has a product that is added to something, so there is nothing to contract
// into a fused operation, and all clones give the same bits.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COMMSCHED_VECTOR_CLONES \
  __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define COMMSCHED_VECTOR_CLONES
#endif

// What the clones are made of must be inlined into each of them.
#define COMMSCHED_INTO_CLONES inline __attribute__((always_inline))

namespace commsched {
namespace {

// Element formats: how an element is stored, and what it is summed in.
template <typename T>
struct Plain {
  using Element = T;
  using Accumulator = T;
  static COMMSCHED_INTO_CLONES T Widen(T value) { return value; }
  static COMMSCHED_INTO_CLONES T Narrow(T value) { return value; }
};

struct Half {
  using Element = uint16_t;
  using Accumulator = float;
  static COMMSCHED_INTO_CLONES float Widen(uint16_t value) {
    return HalfToFloat(value);
  }
  static COMMSCHED_INTO_CLONES uint16_t Narrow(float value) {
    return FloatToHalf(value);
  }
};

struct Bfloat16 {
  using Element = uint16_t;
  using Accumulator = float;
  static COMMSCHED_INTO_CLONES float Widen(uint16_t value) {
    return Bfloat16ToFloat(value);
  }
  static COMMSCHED_INTO_CLONES uint16_t Narrow(float value) {
    return FloatToBfloat16(value);
  }
};

// Sums and products of signed integers wrap, so they are taken in the unsigned
// type, where overflow is defined.
template <typename T>
COMMSCHED_INTO_CLONES T Sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}

template <typename T>
COMMSCHED_INTO_CLONES T Product(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) * static_cast<Unsigned>(b));
  } else {
    return a * b;
  }
}

// `b != b` is NaN; if `a` is NaN, no comparison holds and it stays.
template <typename T>
COMMSCHED_INTO_CLONES T Min(T a, T b) {
  return ((b < a) | (b != b)) ? b : a;
}

template <typename T>
COMMSCHED_INTO_CLONES T Max(T a, T b) {
  return ((b > a) | (b != b)) ? b : a;
}

template <typename Format>
COMMSCHED_INTO_CLONES void Load(void* accumulators, const void* input,
                                uint64_t count) {
  auto* __restrict to =
      static_cast<typename Format::Accumulator*>(accumulators);
  auto* __restrict from = static_cast<const typename Format::Element*>(input);
  for (uint64_t i = 0; i < count; ++i) to[i] = Format::Widen(from[i]);
}

template <typename Format>
COMMSCHED_INTO_CLONES void Combine(ReduceOp op, void* accumulators,
                                   const void* input, uint64_t count) {
  auto* __restrict sum =
      static_cast<typename Format::Accumulator*>(accumulators);
  auto* __restrict in = static_cast<const typename Format::Element*>(input);
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      for (uint64_t i = 0; i < count; ++i) {
        sum[i] = Sum(sum[i], Format::Widen(in[i]));
      }
      break;
    case ReduceOp::kMin:
      for (uint64_t i = 0; i < count; ++i) {
        sum[i] = Min(sum[i], Format::Widen(in[i]));
      }
      break;
    case ReduceOp::kMax:
      for (uint64_t i = 0; i < count; ++i) {
        sum[i] = Max(sum[i], Format::Widen(in[i]));
      }
      break;
    case ReduceOp::kProd:
      for (uint64_t i = 0; i < count; ++i) {
        sum[i] = Product(sum[i], Format::Widen(in[i]));
      }
      break;
  }
}

template <typename Format>
COMMSCHED_INTO_CLONES void Store(ReduceOp op, int divisor, void* result,
                                 const void* accumulators, uint64_t count) {
  using Accumulator = typename Format::Accumulator;
  auto* __restrict out = static_cast<typename Format::Element*>(result);
  auto* __restrict sum = static_cast<const Accumulator*>(accumulators);
  if (op != ReduceOp::kAvg) {
    for (uint64_t i = 0; i < count; ++i) out[i] = Format::Narrow(sum[i]);
  } else if constexpr (std::is_integral_v<Accumulator>) {
    // In 64 bits, as the divisor may not fit the type.
    using Wide =
        std::conditional_t<std::is_signed_v<Accumulator>, int64_t, uint64_t>;
    const Wide wide_divisor = static_cast<Wide>(divisor);
    for (uint64_t i = 0; i < count; ++i) {
      out[i] =
          static_cast<Accumulator>(static_cast<Wide>(sum[i]) / wide_divisor);
    }
  } else {
    const Accumulator factor =
        Accumulator{1} / static_cast<Accumulator>(divisor);
    for (uint64_t i = 0; i < count; ++i) {
      out[i] = Format::Narrow(sum[i] * factor);
    }
  }
}

// The clones themselves: attributes do not go on templates.
#define COMMSCHED_DEFINE_KERNEL(Name, Format)                                  \
  COMMSCHED_VECTOR_CLONES void Load##Name(void* accumulators,                  \
                                          const void* input, uint64_t count) { \
    Load<Format>(accumulators, input, count);                                  \
  }                                                                            \
  COMMSCHED_VECTOR_CLONES void Combine##Name(                                  \
      ReduceOp op, void* accumulators, const void* input, uint64_t count) {    \
    Combine<Format>(op, accumulators, input, count);                           \
  }                                                                            \
  COMMSCHED_VECTOR_CLONES void Store##Name(                                    \
      ReduceOp op, int divisor, void* result, const void* accumulators,        \
      uint64_t count) {                                                        \
    Store<Format>(op, divisor, result, accumulators, count);                   \
  }                                                                            \
  constexpr ReduceKernel k##Name = {sizeof(Format::Accumulator), &Load##Name,  \
                                    &Combine##Name, &Store##Name}

COMMSCHED_DEFINE_KERNEL(F32, Plain<float>);
COMMSCHED_DEFINE_KERNEL(F64, Plain<double>);
COMMSCHED_DEFINE_KERNEL(F16, Half);
COMMSCHED_DEFINE_KERNEL(BF16, Bfloat16);
COMMSCHED_DEFINE_KERNEL(I8, Plain<int8_t>);
COMMSCHED_DEFINE_KERNEL(I32, Plain<int32_t>);
COMMSCHED_DEFINE_KERNEL(I64, Plain<int64_t>);
COMMSCHED_DEFINE_KERNEL(U8, Plain<uint8_t>);

}  // namespace

const ReduceKernel& ReduceKernelFor(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return kF32;
    case DType::kF64:
      return kF64;
    case DType::kF16:
      return kF16;
    case DType::kBF16:
      return kBF16;
    case DType::kI8:
      return kI8;
    case DType::kI32:
      return kI32;
    case DType::kI64:
      return kI64;
    case DType::kU8:
      return kU8;
  }
  return kF32;  // Unreachable: DType comes from DTypeFromInt().
}

}  // namespace commsched
