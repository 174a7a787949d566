#ifndef COMMSCHED_PLUGINS_SUPPORT_LAUNCH_ENTRY_H_
#define COMMSCHED_PLUGINS_SUPPORT_LAUNCH_ENTRY_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "commsched/plugin.h"

namespace commsched {

// What members of a communicator have to launch alike, but for how much: kind,
// type and, where it has them, reduction, order and root, in one word.
class LaunchEntry {
 public:
  static uint32_t Of(const commsched_launch_t& launch);
  // The first thing in which two differ: "rank 1 has kind barrier, rank 0 has
  // kind all_reduce". Empty: there is none.
  static std::string Difference(uint32_t first, const std::string& of_first,
                                uint32_t second, const std::string& of_second);

 private:
  // From the lowest bit on.
  struct Field {
    const char* name;
    uint32_t shift;
    uint32_t bits;

    uint32_t In(uint32_t entry) const {
      return entry >> shift & ((uint32_t{1} << bits) - 1);
    }
    uint32_t Put(uint32_t value) const {
      return (value & ((uint32_t{1} << bits) - 1)) << shift;
    }
  };
  static constexpr Field kKind = {"kind", 0, 4};
  static constexpr Field kType = {"dtype", 4, 5};
  static constexpr Field kReduction = {"reduction", 9, 5};
  static constexpr Field kOrder = {"deterministic", 14, 1};
  static constexpr Field kRoot = {"root", 16, 16};

  template <size_t kSize>
  static std::string NameOf(const char* const (&names)[kSize], uint32_t value) {
    return value < kSize ? names[value] : std::to_string(value);
  }
  static std::string TextOf(const Field& field, uint32_t entry);
};

inline uint32_t LaunchEntry::Of(const commsched_launch_t& launch) {
  uint32_t entry = kKind.Put(launch.kind);
  if (launch.kind == COMMSCHED_BARRIER) return entry;
  entry |= kType.Put(launch.dtype);
  if (launch.kind == COMMSCHED_ALL_REDUCE || launch.kind == COMMSCHED_REDUCE ||
      launch.kind == COMMSCHED_REDUCE_SCATTER) {
    entry |= kReduction.Put(launch.reduce_op) |
             kOrder.Put(launch.deterministic != 0 ? 1 : 0);
  }
  if (launch.kind == COMMSCHED_BROADCAST || launch.kind == COMMSCHED_REDUCE) {
    entry |= kRoot.Put(static_cast<uint32_t>(launch.root));
  }
  return entry;
}

inline std::string LaunchEntry::Difference(uint32_t first,
                                           const std::string& of_first,
                                           uint32_t second,
                                           const std::string& of_second) {
  for (const Field& field : {kKind, kType, kReduction, kOrder, kRoot}) {
    if (field.In(first) == field.In(second)) continue;
    const std::string has = std::string(" has ") + field.name + " ";
    return of_first + has + TextOf(field, first) + ", " + of_second + has +
           TextOf(field, second);
  }
  return "";
}

inline std::string LaunchEntry::TextOf(const Field& field, uint32_t entry) {
  constexpr const char* kKinds[] = {
      "all_reduce", "reduce_scatter", "all_gather", "all_to_all",
      "broadcast",  "reduce",         "barrier",    "send"};
  constexpr const char* kTypes[] = {"f32", "f64", "f16", "bf16",
                                    "i8",  "i32", "i64", "u8"};
  constexpr const char* kReductions[] = {
      "sum", "avg", "min", "max", "prod", "band", "bor", "bxor", "premul_sum"};
  const uint32_t value = field.In(entry);
  if (field.shift == kKind.shift) return NameOf(kKinds, value);
  if (field.shift == kType.shift) return NameOf(kTypes, value);
  if (field.shift == kReduction.shift) return NameOf(kReductions, value);
  return std::to_string(value);
}

}  // namespace commsched

#endif  // COMMSCHED_PLUGINS_SUPPORT_LAUNCH_ENTRY_H_
