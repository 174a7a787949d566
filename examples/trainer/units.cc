#include "examples/trainer/units.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "examples/trainer/status_macros.h"

namespace commsched::trainer {
namespace {

struct Unit {
  absl::string_view name;
  double scale;
};

constexpr Unit kByteUnits[] = {
    {"GiB", 0x1p30}, {"MiB", 0x1p20}, {"KiB", 0x1p10}, {"", 1}};
constexpr Unit kBitRates[] = {
    {"Gbit", 1e9 / 8}, {"Mbit", 1e6 / 8}, {"Kbit", 1e3 / 8}};
constexpr Unit kTimesInNs[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};

// The largest value that is accepted: 2^62, so that sums of two fit as well.
constexpr double kLimit = 0x1p62;

absl::Status NotA(absl::string_view text, absl::string_view accepted) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not ", accepted));
}

// A plain non-negative decimal number and a unit; the first unit that ends the
// text counts.
absl::StatusOr<double> ParseQuantity(absl::string_view text,
                                     std::span<const Unit> units,
                                     absl::string_view accepted) {
  for (const Unit& unit : units) {
    absl::string_view digits = text;
    if (!absl::ConsumeSuffix(&digits, unit.name)) continue;
    double value = 0;
    // SimpleAtod also reads "inf", "1e9" and " 5".
    const bool plain =
        digits.find_first_not_of("0123456789.") == absl::string_view::npos;
    if (plain && absl::SimpleAtod(digits, &value) &&
        value * unit.scale <= kLimit) {
      return value * unit.scale;
    }
    break;
  }
  return NotA(text, accepted);
}

constexpr absl::string_view kAcceptedBytes =
    "a number of bytes, such as 65536, 64KiB, 1MiB or 2GiB";
constexpr absl::string_view kAcceptedLink =
    "bandwidth,latency, such as 1Gbit,100us (Kbit, Mbit, Gbit; ns, us, ms, s)";

}  // namespace

absl::StatusOr<int64_t> ParseWhole(absl::string_view text) {
  absl::string_view digits = text;
  absl::ConsumePrefix(&digits, "-");
  if (digits.empty() ||
      digits.find_first_not_of("0123456789") != absl::string_view::npos) {
    return NotA(text, "a whole number, such as 300");
  }
  int64_t value = 0;
  if (absl::SimpleAtoi(text, &value)) return value;
  return NotA(
      text, absl::StrCat("a whole number from ", INT64_MIN, " to ", INT64_MAX));
}

absl::StatusOr<double> ParseNumber(absl::string_view text) {
  double value = 0;
  // SimpleAtod also reads "inf", "nan" and " 5".
  const bool plain =
      text.find_first_not_of("0123456789.eE+-") == absl::string_view::npos;
  if (plain && absl::SimpleAtod(text, &value) && std::isfinite(value)) {
    return value;
  }
  return NotA(text, "a number, such as 0.1 or 1e-3");
}

absl::StatusOr<uint64_t> ParseBytes(absl::string_view text) {
  TRAINER_ASSIGN_OR_RETURN(const double bytes,
                           ParseQuantity(text, kByteUnits, kAcceptedBytes));
  if (bytes != std::floor(bytes)) {
    return NotA(text, "a whole number of bytes");
  }
  return static_cast<uint64_t>(bytes);
}

absl::StatusOr<LinkSpeed> ParseLink(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ',');
  if (parts.size() == 2) {
    const auto rate = ParseQuantity(parts[0], kBitRates, kAcceptedLink);
    const auto latency = ParseQuantity(parts[1], kTimesInNs, kAcceptedLink);
    if (rate.ok() && *rate > 0 && latency.ok()) {
      return LinkSpeed{.bytes_per_s = *rate,
                       .latency_ns = static_cast<int64_t>(*latency)};
    }
  }
  return NotA(text, kAcceptedLink);
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2;
}

std::string FormatBytes(double bytes) {
  if (bytes < 0x1p10) return absl::StrFormat("%.0f B", bytes);
  if (bytes < 0x1p20) return absl::StrFormat("%.1f KiB", bytes / 0x1p10);
  if (bytes < 0x1p30) return absl::StrFormat("%.2f MiB", bytes / 0x1p20);
  return absl::StrFormat("%.2f GiB", bytes / 0x1p30);
}

std::string FormatSeconds(double seconds) {
  if (seconds >= 0.9995) return absl::StrFormat("%.3g s", seconds);
  if (seconds >= 0.9995e-3) return absl::StrFormat("%.3g ms", seconds * 1e3);
  return absl::StrFormat("%.3g us", seconds * 1e6);
}

}  // namespace commsched::trainer
