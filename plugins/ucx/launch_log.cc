#include "ucx/launch_log.h"

#include <algorithm>
#include <iterator>

namespace commsched::ucx {
namespace {

// From the lowest bit on.
struct Field {
  const char* name;
  uint32_t shift;
  uint32_t bits;
};
constexpr Field kKind = {"kind", 0, 4};
constexpr Field kType = {"dtype", 4, 5};
constexpr Field kReduction = {"reduction", 9, 5};
constexpr Field kOrder = {"deterministic", 14, 1};
constexpr Field kRoot = {"root", 16, 16};
constexpr Field kFields[] = {kKind, kType, kReduction, kOrder, kRoot};

constexpr const char* kKindNames[] = {
    "all_reduce", "reduce_scatter", "all_gather", "all_to_all",
    "broadcast",  "reduce",         "barrier"};
constexpr const char* kTypeNames[] = {"f32", "f64", "f16", "bf16",
                                      "i8",  "i32", "i64", "u8"};
constexpr const char* kReductionNames[] = {
    "sum", "avg", "min", "max", "prod", "band", "bor", "bxor", "premul_sum"};

uint32_t ValueOf(const Field& field, uint32_t entry) {
  return entry >> field.shift & ((uint32_t{1} << field.bits) - 1);
}

uint32_t Put(const Field& field, uint32_t value) {
  return (value & ((uint32_t{1} << field.bits) - 1)) << field.shift;
}

template <size_t kSize>
std::string NameOf(const char* const (&names)[kSize], uint32_t value) {
  return value < kSize ? names[value] : std::to_string(value);
}

std::string TextOf(const Field& field, uint32_t entry) {
  const uint32_t value = ValueOf(field, entry);
  if (field.shift == kKind.shift) return NameOf(kKindNames, value);
  if (field.shift == kType.shift) return NameOf(kTypeNames, value);
  if (field.shift == kReduction.shift) return NameOf(kReductionNames, value);
  return std::to_string(value);
}

}  // namespace

uint32_t LaunchLog::EntryOf(const commsched_launch_t& launch) {
  uint32_t entry = Put(kKind, launch.kind);
  if (launch.kind == COMMSCHED_BARRIER) return entry;
  entry |= Put(kType, launch.dtype);
  if (launch.kind == COMMSCHED_ALL_REDUCE || launch.kind == COMMSCHED_REDUCE ||
      launch.kind == COMMSCHED_REDUCE_SCATTER) {
    entry |= Put(kReduction, launch.reduce_op) |
             Put(kOrder, launch.deterministic != 0 ? 1 : 0);
  }
  if (launch.kind == COMMSCHED_BROADCAST || launch.kind == COMMSCHED_REDUCE) {
    entry |= Put(kRoot, static_cast<uint32_t>(launch.root));
  }
  return entry;
}

LaunchReport LaunchLog::ReportFrom(uint64_t begin) const {
  LaunchReport report;
  report.begin = std::max(begin, num_ < kKept ? 0 : num_ - kKept);
  for (uint64_t number = report.begin;
       number < num_ && report.count < LaunchReport::kMost; ++number) {
    report.launches[report.count++] = entries_[number % kKept];
  }
  return report;
}

std::string LaunchLog::DifferenceFrom(const LaunchReport& report,
                                      const std::string& other,
                                      const std::string& self) const {
  const uint32_t count = std::min(report.count, LaunchReport::kMost);
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t number = report.begin + i;
    if (number >= num_ || number + kKept < num_) continue;
    const uint32_t theirs = report.launches[i];
    const uint32_t own = entries_[number % kKept];
    for (const Field& field : kFields) {
      if (ValueOf(field, theirs) == ValueOf(field, own)) continue;
      const std::string has = std::string(" has ") + field.name + " ";
      return "launch #" + std::to_string(number) + ": " + other + has +
             TextOf(field, theirs) + ", " + self + has + TextOf(field, own);
    }
  }
  return "";
}

}  // namespace commsched::ucx
