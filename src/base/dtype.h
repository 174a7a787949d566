// Element types and reductions. The values are those of the public enums.
#ifndef COMMSCHED_SRC_BASE_DTYPE_H_
#define COMMSCHED_SRC_BASE_DTYPE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace commsched {

// The first ones are computed with, by backends and in graphs; the others only
// travel (src/channel/travel.h).
enum class DType {
  kF32 = 0,
  kF64 = 1,
  kF16 = 2,
  kBF16 = 3,
  kI8 = 4,
  kI32 = 5,
  kI64 = 6,
  kU8 = 7,
  kI16 = 8,
  kU16 = 9,
  kU32 = 10,
  kU64 = 11,
  kF8E4M3 = 12,
  kF8E5M2 = 13,
  kC64 = 14,
  kC128 = 15,
  kBool = 16
};
inline constexpr int kNumDTypes = 17;
inline constexpr int kNumComputedDTypes = 8;

// Those of graphs come first.
enum class ReduceOp {
  kSum = 0,
  kAvg = 1,
  kMin = 2,
  kMax = 3,
  kProd = 4,
  kBand = 5,
  kBor = 6,
  kBxor = 7,
  kPremulSum = 8
};
inline constexpr int kNumReduceOps = 9;
inline constexpr int kNumGraphReduceOps = 5;

// Bytes of one element.
constexpr uint64_t DTypeSize(DType dtype) {
  constexpr uint64_t kSizes[kNumDTypes] = {4, 8, 2, 2, 1, 4, 8,  1, 2,
                                           2, 4, 8, 1, 1, 8, 16, 1};
  return kSizes[static_cast<size_t>(dtype)];
}

constexpr bool IsComputed(DType dtype) {
  return static_cast<int>(dtype) < kNumComputedDTypes;
}
constexpr bool IsBitwise(ReduceOp op) {
  return op == ReduceOp::kBand || op == ReduceOp::kBor || op == ReduceOp::kBxor;
}

// Whether elements of a type that is computed with are reduced by `op`: those
// of bits are for integers, and a scale is for floating-point numbers.
constexpr bool IsReducible(DType dtype, ReduceOp op) {
  const bool is_integer = dtype >= DType::kI8;
  return IsComputed(dtype) &&
         (is_integer ? op != ReduceOp::kPremulSum : !IsBitwise(op));
}

// "f32", "bf16", "i64" ...; "sum", "avg" ... All of a list: "f32, f64, ...".
absl::string_view DTypeName(DType dtype);
absl::string_view ReduceOpName(ReduceOp op);
std::string ComputedDTypeNames();
std::string GraphReduceOpNames();

// InvalidArgument, naming both and what would be taken, unless IsReducible().
absl::Status CheckReducible(DType dtype, ReduceOp op);

// The inverses. InvalidArgument, listing the names, for any other text.
absl::StatusOr<DType> ParseDType(absl::string_view name);
absl::StatusOr<ReduceOp> ParseReduceOp(absl::string_view name);

// From a number that crossed the ABI. InvalidArgument if it names no type.
absl::StatusOr<DType> DTypeFromInt(int64_t value);
absl::StatusOr<ReduceOp> ReduceOpFromInt(int64_t value);

}  // namespace commsched

#endif  // COMMSCHED_SRC_BASE_DTYPE_H_
