#include "cli/coll_case.h"

#include <sys/resource.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>

namespace commsched::cli {
namespace {

uint64_t PartCount(const CollKind& kind, int size, uint64_t bytes) {
  const bool parts = kind.input_has_parts || kind.output_has_parts;
  const auto divisor = parts ? static_cast<uint64_t>(size) : 1;
  return std::max<uint64_t>(1, bytes / sizeof(float) / divisor);
}

// What rank `rank` has at element `i` of its input: small, so that sums of any
// order are exact.
float Value(int rank, uint64_t i) {
  return static_cast<float>((static_cast<uint64_t>(rank) * 31 + i * 7) % 61);
}

}  // namespace

CollCase::CollCase(const CollKind& of, int own_rank, int num_ranks,
                   uint64_t wanted_bytes)
    : kind(of),
      rank(own_rank),
      size(num_ranks),
      count(PartCount(of, num_ranks, wanted_bytes)),
      input(of.input_has_parts ? count * static_cast<uint64_t>(num_ranks)
                               : count),
      output(of.output_has_parts ? count * static_cast<uint64_t>(num_ranks)
                                 : count) {
  for (uint64_t i = 0; i < input.size(); ++i) input[i] = Value(rank, i);
}

uint64_t CollCase::CountWrong() const {
  const auto me = static_cast<uint64_t>(rank);
  uint64_t wrong = 0;
  if (kind.kind == COMMSCHED_REDUCE && rank != 0) return 0;
  for (uint64_t i = 0; i < output.size(); ++i) {
    float expected = 0;
    if (kind.reduces) {
      const uint64_t at = kind.input_has_parts ? me * count + i : i;
      for (int r = 0; r < size; ++r) expected += Value(r, at);
    } else if (kind.kind == COMMSCHED_BROADCAST) {
      expected = Value(0, i);
    } else {
      const uint64_t from = i / count;
      const uint64_t at = kind.input_has_parts ? me * count : 0;
      expected = Value(static_cast<int>(from), at + i % count);
    }
    if (output[i] != expected) ++wrong;
  }
  return wrong;
}

uint64_t CollCase::bytes() const {
  return std::max(input.size(), output.size()) * sizeof(float);
}

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) +
           static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double AlgBandwidth(const CollCase& one, const CollFigures& mean) {
  return static_cast<double>(one.bytes()) / mean.seconds * 1e-9;
}

double BusBandwidth(const CollCase& one, const CollFigures& mean) {
  const double ranks = one.size;
  const double others = (ranks - 1) / ranks;
  switch (one.kind.kind) {
    case COMMSCHED_ALL_REDUCE:
      return 2 * others * AlgBandwidth(one, mean);
    case COMMSCHED_BROADCAST:
    case COMMSCHED_REDUCE:
      return AlgBandwidth(one, mean);
    default:
      return others * AlgBandwidth(one, mean);
  }
}

std::string CollJson(const CollCase& one, const std::string& backend,
                     const CollFigures& mean) {
  char line[512];
  std::snprintf(line, sizeof(line),
                "{\"collective\":\"%s\",\"ranks\":%d,\"backend\":\"%s\","
                "\"bytes\":%" PRIu64 ",\"count\":%" PRIu64
                ",\"type\":\"f32\",\"redop\":\"%s\",\"time_us\":%.3f,"
                "\"algbw_gb_s\":%.4f,\"busbw_gb_s\":%.4f,\"wrong\":%" PRIu64
                ",\"cpu_us_per_rank\":%.3f}",
                one.kind.name, one.size, backend.c_str(), one.bytes(),
                one.bytes() / sizeof(float), one.kind.reduces ? "sum" : "none",
                mean.seconds * 1e6, AlgBandwidth(one, mean),
                BusBandwidth(one, mean), mean.wrong, mean.cpu_seconds * 1e6);
  return line;
}

}  // namespace commsched::cli
