#include "engine/capi/boundary.h"

namespace commsched::engine {
namespace {

constexpr uint64_t kMaxStructSize = 4096;

}  // namespace

Status NotNull(const void* pointer, const char* name) {
  if (pointer != nullptr) return Status();
  return InvalidArgument(std::string("engine: ") + name + " is NULL");
}

Status CheckReserved(const std::string& field, uint32_t value) {
  if (value == 0) return Status();
  return InvalidArgument("engine: " + field + " is " + std::to_string(value) +
                         "; it must be 0");
}

Status CheckStructSize(uint64_t size, const char* name) {
  if (size >= sizeof(size) && size <= kMaxStructSize &&
      size % sizeof(size) == 0) {
    return Status();
  }
  return InvalidArgument(
      std::string("engine: struct_size of ") + name + " is " +
      std::to_string(size) + ", not a multiple of " +
      std::to_string(sizeof(size)) + " in " + std::to_string(sizeof(size)) +
      ".." + std::to_string(kMaxStructSize) + "; make it with its _init()");
}

}  // namespace commsched::engine
