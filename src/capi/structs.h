// Structs that grow: how those of older and newer callers are read and written.
#ifndef COMMSCHED_SRC_CAPI_STRUCTS_H_
#define COMMSCHED_SRC_CAPI_STRUCTS_H_

#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace commsched {

// No struct of the ABI is larger; a greater struct_size is an uninitialised
// one.
inline constexpr uint64_t kMaxStructSize = 4096;

// Copies the caller's struct `in`, whose first field is its size, into `ours`
// of `our_size` bytes: fields that the caller does not have become 0, and those
// that we do not have must be 0. kInvalidArgument, naming `type`, otherwise.
absl::Status CopyStructIn(const void* in, void* ours, uint64_t our_size,
                          absl::string_view type);

// Copies `ours` to the caller's struct `out`, as far as both have the fields.
// The caller's struct_size stays. kInvalidArgument if it is not set.
absl::Status CopyStructOut(const void* ours, uint64_t our_size, void* out,
                           absl::string_view type);

template <typename T>
absl::StatusOr<T> ReadStruct(const T* in, absl::string_view type) {
  static_assert(std::is_trivially_copyable_v<T>);
  T ours;
  RETURN_IF_ERROR(CopyStructIn(in, &ours, sizeof(T), type));
  return ours;
}

template <typename T>
absl::Status WriteStruct(const T& ours, T* out, absl::string_view type) {
  static_assert(std::is_trivially_copyable_v<T>);
  return CopyStructOut(&ours, sizeof(T), out, type);
}

// Of a `type` that is made with the ABI in it: kInvalidArgument if that is not
// set, kFailedPrecondition if it is newer than ours.
absl::Status CheckAbiVersion(const char* type, uint32_t version);

}  // namespace commsched

#endif  // COMMSCHED_SRC_CAPI_STRUCTS_H_
