#ifndef COMMSCHED_EXAMPLES_TRAINER_UNITS_H_
#define COMMSCHED_EXAMPLES_TRAINER_UNITS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace commsched::trainer {

// Digits with an optional minus: "300", "-5". Fails with kInvalidArgument,
// saying what is accepted, for anything else ("0x3", "1e3", " 7") and for what
// does not fit in 64 bits.
absl::StatusOr<int64_t> ParseWhole(absl::string_view text);

// A finite decimal number: "0.1", "-3", "1e-3". Fails like ParseWhole.
absl::StatusOr<double> ParseNumber(absl::string_view text);

// "65536", "64KiB", "1MiB" or "2GiB". Fails with kInvalidArgument, saying what
// is accepted, for anything else and for what does not fit in 63 bits.
absl::StatusOr<uint64_t> ParseBytes(absl::string_view text);

// An emulated link, per rank and direction.
struct LinkSpeed {
  double bytes_per_s = 0;
  int64_t latency_ns = 0;
};

// "1Gbit,100us": bits per second (Kbit, Mbit, Gbit) and a latency (ns, us, ms,
// s). Fails with kInvalidArgument, saying what is accepted.
absl::StatusOr<LinkSpeed> ParseLink(absl::string_view text);

inline double SecondsSince(std::chrono::steady_clock::time_point begin) {
  const std::chrono::duration<double> passed =
      std::chrono::steady_clock::now() - begin;
  return passed.count();
}
inline double SecondsOf(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// Of an even number of values the mean of the two in the middle; of none, 0.
double Median(std::vector<double> values);

// For people: "1.5 MiB", "640 B".
std::string FormatBytes(double bytes);

// For people, three figures: "1.24 s", "310 ms", "4.50 us".
std::string FormatSeconds(double seconds);

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_UNITS_H_
