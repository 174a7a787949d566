// How an element of each type is stored, what it is computed in, and how two
// are combined.
#ifndef COMMSCHED_SRC_KERNELS_FORMATS_H_
#define COMMSCHED_SRC_KERNELS_FORMATS_H_

#include <cstdint>
#include <type_traits>

#include "kernels/element.h"
#include "kernels/float16.h"

namespace commsched::kernels {

template <typename T>
struct Plain {
  using Element = T;
  using Accumulator = T;
  static COMMSCHED_ELEMENT T Widen(T value) { return value; }
  static COMMSCHED_ELEMENT T Narrow(T value) { return value; }
};

struct Half {
  using Element = uint16_t;
  using Accumulator = float;
  static COMMSCHED_ELEMENT float Widen(uint16_t value) {
    return HalfToFloat(value);
  }
  static COMMSCHED_ELEMENT uint16_t Narrow(float value) {
    return FloatToHalf(value);
  }
};

struct Bfloat16 {
  using Element = uint16_t;
  using Accumulator = float;
  static COMMSCHED_ELEMENT float Widen(uint16_t value) {
    return Bfloat16ToFloat(value);
  }
  static COMMSCHED_ELEMENT uint16_t Narrow(float value) {
    return FloatToBfloat16(value);
  }
};

// Sums and products of signed integers wrap, so they are taken in the unsigned
// type, where overflow is defined.
struct Sum {
  template <typename T>
  static COMMSCHED_ELEMENT T Of(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Unsigned>(a) +
                            static_cast<Unsigned>(b));
    } else {
      return a + b;
    }
  }
};

struct Product {
  template <typename T>
  static COMMSCHED_ELEMENT T Of(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Unsigned>(a) *
                            static_cast<Unsigned>(b));
    } else {
      return a * b;
    }
  }
};

// A sum whose inputs are multiplied by a scale before.
struct ScaledSum : Sum {};

// Of bits, so that a wider type may be combined byte by byte.
struct And {
  static COMMSCHED_ELEMENT uint8_t Of(uint8_t a, uint8_t b) {
    return static_cast<uint8_t>(a & b);
  }
};
struct Or {
  static COMMSCHED_ELEMENT uint8_t Of(uint8_t a, uint8_t b) {
    return static_cast<uint8_t>(a | b);
  }
};
struct Xor {
  static COMMSCHED_ELEMENT uint8_t Of(uint8_t a, uint8_t b) {
    return static_cast<uint8_t>(a ^ b);
  }
};

// `b != b` is NaN; if `a` is NaN, no comparison holds and it stays.
struct Min {
  template <typename T>
  static COMMSCHED_ELEMENT T Of(T a, T b) {
    return ((b < a) | (b != b)) ? b : a;
  }
};

struct Max {
  template <typename T>
  static COMMSCHED_ELEMENT T Of(T a, T b) {
    return ((b > a) | (b != b)) ? b : a;
  }
};

// What a mean multiplies a floating-point sum with.
template <typename Accumulator>
COMMSCHED_ELEMENT Accumulator MeanFactor(uint32_t num_inputs) {
  return Accumulator{1} / static_cast<Accumulator>(num_inputs);
}

// What the sum of an integer mean is taken in: the mean always fits the type,
// and the sum may not. At least twice as wide, so that up to 2^31 inputs fit.
__extension__ typedef __int128 Int128;
template <typename T>
using WideSum =
    std::conditional_t<sizeof(T) < sizeof(int64_t), int64_t, Int128>;

// An integer mean, truncated towards zero.
template <typename T>
COMMSCHED_ELEMENT T MeanOf(WideSum<T> sum, uint32_t num_inputs) {
  return static_cast<T>(sum / static_cast<WideSum<T>>(num_inputs));
}

}  // namespace commsched::kernels

#endif  // COMMSCHED_SRC_KERNELS_FORMATS_H_
