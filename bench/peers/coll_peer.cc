#include "bench/peers/coll_peer.h"

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace commsched::bench {
namespace {

struct Options {
  uint64_t min_bytes = 4 << 10;
  uint64_t max_bytes = 64 << 20;
  uint64_t factor = 4;
  uint64_t iterations = 20;
  uint64_t warmup = 5;
  commsched_dtype_t dtype = COMMSCHED_F32;
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
    if (name == "--type") {
      if (value != "f32" && value != "bf16") return false;
      options->dtype = value == "bf16" ? COMMSCHED_BF16 : COMMSCHED_F32;
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

uint64_t Measure(CollPeer* peer, const cli::CollKind& kind, uint64_t bytes,
                 const Options& options) {
  cli::CollCase one(kind, options.dtype, peer->rank(), peer->size(), bytes);
  peer->Prepare(&one);
  peer->Run();
  cli::CollFigures figures;
  figures.wrong =
      static_cast<uint64_t>(peer->Sum(static_cast<double>(one.CountWrong())));
  for (uint64_t i = 0; i < options.warmup; ++i) peer->Run();
  peer->Barrier();
  const auto begin = cli::CollClock::Now();
  for (uint64_t i = 0; i < options.iterations; ++i) peer->Run();
  const cli::CollFigures mine = cli::CollClock::Now().Since(
      begin, static_cast<double>(options.iterations));
  figures.seconds = peer->Max(mine.seconds);
  figures.cpu_seconds = peer->Sum(mine.cpu_seconds) / peer->size();
  figures.busy_seconds = peer->Sum(mine.busy_seconds) / peer->size();
  if (peer->rank() == 0) {
    std::printf("%s\n", cli::CollJson(one, peer->name(), figures).c_str());
    std::fflush(stdout);
  }
  return figures.wrong;
}

float Widened(uint16_t half) {
  return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
}

}  // namespace

void AddBf16(uint16_t* sum, const uint16_t* a, const uint16_t* b,
             uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(Widened(a[i]) + Widened(b[i]));
    sum[i] = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
}

int RunCollPeer(CollPeer* peer, const std::vector<std::string>& arguments) {
  Options options;
  if (!ReadOptions(arguments, &options)) {
    std::fprintf(stderr,
                 "usage: [--min-bytes N] [--max-bytes N] [--factor N] "
                 "[--iterations N] [--warmup N] [--type f32|bf16] "
                 "[--collectives LIST]\n");
    return 2;
  }
  uint64_t wrong = 0;
  for (const std::string& name : options.kinds) {
    for (const cli::CollKind& kind : cli::kCollKinds) {
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
