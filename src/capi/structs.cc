#include "capi/structs.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "commsched/version.h"

namespace commsched {
namespace {

constexpr uint64_t kSizeField = sizeof(uint64_t);

// The caller's struct may be shorter than T, so it is looked at as bytes.
absl::StatusOr<uint64_t> StructSizeOf(const void* caller,
                                      absl::string_view type) {
  uint64_t size = 0;
  std::memcpy(&size, caller, kSizeField);
  if (size < kSizeField || size > kMaxStructSize) {
    return absl::InvalidArgumentError(
        absl::StrCat(type, ".struct_size is ", size, ", outside ", kSizeField,
                     "..", kMaxStructSize, "; make it with its _init()"));
  }
  // A size in between would cut a field, half of a pointer at worst.
  if (size % kSizeField != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(type, ".struct_size is ", size, ", not a multiple of ",
                     kSizeField, "; make it with its _init()"));
  }
  return size;
}

}  // namespace

absl::Status CopyStructIn(const void* in, void* ours, uint64_t our_size,
                          absl::string_view type) {
  ASSIGN_OR_RETURN(const uint64_t size, StructSizeOf(in, type));
  const char* bytes = static_cast<const char*>(in);
  for (uint64_t i = our_size; i < size; ++i) {
    if (bytes[i] == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(type, " has a field at byte ", i,
                     " that this version of the library does not know (",
                     our_size, " bytes)"));
  }
  std::memset(ours, 0, our_size);
  std::memcpy(ours, in, std::min(size, our_size));
  std::memcpy(ours, &our_size, kSizeField);
  return absl::OkStatus();
}

absl::Status CopyStructOut(const void* ours, uint64_t our_size, void* out,
                           absl::string_view type) {
  ASSIGN_OR_RETURN(const uint64_t size, StructSizeOf(out, type));
  std::memcpy(static_cast<char*>(out) + kSizeField,
              static_cast<const char*>(ours) + kSizeField,
              std::min(size, our_size) - kSizeField);
  return absl::OkStatus();
}

absl::Status CheckAbiVersion(const char* type, uint32_t version) {
  if (version == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        type, ".abi_version is 0; make the desc with its _init()"));
  }
  if (version > COMMSCHED_ABI_VERSION) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the caller was compiled for ABI ", version, ", the library (",
        commsched_version(), ") has ABI ", int{COMMSCHED_ABI_VERSION}));
  }
  return absl::OkStatus();
}

}  // namespace commsched
