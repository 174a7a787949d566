#include "bench/peers/coll_peer.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace commsched::bench {
namespace {

constexpr CollKind kKinds[] = {
    {"all_reduce", false, false, true, 2},
    {"all_gather", false, true, false, 1},
    {"reduce_scatter", true, false, true, 1},
    {"all_to_all", true, true, false, 1},
};

struct Options {
  uint64_t min_bytes = 4 << 10;
  uint64_t max_bytes = 64 << 20;
  uint64_t factor = 4;
  uint64_t iterations = 20;
  uint64_t warmup = 5;
  std::vector<std::string> kinds = {"all_reduce", "all_gather",
                                    "reduce_scatter", "all_to_all"};
};

bool ReadOptions(const std::vector<std::string>& arguments, Options* options) {
  for (size_t i = 0; i + 1 < arguments.size(); i += 2) {
    const std::string& name = arguments[i];
    const std::string& value = arguments[i + 1];
    if (name == "--collectives") {
      options->kinds.clear();
      std::stringstream list(value);
      for (std::string kind; std::getline(list, kind, ',');) {
        options->kinds.push_back(kind);
      }
      continue;
    }
    uint64_t* const number = name == "--min-bytes"    ? &options->min_bytes
                             : name == "--max-bytes"  ? &options->max_bytes
                             : name == "--factor"     ? &options->factor
                             : name == "--iterations" ? &options->iterations
                             : name == "--warmup"     ? &options->warmup
                                                      : nullptr;
    if (number == nullptr) return false;
    *number = std::strtoull(value.c_str(), nullptr, 10);
  }
  return arguments.size() % 2 == 0 && options->factor >= 2 &&
         options->iterations >= 1 && options->min_bytes >= 1;
}

// Exact in every order of summing.
float Value(int rank, uint64_t i) {
  return static_cast<float>((static_cast<uint64_t>(rank) * 31 + i * 7) % 61);
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

uint64_t CountWrong(const CollPeer& peer, const CollKind& kind, uint64_t count,
                    const std::vector<float>& output) {
  const auto me = static_cast<uint64_t>(peer.rank());
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < output.size(); ++i) {
    float expected = 0;
    if (kind.reduces) {
      const uint64_t at = kind.input_has_parts ? me * count + i : i;
      for (int r = 0; r < peer.size(); ++r) expected += Value(r, at);
    } else {
      const uint64_t at = kind.input_has_parts ? me * count : 0;
      expected = Value(static_cast<int>(i / count), at + i % count);
    }
    if (output[i] != expected) ++wrong;
  }
  return wrong;
}

uint64_t Measure(CollPeer* peer, const CollKind& kind, uint64_t bytes,
                 const Options& options) {
  const auto ranks = static_cast<uint64_t>(peer->size());
  const bool parts = kind.input_has_parts || kind.output_has_parts;
  const uint64_t count =
      std::max<uint64_t>(1, bytes / sizeof(float) / (parts ? ranks : 1));
  std::vector<float> input(kind.input_has_parts ? ranks * count : count);
  std::vector<float> output(kind.output_has_parts ? ranks * count : count);
  for (uint64_t i = 0; i < input.size(); ++i) {
    input[i] = Value(peer->rank(), i);
  }
  peer->Prepare(kind, &input, &output, count);
  peer->Run();
  const double wrong =
      peer->Sum(static_cast<double>(CountWrong(*peer, kind, count, output)));
  for (uint64_t i = 0; i < options.warmup; ++i) peer->Run();
  peer->Barrier();
  const double cpu = CpuSeconds();
  const auto begin = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < options.iterations; ++i) peer->Run();
  const std::chrono::duration<double> wall =
      std::chrono::steady_clock::now() - begin;
  const auto runs = static_cast<double>(options.iterations) * peer->size();
  const double seconds = peer->Sum(wall.count()) / runs;
  const double cpu_seconds = peer->Sum(CpuSeconds() - cpu) / runs;
  if (peer->rank() != 0) return static_cast<uint64_t>(wrong);
  const double n = peer->size();
  const double size =
      static_cast<double>((parts ? ranks : 1) * count * sizeof(float));
  const double algbw = size / seconds * 1e-9;
  std::printf(
      "{\"collective\":\"%s\",\"ranks\":%d,\"backend\":\"%s\",\"bytes\":%.0f,"
      "\"count\":%.0f,\"type\":\"f32\",\"redop\":\"%s\",\"time_us\":%.3f,"
      "\"algbw_gb_s\":%.4f,\"busbw_gb_s\":%.4f,\"wrong\":%.0f,"
      "\"cpu_us_per_rank\":%.3f}\n",
      kind.name, peer->size(), peer->name(), size, size / sizeof(float),
      kind.reduces ? "sum" : "none", seconds * 1e6, algbw,
      algbw * kind.bus_factor * (n - 1) / n, wrong, cpu_seconds * 1e6);
  std::fflush(stdout);
  return static_cast<uint64_t>(wrong);
}

}  // namespace

int RunCollPeer(CollPeer* peer, const std::vector<std::string>& arguments) {
  Options options;
  if (!ReadOptions(arguments, &options)) {
    std::fprintf(stderr,
                 "usage: [--min-bytes N] [--max-bytes N] [--factor N] "
                 "[--iterations N] [--warmup N] [--collectives LIST]\n");
    return 2;
  }
  uint64_t wrong = 0;
  for (const std::string& name : options.kinds) {
    for (const CollKind& kind : kKinds) {
      if (name != kind.name) continue;
      for (uint64_t bytes = options.min_bytes; bytes <= options.max_bytes;
           bytes *= options.factor) {
        wrong += Measure(peer, kind, bytes, options);
      }
    }
  }
  return wrong == 0 ? 0 : 1;
}

}  // namespace commsched::bench
