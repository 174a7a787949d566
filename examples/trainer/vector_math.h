#ifndef COMMSCHED_EXAMPLES_TRAINER_VECTOR_MATH_H_
#define COMMSCHED_EXAMPLES_TRAINER_VECTOR_MATH_H_

// Elementary functions without calls, tables or branches, so that a loop over
// them becomes vector code. libm's are called once per element.

#include <bit>
#include <cstdint>

namespace commsched::trainer {

#define COMMSCHED_ALWAYS_INLINE inline __attribute__((always_inline))

// e^x within 2e-7 relative for x in [-87, 88]; x is clamped to that range, so
// there is neither overflow nor a denormal.
//
// e^x = 2^n e^r with n = round(x / ln 2) and |r| <= ln 2 / 2; e^r by the
// polynomial of Cephes' expf; ln 2 in two parts keeps r exact.
COMMSCHED_ALWAYS_INLINE float VectorExp(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds.
  const float n = (x * 1.44269504088896341f + kRounder) - kRounder;
  float r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const int32_t exponent = (static_cast<int32_t>(n) + 127) << 23;
  return p * std::bit_cast<float>(exponent);
}

// GELU in its tanh form, written with a sigmoid:
//   0.5 x (1 + tanh u) = x / (1 + e^-2u),  u = sqrt(2/pi) (x + 0.044715 x^3)
// which, unlike 1 + tanh u, loses no digits where x is very negative.
inline constexpr float kGeluScale = 1.5957691216057308f;  // 2 sqrt(2/pi).
inline constexpr float kGeluCubic = 0.044715f;

COMMSCHED_ALWAYS_INLINE float VectorGelu(float x) {
  const float u2 = kGeluScale * x * (1.0f + kGeluCubic * x * x);
  return x / (1.0f + VectorExp(-u2));
}

COMMSCHED_ALWAYS_INLINE float VectorGeluDerivative(float x) {
  const float u2 = kGeluScale * x * (1.0f + kGeluCubic * x * x);
  const float slope = kGeluScale * (1.0f + 3.0f * kGeluCubic * x * x);
  const float e = VectorExp(-u2);
  const float sigmoid = 1.0f / (1.0f + e);
  return sigmoid + x * slope * (sigmoid * e) * sigmoid;
}

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_VECTOR_MATH_H_
