#include "cli/coll_case.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>

namespace commsched::cli {
namespace {

uint64_t BytesOf(commsched_dtype_t dtype) {
  return dtype == COMMSCHED_BF16 ? 2 : 4;
}

uint64_t PartCount(const CollKind& kind, uint64_t element, int size,
                   uint64_t bytes) {
  const bool parts = kind.input_has_parts || kind.output_has_parts;
  const auto divisor = parts ? static_cast<uint64_t>(size) : 1;
  return std::max<uint64_t>(1, bytes / element / divisor);
}

// What rank `rank` has at element `i` of its input: small, so that sums of any
// order are exact, bf16's of up to 85 ranks.
float Value(commsched_dtype_t dtype, int rank, uint64_t i) {
  const uint64_t values = dtype == COMMSCHED_BF16 ? 4 : 61;
  return static_cast<float>((static_cast<uint64_t>(rank) * 31 + i * 7) %
                            values);
}

// A bf16 is the upper half of the f32 of its value.
void Put(commsched_dtype_t dtype, float value, std::byte* at) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (dtype == COMMSCHED_BF16) {
    const auto half = static_cast<uint16_t>(bits >> 16);
    std::memcpy(at, &half, sizeof(half));
  } else {
    std::memcpy(at, &bits, sizeof(bits));
  }
}

float Get(commsched_dtype_t dtype, const std::byte* at) {
  uint32_t bits = 0;
  if (dtype == COMMSCHED_BF16) {
    uint16_t half = 0;
    std::memcpy(&half, at, sizeof(half));
    bits = static_cast<uint32_t>(half) << 16;
  } else {
    std::memcpy(&bits, at, sizeof(bits));
  }
  return std::bit_cast<float>(bits);
}

// What was not idle: the kernel counts idle time exactly, all else by ticks.
double BusySeconds(double wall) {
  std::ifstream stat("/proc/stat");
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, iowait = 0;
  stat >> name >> user >> nice >> system >> idle >> iowait;
  const auto cores = static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN));
  const auto per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  return wall * cores - (idle + iowait) / per_second;
}

}  // namespace

CollCase::CollCase(const CollKind& of, commsched_dtype_t of_type, int own_rank,
                   int num_ranks, uint64_t wanted_bytes)
    : kind(of),
      dtype(of_type),
      rank(own_rank),
      size(num_ranks),
      count(PartCount(of, BytesOf(of_type), num_ranks, wanted_bytes)),
      input(BytesOf(of_type) * (of.input_has_parts
                                    ? count * static_cast<uint64_t>(num_ranks)
                                    : count)),
      output(BytesOf(of_type) * (of.output_has_parts
                                     ? count * static_cast<uint64_t>(num_ranks)
                                     : count)) {
  const uint64_t element = element_bytes();
  for (uint64_t i = 0; i < input.size() / element; ++i) {
    Put(dtype, Value(dtype, rank, i), &input[i * element]);
  }
}

uint64_t CollCase::CountWrong() const {
  const auto me = static_cast<uint64_t>(rank);
  const uint64_t element = element_bytes();
  uint64_t wrong = 0;
  if (kind.kind == COMMSCHED_REDUCE && rank != 0) return 0;
  for (uint64_t i = 0; i < output.size() / element; ++i) {
    float expected = 0;
    if (kind.reduces) {
      const uint64_t at = kind.input_has_parts ? me * count + i : i;
      for (int r = 0; r < size; ++r) expected += Value(dtype, r, at);
    } else if (kind.kind == COMMSCHED_BROADCAST) {
      expected = Value(dtype, 0, i);
    } else {
      const uint64_t from = i / count;
      const uint64_t at = kind.input_has_parts ? me * count : 0;
      expected = Value(dtype, static_cast<int>(from), at + i % count);
    }
    if (Get(dtype, &output[i * element]) != expected) ++wrong;
  }
  return wrong;
}

uint64_t CollCase::bytes() const {
  return std::max(input.size(), output.size());
}

uint64_t CollCase::element_bytes() const { return BytesOf(dtype); }

const char* CollCase::type() const {
  return dtype == COMMSCHED_BF16 ? "bf16" : "f32";
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

CollClock CollClock::Now() {
  const std::chrono::duration<double> wall =
      std::chrono::steady_clock::now().time_since_epoch();
  return {.wall = wall.count(),
          .cpu = CpuSeconds(),
          .busy = BusySeconds(wall.count())};
}

CollFigures CollClock::Since(const CollClock& begin, double iterations) const {
  return {.seconds = (wall - begin.wall) / iterations,
          .cpu_seconds = (cpu - begin.cpu) / iterations,
          .busy_seconds = (busy - begin.busy) / iterations};
}

double AlgBandwidth(const CollCase& one, const CollFigures& figures) {
  return static_cast<double>(one.bytes()) / figures.seconds * 1e-9;
}

double BusBandwidth(const CollCase& one, const CollFigures& figures) {
  const double ranks = one.size;
  const double others = (ranks - 1) / ranks;
  switch (one.kind.kind) {
    case COMMSCHED_ALL_REDUCE:
      return 2 * others * AlgBandwidth(one, figures);
    case COMMSCHED_BROADCAST:
    case COMMSCHED_REDUCE:
      return AlgBandwidth(one, figures);
    default:
      return others * AlgBandwidth(one, figures);
  }
}

std::string CollJson(const CollCase& one, const std::string& backend,
                     const CollFigures& figures, const CollEstimate& estimate) {
  char predicted[128] = "";
  if (estimate.algorithm != nullptr) {
    std::snprintf(predicted, sizeof(predicted),
                  ",\"algorithm\":\"%s\",\"predicted_us\":%.3f"
                  ",\"link_bytes\":%" PRIu64,
                  estimate.algorithm, estimate.seconds * 1e6,
                  estimate.link_bytes);
  }
  char line[640];
  std::snprintf(line, sizeof(line),
                "{\"collective\":\"%s\",\"ranks\":%d,\"backend\":\"%s\","
                "\"bytes\":%" PRIu64 ",\"count\":%" PRIu64
                ",\"type\":\"%s\",\"redop\":\"%s\",\"time_us\":%.3f,"
                "\"algbw_gb_s\":%.4f,\"busbw_gb_s\":%.4f,\"wrong\":%" PRIu64
                ",\"cpu_us_per_rank\":%.3f,\"busy_us\":%.3f%s}",
                one.kind.name, one.size, backend.c_str(), one.bytes(),
                one.bytes() / one.element_bytes(), one.type(),
                one.kind.reduces ? "sum" : "none", figures.seconds * 1e6,
                AlgBandwidth(one, figures), BusBandwidth(one, figures),
                figures.wrong, figures.cpu_seconds * 1e6,
                figures.busy_seconds * 1e6, predicted);
  return line;
}

}  // namespace commsched::cli
