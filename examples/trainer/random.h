#ifndef COMMSCHED_EXAMPLES_TRAINER_RANDOM_H_
#define COMMSCHED_EXAMPLES_TRAINER_RANDOM_H_

// A counter-based generator: number `index` of stream `stream` is a pure
// function, with no state to share, save or advance. Any rank can therefore
// compute any number, and test/trainer/reference.py computes the same ones.

#include <cmath>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace commsched::trainer {

inline constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15u;

// The output function of SplitMix64 (Steele, Lea, Flood 2014).
inline constexpr uint64_t Mix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// The stream that belongs to a name: 64-bit FNV-1a.
inline constexpr uint64_t StreamOf(absl::string_view name) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  }
  return hash;
}

// 64 uniform bits.
inline constexpr uint64_t RandomBits(uint64_t seed, uint64_t stream,
                                     uint64_t index) {
  const uint64_t key = Mix64(Mix64(seed + kGoldenRatio) ^ stream);
  return Mix64(key + (index + 1) * kGoldenRatio);
}

// Uniform in [0, 1), a multiple of 2^-53.
inline constexpr double RandomUniform(uint64_t seed, uint64_t stream,
                                      uint64_t index) {
  return static_cast<double>(RandomBits(seed, stream, index) >> 11) * 0x1p-53;
}

// Uniform in [0, bound), by the high half of a 128-bit product.
inline constexpr uint64_t RandomBelow(uint64_t bound, uint64_t seed,
                                      uint64_t stream, uint64_t index) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(
      (static_cast<Wide>(RandomBits(seed, stream, index)) * bound) >> 64);
}

// Standard normal (Box-Muller); uses uniforms 2 index and 2 index + 1.
inline double RandomNormal(uint64_t seed, uint64_t stream, uint64_t index) {
  constexpr double kTwoPi = 6.283185307179586;
  const double radius_u = 1.0 - RandomUniform(seed, stream, 2 * index);
  const double angle_u = RandomUniform(seed, stream, 2 * index + 1);
  return std::sqrt(-2.0 * std::log(radius_u)) * std::cos(kTwoPi * angle_u);
}

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_RANDOM_H_
