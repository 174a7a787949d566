#include "comm/inproc/emulated_link.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/checked_math.h"
#include "base/status_macros.h"

namespace commsched {
namespace {

// Not past the end of time: a link that is booked for ever stays so.
int64_t EndOf(int64_t start_ns, int64_t duration_ns) {
  constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
  return CheckedAdd(start_ns, duration_ns).value_or(kEnd);
}

constexpr absl::string_view kBandwidthKey = "link_bytes_per_s";
constexpr absl::string_view kLatencyKey = "link_latency_ns";

// SimpleAtod also reads "0x10", "inf" and " 5".
bool Consists(absl::string_view text, const char* of) {
  return text.find_first_not_of(of) == absl::string_view::npos;
}

absl::Status SetField(absl::string_view field, LinkSpec* link) {
  const std::pair<absl::string_view, absl::string_view> pair =
      absl::StrSplit(field, absl::MaxSplits('=', 1));
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(
        "configuration: ", pair.first, " is '", pair.second, "'; ", why));
  };
  if (pair.first == kBandwidthKey) {
    double value = 0;
    if (!Consists(pair.second, "0123456789.eE+-") ||
        !absl::SimpleAtod(pair.second, &value) || !std::isfinite(value) ||
        value <= 0) {
      return refuse("it must be a finite decimal number of bytes/s above 0");
    }
    link->bytes_per_s = value;
    return absl::OkStatus();
  }
  if (pair.first == kLatencyKey) {
    int64_t value = 0;
    if (!Consists(pair.second, "0123456789") ||
        !absl::SimpleAtoi(pair.second, &value)) {
      return refuse("it must be an integer, 0 or more");
    }
    link->latency_ns = value;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("configuration: unknown key '", pair.first, "'; there are ",
                   kBandwidthKey, " and ", kLatencyKey));
}

}  // namespace

absl::StatusOr<LinkSpec> ParseLinkConfig(absl::string_view config) {
  LinkSpec link;
  if (config.empty()) return link;
  std::set<absl::string_view> keys;
  for (const absl::string_view field : absl::StrSplit(config, ',')) {
    const absl::string_view key = field.substr(0, field.find('='));
    if (!keys.insert(key).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "configuration: ", key, " is given twice; give it once"));
    }
    RETURN_IF_ERROR(SetField(field, &link));
  }
  if (link.bytes_per_s == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("configuration: ", kLatencyKey, " is ", link.latency_ns,
                     " without ", kBandwidthKey, "; set both"));
  }
  return link;
}

std::string LinkConfig(const LinkSpec& link) {
  if (link.bytes_per_s == 0) return "";
  char bytes_per_s[32];
  (void)std::snprintf(bytes_per_s, sizeof(bytes_per_s), "%.17g",
                      link.bytes_per_s);
  return absl::StrCat(kBandwidthKey, "=", bytes_per_s, ",", kLatencyKey, "=",
                      link.latency_ns);
}

int64_t EmulatedLink::BusyNs(double bytes) const {
  // About 30 years: beyond it sums of times would leave int64.
  constexpr double kMaxNs = 1e18;
  const double busy_ns = bytes / spec_.bytes_per_s * 1e9;
  return static_cast<int64_t>(std::llround(std::min(busy_ns, kMaxNs)));
}

int64_t EmulatedLink::ArrivalOf(int64_t off_link_ns) const {
  return EndOf(off_link_ns, spec_.latency_ns);
}

void EmulatedLink::Lock() {
  while (busy_.test_and_set(std::memory_order_acquire)) {
    std::this_thread::yield();
  }
}

int64_t EmulatedLink::Book(absl::Span<const int32_t> ranks, int64_t arrived_ns,
                           double bytes) {
  if (!enabled() || ranks.size() < 2) return arrived_ns;
  const int64_t busy_ns = BusyNs(bytes);
  Lock();
  int64_t start_ns = arrived_ns;
  for (const int32_t rank : ranks) {
    const Directions& free_at_ns = free_at_ns_[rank];
    start_ns = std::max({start_ns, free_at_ns.out_ns, free_at_ns.in_ns});
  }
  const int64_t off_link_ns = EndOf(start_ns, busy_ns);
  for (const int32_t rank : ranks) {
    free_at_ns_[rank] = {off_link_ns, off_link_ns};
  }
  Unlock();
  return ArrivalOf(off_link_ns);
}

int64_t EmulatedLink::BookPair(int32_t from, int32_t to, int64_t arrived_ns,
                               double bytes) {
  if (!enabled()) return arrived_ns;
  const int64_t busy_ns = BusyNs(bytes);
  Lock();
  int64_t& out_ns = free_at_ns_[from].out_ns;
  int64_t& in_ns = free_at_ns_[to].in_ns;
  const int64_t start_ns = std::max({arrived_ns, out_ns, in_ns});
  const int64_t off_link_ns = EndOf(start_ns, busy_ns);
  out_ns = in_ns = off_link_ns;
  Unlock();
  return ArrivalOf(off_link_ns);
}

}  // namespace commsched
