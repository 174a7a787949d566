// Arithmetic on sizes that come from outside: overflow is an answer, not a
// wrapped number.
#ifndef COMMSCHED_SRC_BASE_CHECKED_MATH_H_
#define COMMSCHED_SRC_BASE_CHECKED_MATH_H_

#include <cstdint>
#include <type_traits>

#include "absl/types/optional.h"

namespace commsched {

// a + b, or nullopt if it does not fit T (int64_t or uint64_t).
template <typename T>
constexpr absl::optional<T> CheckedAdd(T a, std::type_identity_t<T> b) {
  static_assert(std::is_same_v<T, int64_t> || std::is_same_v<T, uint64_t>);
  T sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return absl::nullopt;
  return sum;
}

// a * b, or nullopt if it does not fit T (int64_t or uint64_t).
template <typename T>
constexpr absl::optional<T> CheckedMul(T a, std::type_identity_t<T> b) {
  static_assert(std::is_same_v<T, int64_t> || std::is_same_v<T, uint64_t>);
  T product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return absl::nullopt;
  return product;
}

}  // namespace commsched

#endif  // COMMSCHED_SRC_BASE_CHECKED_MATH_H_
