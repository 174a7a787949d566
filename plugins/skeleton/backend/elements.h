// Element types, and what a reduction makes of them. Sums go in the order of
// the tree over the ranks (plugin.h), the 16-bit floats as f32: any backend
// that says TREE_SUMS gives these bits.
#ifndef COMMSCHED_PLUGINS_SKELETON_BACKEND_ELEMENTS_H_
#define COMMSCHED_PLUGINS_SKELETON_BACKEND_ELEMENTS_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "commsched/plugin.h"

namespace commsched::skeleton {

inline uint64_t ElementBytes(commsched_dtype_t dtype) {
  switch (dtype) {
    case COMMSCHED_F64:
    case COMMSCHED_I64:
      return 8;
    case COMMSCHED_F16:
    case COMMSCHED_BF16:
      return 2;
    case COMMSCHED_I8:
    case COMMSCHED_U8:
      return 1;
    default:
      return 4;  // F32, I32
  }
}

// The upper half of an f32; to nearest, ties to even.
struct BFloat16 {
  uint16_t bits;
  float Load() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
  static BFloat16 Store(float value) {
    const uint32_t wide = std::bit_cast<uint32_t>(value);
    if (std::isnan(value)) return {static_cast<uint16_t>(wide >> 16 | 0x40)};
    return {static_cast<uint16_t>((wide + 0x7fff + (wide >> 16 & 1)) >> 16)};
  }
};

// IEEE binary16; to nearest, ties to even.
struct Half {
  uint16_t bits;
  float Load() const {
    const int exponent = bits >> 10 & 31;
    const float fraction = static_cast<float>(bits & 0x3ff);
    float value = exponent == 0 ? std::ldexp(fraction, -24)
                                : std::ldexp(fraction + 1024, exponent - 25);
    if (exponent == 31) value = fraction == 0 ? INFINITY : NAN;
    return (bits & 0x8000) != 0 ? -value : value;
  }
  static Half Store(float value) {
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const float size = std::fabs(value);
    if (std::isnan(value)) return {static_cast<uint16_t>(sign | 0x7e00)};
    if (size >= 65520) return {static_cast<uint16_t>(sign | 0x7c00)};
    // In units of the last place of a half of this size. Rounding up to the
    // next power of two carries into the exponent, as it should.
    int exponent = 0;
    std::frexp(size, &exponent);
    if (size < 0x1p-14f) exponent = -13;  // A subnormal, or 0.
    const auto units =
        static_cast<int>(std::nearbyint(std::ldexp(size, 11 - exponent)));
    const int magnitude = ((exponent + 13) << 10) + units;
    return {static_cast<uint16_t>(sign | magnitude)};
  }
};

template <typename T>
T CombineTwo(commsched_reduce_op_t op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (op == COMMSCHED_MIN || op == COMMSCHED_MAX) {
      if (std::isnan(a) || std::isnan(b)) {
        return std::numeric_limits<T>::quiet_NaN();
      }
    }
    if (op == COMMSCHED_PROD) return a * b;
  }
  if (op == COMMSCHED_MIN) return b < a ? b : a;
  if (op == COMMSCHED_MAX) return b > a ? b : a;
  if constexpr (std::is_integral_v<T>) {  // Modulo 2^bits.
    const auto wide_a = static_cast<uint64_t>(a);
    const auto wide_b = static_cast<uint64_t>(b);
    return static_cast<T>(op == COMMSCHED_PROD ? wide_a * wide_b
                                               : wide_a + wide_b);
  } else {
    return a + b;
  }
}

// What the values `load(begin)` to `load(end - 1)` are together.
template <typename Sum, typename Load>
Sum CombineTree(commsched_reduce_op_t op, const Load& load, size_t begin,
                size_t end) {
  if (end - begin == 1) return load(begin);
  const size_t middle = begin + std::bit_floor(end - begin - 1);
  return CombineTwo(op, CombineTree<Sum>(op, load, begin, middle),
                    CombineTree<Sum>(op, load, middle, end));
}

// The mean of integers fits their type, and their sum may not.
__extension__ typedef __int128 WideInteger;

// `Element` is how a value lies in memory; it is summed up as a `Sum`.
template <typename Sum, typename Element>
void CombineAs(const commsched_launch_t& launch,
               const std::vector<const char*>& inputs,
               const std::vector<char*>& outputs, uint64_t count) {
  const auto load = [&](size_t rank, uint64_t i) -> Sum {
    const Element& element = reinterpret_cast<const Element*>(inputs[rank])[i];
    if constexpr (std::is_same_v<Sum, Element>) {
      return element;
    } else {
      return element.Load();
    }
  };
  for (uint64_t i = 0; i < count; ++i) {
    Sum sum = CombineTree<Sum>(
        launch.reduce_op, [&](size_t rank) { return load(rank, i); }, 0,
        inputs.size());
    if (launch.reduce_op == COMMSCHED_AVG) {
      if constexpr (std::is_integral_v<Sum>) {
        WideInteger exact = 0;
        for (size_t rank = 0; rank < inputs.size(); ++rank) {
          exact += load(rank, i);
        }
        sum = static_cast<Sum>(exact / static_cast<WideInteger>(inputs.size()));
      } else {
        sum = sum * (Sum{1} / static_cast<Sum>(inputs.size()));
      }
    }
    for (char* output : outputs) {
      Element& element = reinterpret_cast<Element*>(output)[i];
      if constexpr (std::is_same_v<Sum, Element>) {
        element = sum;
      } else {
        element = Element::Store(sum);
      }
    }
  }
}

// Combines `count` elements of the inputs of all ranks; the result goes to each
// of `outputs`.
inline void Combine(const commsched_launch_t& launch,
                    const std::vector<const char*>& inputs,
                    const std::vector<char*>& outputs, uint64_t count) {
  switch (launch.dtype) {
    case COMMSCHED_F32:
      return CombineAs<float, float>(launch, inputs, outputs, count);
    case COMMSCHED_F64:
      return CombineAs<double, double>(launch, inputs, outputs, count);
    case COMMSCHED_F16:
      return CombineAs<float, Half>(launch, inputs, outputs, count);
    case COMMSCHED_BF16:
      return CombineAs<float, BFloat16>(launch, inputs, outputs, count);
    case COMMSCHED_I8:
      return CombineAs<int8_t, int8_t>(launch, inputs, outputs, count);
    case COMMSCHED_I32:
      return CombineAs<int32_t, int32_t>(launch, inputs, outputs, count);
    case COMMSCHED_I64:
      return CombineAs<int64_t, int64_t>(launch, inputs, outputs, count);
    default:  // U8
      return CombineAs<uint8_t, uint8_t>(launch, inputs, outputs, count);
  }
}

}  // namespace commsched::skeleton

#endif  // COMMSCHED_PLUGINS_SKELETON_BACKEND_ELEMENTS_H_
