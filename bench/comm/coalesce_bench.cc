// What merging many small collectives into few launches is worth: 1,024
// collectives of 4 KiB on 4 rank threads, the steps driven by sessions.
//
//   build/release/bin/bench_comm --benchmark_filter=1024x4KiB
//     --benchmark_enable_random_interleaving --benchmark_repetitions=9
//
// BM_OneCall      the same bytes as one collective of 4 MiB
// BM_Coalesced    coalesce_bytes 4 MiB; the label names the way that the
// planner
//                 chose: "group" is one backend call with a list, "pack" one
//                 collective on staging memory
// BM_Uncoalesced  no merging: 1,024 launches
//
// Compare the medians of bytes_per_s (input bytes of one rank) in one run: the
// aim is Coalesced at 0.9 of OneCall. What OneCall does not pay: 1,024 times
// the addresses to check and look up, on 4 ranks, and a jump to other memory
// after every 1 KiB, which only prefetching hides.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "bench/support/rank_steps.h"

namespace commsched {
namespace {

constexpr int kRanks = 4;
constexpr uint64_t kBytes = uint64_t{4} << 20;
constexpr int kPieces = 1024;

// An op that makes all the data, then `pieces` collectives on equal pieces of
// it, each between buffers of its own; nothing is contiguous with its
// neighbour. The next step's op comes after all of them.
Graph GraphOf(CollectiveKind kind, int pieces) {
  Graph graph;
  const GroupId group = graph.AddGroup("dp", kRanks).value();
  const uint64_t count = kBytes / sizeof(float) / static_cast<uint64_t>(pieces);
  const bool gather = kind == CollectiveKind::kAllGather;
  Op make;
  make.name = "make";
  std::vector<Op> collectives;
  for (int i = 0; i < pieces; ++i) {
    auto buffer = [&](const char* name, uint64_t elements) {
      Buffer added;
      added.name = absl::StrCat(name, i);
      added.ownership = Ownership::kBound;
      added.count = elements;
      return graph.AddBuffer(added).value();
    };
    const BufferId input = buffer("in", gather ? count / kRanks : count);
    const BufferId output = buffer("out", gather ? count : count / kRanks);
    make.accesses.push_back({input, AccessMode::kWrite, {}});
    make.accesses.push_back({output, AccessMode::kWrite, {}});
    Op op;
    op.name = absl::StrCat("collective", i);
    op.kind = OpKind::kCollective;
    op.collective.kind = kind;
    op.collective.group = group;
    op.collective.input = {input, AccessMode::kRead, {}};
    op.collective.output = {output, AccessMode::kWrite, {}};
    collectives.push_back(op);
  }
  (void)graph.AddOp(make).value();
  for (const Op& op : collectives) (void)graph.AddOp(op).value();
  return graph;
}

const char* WayName(Way way) {
  switch (way) {
    case Way::kSingle:
      return "single";
    case Way::kInPlace:
      return "in place";
    case Way::kGroup:
      return "group";
    case Way::kPack:
      return "pack";
  }
  return "?";
}

void RunSteps(benchmark::State& state, CollectiveKind kind, int pieces,
              uint64_t coalesce_bytes) {
  WorldSpec world;
  world.size = kRanks;
  PlanOptions options;
  options.deterministic = true;
  options.coalesce_bytes = coalesce_bytes;
  bench::RankSteps steps(world, GraphOf(kind, pieces), options);
  constexpr uint64_t kSteps = 4;
  bool ok = steps.Run(kSteps);
  for (auto _ : state) {
    ok = ok && steps.Run(kSteps);
    if (!ok) state.SkipWithError("a step failed");
    if (!ok) break;
  }
  const Plan& plan = steps.plan();
  state.SetLabel(absl::StrCat(plan.launches.size(), " x ",
                              WayName(plan.launches.front().way)));
  using benchmark::Counter;
  state.counters["bytes_per_s"] = Counter(static_cast<double>(kBytes * kSteps),
                                          Counter::kIsIterationInvariantRate);
}

void BM_OneCall(benchmark::State& state, CollectiveKind kind) {
  RunSteps(state, kind, 1, 0);
}
void BM_Coalesced(benchmark::State& state, CollectiveKind kind) {
  RunSteps(state, kind, kPieces, kBytes);
}
void BM_Uncoalesced(benchmark::State& state, CollectiveKind kind) {
  RunSteps(state, kind, kPieces, 0);
}

#define COMMSCHED_BENCH_OF_KINDS(function)                \
  BENCHMARK_CAPTURE(function, all_gather / 1024x4KiB,     \
                    CollectiveKind::kAllGather)           \
      ->UseRealTime();                                    \
  BENCHMARK_CAPTURE(function, reduce_scatter / 1024x4KiB, \
                    CollectiveKind::kReduceScatter)       \
      ->UseRealTime()

COMMSCHED_BENCH_OF_KINDS(BM_OneCall);
COMMSCHED_BENCH_OF_KINDS(BM_Coalesced);
COMMSCHED_BENCH_OF_KINDS(BM_Uncoalesced);

}  // namespace
}  // namespace commsched
