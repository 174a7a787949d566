// Element types and reductions. The values are those of the public enums.
#ifndef COMMSCHED_SRC_BASE_DTYPE_H_
#define COMMSCHED_SRC_BASE_DTYPE_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace commsched {

enum class DType {
  kF32 = 0,
  kF64 = 1,
  kF16 = 2,
  kBF16 = 3,
  kI8 = 4,
  kI32 = 5,
  kI64 = 6,
  kU8 = 7
};
inline constexpr int kNumDTypes = 8;

enum class ReduceOp { kSum = 0, kAvg = 1, kMin = 2, kMax = 3, kProd = 4 };
inline constexpr int kNumReduceOps = 5;

// Bytes of one element.
constexpr uint64_t DTypeSize(DType dtype) {
  constexpr uint64_t kSizes[kNumDTypes] = {4, 8, 2, 2, 1, 4, 8, 1};
  return kSizes[static_cast<size_t>(dtype)];
}

// "f32", "bf16", "i64" ...; "sum", "avg" ...
absl::string_view DTypeName(DType dtype);
absl::string_view ReduceOpName(ReduceOp op);

// The inverses. InvalidArgument, listing the names, for any other text.
absl::StatusOr<DType> ParseDType(absl::string_view name);
absl::StatusOr<ReduceOp> ParseReduceOp(absl::string_view name);

// From a number that crossed the ABI. InvalidArgument if it names no type.
absl::StatusOr<DType> DTypeFromInt(int64_t value);
absl::StatusOr<ReduceOp> ReduceOpFromInt(int64_t value);

}  // namespace commsched

#endif  // COMMSCHED_SRC_BASE_DTYPE_H_
