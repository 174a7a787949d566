// The two 16-bit floating-point formats, as fp32 and back.
//
// Integer arithmetic rather than the processor's conversions: the same bits on
// every machine and in every rounding of denormals, and compilers vectorise it.
#ifndef COMMSCHED_SRC_KERNELS_FLOAT16_H_
#define COMMSCHED_SRC_KERNELS_FLOAT16_H_

#include <bit>
#include <cstdint>

#include "kernels/element.h"

namespace commsched {

// `a` if `condition`, else `b`. With masks, as compilers do not vectorise a
// choice one side of which is a floating-point operation.
COMMSCHED_ELEMENT uint32_t Select(bool condition, uint32_t a, uint32_t b) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return (a & mask) | (b & ~mask);
}

// IEEE binary16. Exact.
COMMSCHED_ELEMENT float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  // Exponent bias 15 becomes 127; 31, of infinity and NaN, becomes 255.
  const uint32_t rebias = magnitude >= 0x7c00u ? 224u << 23 : 112u << 23;
  const uint32_t normal = (magnitude << 13) + rebias;
  const uint32_t subnormal = std::bit_cast<uint32_t>(
      static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  return std::bit_cast<float>(Select(magnitude < 0x0400u, subnormal, normal) |
                              sign);
}

// To nearest, ties to even; NaN stays NaN, too large becomes infinity.
COMMSCHED_ELEMENT uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t even = (magnitude >> 13) & 1u;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + even) >> 13;
  // The last bit of 0.5f is the smallest half, so this addition rounds.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
      std::bit_cast<uint32_t>(0.5f);
  const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  uint32_t half = Select(magnitude < 0x38800000u, subnormal, normal);
  half = Select(magnitude >= 0x477ff000u, 0x7c00u, half);  // From 65520 on.
  half = Select(magnitude > 0x7f800000u, nan, half);
  return static_cast<uint16_t>(half | sign);
}

// bfloat16. Exact.
COMMSCHED_ELEMENT float Bfloat16ToFloat(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

// To nearest, ties to even; NaN stays NaN.
COMMSCHED_ELEMENT uint16_t FloatToBfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x0040u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan
                                                                  : rounded);
}

}  // namespace commsched

#endif  // COMMSCHED_SRC_KERNELS_FLOAT16_H_
