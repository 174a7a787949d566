// What a rank of the backend ucx does for a launch, without a network:
// messages, endpoints, scratch, and what crosses the links between hosts,
// counted from what the ranks build, beside the least that there is.
//
//   bench_messages           prints the table
//   bench_messages --check   without 1 GiB on 1,000 ranks and more: prints
//                            what is not within its limits, and fails
//
// A row is a launch of one array, or of equal parts of one. Of arrays of 1 MiB
// and more the links must carry the least within 1 %, and scratch stays within
// 64 MiB; launches of up to 16 KiB take at most 2 ceil(log2 n) + 8 messages of
// any rank, an all-to-all as many as it has peers. What sessions tell of links
// is what was counted, within 1 % and an element per rank, too.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "bench/messages/counts.h"
#include "bench/messages/least.h"

namespace commsched {
namespace {

constexpr uint64_t kMostScratchBytes = 64 << 20;
constexpr uint64_t kLargeBytes = 1 << 20;
constexpr double kMostExcess = 0.01;

struct Kind {
  const char* name;
  commsched_collective_t kind;
};
constexpr Kind kKinds[] = {{"all_reduce", COMMSCHED_ALL_REDUCE},
                           {"reduce", COMMSCHED_REDUCE},
                           {"broadcast", COMMSCHED_BROADCAST},
                           {"all_gather", COMMSCHED_ALL_GATHER},
                           {"reduce_scatter", COMMSCHED_REDUCE_SCATTER},
                           {"all_to_all", COMMSCHED_ALL_TO_ALL},
                           {"barrier", COMMSCHED_BARRIER}};
constexpr int kSizes[] = {4,  5,  7,   8,    9,    12,   16,
                          31, 64, 100, 1000, 1024, 4095, 4096};
constexpr int kPerHost[] = {1, 2, 3, 4, 8, 16};
constexpr uint64_t kArrayBytes[] = {64, 4 << 10, 1 << 20, 64 << 20, 1 << 30};

// Of the largest arrays, whose chunks are many, odd numbers of ranks are left
// out.
bool IsInTable(const LaunchCase& one) {
  if (one.per_host > one.size) return false;
  if (one.kind == COMMSCHED_BARRIER) return one.array_bytes == 64;
  const bool is_odd = one.size == 1000 || one.size == 4095;
  return !is_odd || one.array_bytes < 1 << 30;
}

std::vector<LaunchCase> Table() {
  std::vector<LaunchCase> table;
  for (const Kind& kind : kKinds) {
    for (const int size : kSizes) {
      for (const int per_host : kPerHost) {
        for (const uint64_t bytes : kArrayBytes) {
          const LaunchCase one = {kind.kind, COMMSCHED_F32, size, per_host,
                                  bytes};
          if (IsInTable(one)) table.push_back(one);
        }
      }
    }
  }
  for (const int per_host : kPerHost) {
    table.push_back(
        {COMMSCHED_ALL_REDUCE, COMMSCHED_BF16, 64, per_host, 1 << 20});
  }
  // The first host has more ranks: 4+2+2, 8+4+4, 3+1+1+1, ...
  for (const Kind& kind : kKinds) {
    for (const int per_host : {1, 2, 4, 16}) {
      for (const int num_others : {2, 3, 31}) {
        for (const uint64_t bytes : {4 << 10, 1 << 20, 64 << 20}) {
          const int first = per_host * (num_others < 4 ? 2 : 4);
          const LaunchCase one = {
              kind.kind, COMMSCHED_F32, first + num_others * per_host,
              per_host,  bytes,         first};
          if (IsInTable(one)) table.push_back(one);
        }
      }
    }
  }
  return table;
}

// Whose building takes seconds.
bool IsSlow(const LaunchCase& one) {
  return one.size >= 1000 && one.array_bytes >= 1 << 30;
}

struct Row {
  LaunchCase one;
  LaunchCounts counts;
  double least_bytes = 0;

  int64_t MostMessages() const {
    if (one.kind == COMMSCHED_ALL_TO_ALL) return 2 * (one.size - 1);
    return ucx::MostSmallMessages(one.size);
  }
  // What is wrong with it; "": nothing.
  std::string Check() const;
};

std::string Row::Check() const {
  if (counts.scratch_bytes > kMostScratchBytes) return "scratch";
  if (one.array_bytes <= ucx::kSmallBytes) {
    if (counts.messages > MostMessages()) return "messages";
    if (counts.endpoints > MostMessages()) return "endpoints";
  }
  if (one.array_bytes < kLargeBytes) return "";
  const auto link_bytes = static_cast<double>(counts.link_bytes);
  const auto told_bytes = static_cast<double>(counts.told.link_bytes);
  const double most_excess = kMostExcess * least_bytes;
  if (std::abs(link_bytes - least_bytes) > most_excess) return "link";
  // What is told takes hosts' shares for any numbers; they are whole elements.
  const double rounding = 4.0 * one.size;
  return std::abs(link_bytes - told_bytes) > most_excess + rounding ? "told"
                                                                    : "";
}

Row RowOf(const LaunchCase& one) {
  Row row = {one, CountLaunch(one, {})};
  const uint64_t element_bytes = one.dtype == COMMSCHED_BF16 ? 2 : 4;
  row.least_bytes =
      LeastLinkBytes({.kind = one.kind,
                      .host_of = one.Hosts(),
                      .elements = row.counts.array_bytes / element_bytes,
                      .element_bytes = static_cast<double>(element_bytes),
                      .widening = one.dtype == COMMSCHED_BF16 ? 2 : 1});
  return row;
}

const char* NameOf(commsched_collective_t kind) {
  for (const Kind& each : kKinds) {
    if (each.kind == kind) return each.name;
  }
  return "";
}

void PrintHead() {
  std::printf("%-14s %5s %5s %3s %11s  %-8s %12s %9s %9s %10s %12s %12s\n",
              "collective", "type", "ranks", "per", "bytes", "algorithm",
              "predicted us", "messages", "endpoints", "scratch", "link",
              "least");
}

void Print(const Row& row) {
  const LaunchCounts& counts = row.counts;
  // Where time is that of messages, sums may be made on the way.
  const bool is_large = row.one.array_bytes >= kLargeBytes;
  const std::string least =
      is_large ? std::to_string(std::llround(row.least_bytes)) : "-";
  std::printf(
      "%-14s %5s %5d %3d %11lu  %-8s %12.1f %9ld %9ld %10lu %12lu %12s %s\n",
      NameOf(row.one.kind), row.one.dtype == COMMSCHED_BF16 ? "bf16" : "f32",
      row.one.size, row.one.per_host, row.one.array_bytes,
      counts.choice.algorithm->name,
      static_cast<double>(counts.choice.predicted_ns) / 1000, counts.messages,
      counts.endpoints, counts.scratch_bytes, counts.link_bytes, least.c_str(),
      row.Check().c_str());
}

int Run(bool only_checks) {
  int num_rows = 0;
  int num_wrong = 0;
  if (!only_checks) PrintHead();
  for (const LaunchCase& one : Table()) {
    if (only_checks && IsSlow(one)) continue;
    const Row row = RowOf(one);
    const bool is_wrong = !row.Check().empty();
    if (!only_checks || is_wrong) Print(row);
    ++num_rows;
    num_wrong += is_wrong ? 1 : 0;
  }
  std::printf("%d launches, %d not within their limits\n", num_rows, num_wrong);
  return num_wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace commsched

int main(int argc, char** argv) {
  if (argc > 2 || (argc == 2 && std::strcmp(argv[1], "--check") != 0)) {
    std::fprintf(stderr, "usage: bench_messages [--check]\n");
    return 2;
  }
  return commsched::Run(argc == 2);
}
