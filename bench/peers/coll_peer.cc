#include "bench/peers/coll_peer.h"

#include <chrono>
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

uint64_t Measure(CollPeer* peer, const cli::CollKind& kind, uint64_t bytes,
                 const Options& options) {
  cli::CollCase one(kind, peer->rank(), peer->size(), bytes);
  peer->Prepare(&one);
  peer->Run();
  cli::CollFigures mean;
  mean.wrong =
      static_cast<uint64_t>(peer->Sum(static_cast<double>(one.CountWrong())));
  for (uint64_t i = 0; i < options.warmup; ++i) peer->Run();
  peer->Barrier();
  const double cpu = cli::CpuSeconds();
  const auto begin = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < options.iterations; ++i) peer->Run();
  const std::chrono::duration<double> wall =
      std::chrono::steady_clock::now() - begin;
  const auto runs = static_cast<double>(options.iterations) * peer->size();
  mean.seconds = peer->Sum(wall.count()) / runs;
  mean.cpu_seconds = peer->Sum(cli::CpuSeconds() - cpu) / runs;
  if (peer->rank() == 0) {
    std::printf("%s\n", cli::CollJson(one, peer->name(), mean).c_str());
    std::fflush(stdout);
  }
  return mean.wrong;
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
    for (const cli::CollKind& kind : cli::kCollKinds) {
      // The libraries are compared by the four that engines use.
      const bool has_root =
          kind.kind == COMMSCHED_BROADCAST || kind.kind == COMMSCHED_REDUCE;
      if (name != kind.name || has_root) continue;
      for (uint64_t bytes = options.min_bytes; bytes <= options.max_bytes;
           bytes *= options.factor) {
        wrong += Measure(peer, kind, bytes, options);
      }
    }
  }
  return wrong == 0 ? 0 : 1;
}

}  // namespace commsched::bench
