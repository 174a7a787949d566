// How much of a collective runs under compute, by the formula of the OSU
// microbenchmarks:
//
//   overlap = max(0, 100 - 100 x (overall - compute) / pure communication)
//
//   build/release/bin/bench_overlap
//
// A step makes data, starts a collective on it, computes for as long as the
// collective alone takes, and then uses the result. `overlap_percent` is the
// median over the iterations, each of which times pure communication, compute
// alone and both, so that a machine that changes its speed changes all three.
// One rank per core, two at least: compute keeps a core busy.
//
// With the emulated link (1 Gbit/s, 50 us) only the data's way from one rank's
// memory to another's costs CPU, and the aim is 95. Without it communication is
// that alone, and overlap is near 0 wherever every core computes: that is what
// the machine allows.
//
// `at_most_percent` is what `overlap_percent` would be if the CPU time that is
// not compute (copies, reductions, waking up) were all that is exposed: where
// all cores compute, nothing hides it. What is missing up to there is waiting,
// or copies that fall on the core of one rank.
//
// OSU computes for a time by the clock, which it measures in the run of both:
// what takes the CPU from compute counts as compute there. Here a step has to
// get as much CPU time for compute as the collective takes alone.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "bench/support/rank_steps.h"
#include "comm/inproc/emulated_link.h"

namespace commsched {
namespace {

using bench::RankSteps;

constexpr uint64_t kStepsPerTry = 4;

int NumRanks() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 2,
                    4);
}

// Ops of a step, in this order.
constexpr OpId kMake(0), kCollective(1), kWork(2), kUse(3);

Graph GraphOf(CollectiveKind kind, uint64_t bytes) {
  Graph graph;
  const int ranks = NumRanks();
  const GroupId group = graph.AddGroup("dp", ranks).value();
  const uint64_t whole = bytes / sizeof(float);
  const uint64_t part = whole / static_cast<uint64_t>(ranks);
  auto buffer = [&](const char* name, uint64_t count) {
    Buffer added;
    added.name = name;
    added.ownership = Ownership::kBound;
    added.count = count;
    return graph.AddBuffer(added).value();
  };
  const BufferId input =
      buffer("input", kind == CollectiveKind::kAllGather ? part : whole);
  const BufferId output =
      buffer("output", kind == CollectiveKind::kReduceScatter ? part : whole);
  const BufferId other = buffer("other", 1);
  auto compute = [&](const char* name, Access access) {
    Op op;
    op.name = name;
    op.accesses = {access};
    (void)graph.AddOp(op).value();
  };
  compute("make", {input, AccessMode::kWrite, {}});
  Op collective;
  collective.name = "collective";
  collective.kind = OpKind::kCollective;
  collective.collective.kind = kind;
  collective.collective.group = group;
  collective.collective.input = {input, AccessMode::kRead, {}};
  collective.collective.output = {output, AccessMode::kWrite, {}};
  (void)graph.AddOp(collective).value();
  compute("work", {other, AccessMode::kReadWrite, {}});
  compute("use", {output, AccessMode::kRead, {}});
  return graph;
}

int64_t CpuNs(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

void BurnNs(int64_t ns) {
  const int64_t end = CpuNs(CLOCK_THREAD_CPUTIME_ID) + ns;
  while (CpuNs(CLOCK_THREAD_CPUTIME_ID) < end) {
  }
}

// CPU time of a step that is not compute, of each core that computes.
class OtherCpu {
 public:
  explicit OtherCpu(int64_t work_ns) : work_ns_(work_ns) {}
  double Seconds() const {
    const int num_cores = std::min(
        NumRanks(), static_cast<int>(std::thread::hardware_concurrency()));
    const int64_t ns = CpuNs(CLOCK_PROCESS_CPUTIME_ID) - begin_ns_;
    return (static_cast<double>(ns) / kStepsPerTry -
            static_cast<double>(work_ns_) * NumRanks()) /
           (1e9 * std::max(1, num_cores));
  }

 private:
  const int64_t work_ns_;
  const int64_t begin_ns_ = CpuNs(CLOCK_PROCESS_CPUTIME_ID);
};

double SecondsOf(RankSteps* steps, bool* ok) {
  const auto begin = std::chrono::steady_clock::now();
  *ok = steps->Run(kStepsPerTry) && *ok;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
             .count() /
         kStepsPerTry;
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void RunOverlap(benchmark::State& state, CollectiveKind kind, bool with_link) {
  const auto bytes = static_cast<uint64_t>(state.range(0));
  WorldSpec world;
  world.size = NumRanks();
  if (with_link)
    world.backend_config =
        LinkConfig({.bytes_per_s = 125e6, .latency_ns = 50'000});
  PlanOptions options;
  int64_t work_ns = 0;
  const Graph graph = GraphOf(kind, bytes);
  RankSteps both(world, graph, options, [&work_ns](OpId op) {
    if (op == kWork) BurnNs(work_ns);
  });
  bool ok = true;
  (void)SecondsOf(&both, &ok);
  work_ns = static_cast<int64_t>(1e9 * SecondsOf(&both, &ok));
  const int64_t full_ns = work_ns;
  std::vector<double> overlaps, at_most, pures, overalls;
  for (auto _ : state) {
    work_ns = 0;
    const double pure = SecondsOf(&both, &ok);
    work_ns = full_ns;
    const OtherCpu other(full_ns);
    const double overall = SecondsOf(&both, &ok);
    const double other_cpu = other.Seconds();
    const auto begin = std::chrono::steady_clock::now();
    BurnNs(full_ns);
    const double compute =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
            .count();
    overlaps.push_back(std::max(0.0, 100 - 100 * (overall - compute) / pure));
    at_most.push_back(100 - 100 * other_cpu / pure);
    pures.push_back(pure);
    overalls.push_back(overall);
    if (!ok) state.SkipWithError("a step failed");
    if (!ok) break;
  }
  state.counters["overlap_percent"] = Median(overlaps);
  state.counters["at_most_percent"] = Median(at_most);
  state.counters["pure_comm_us"] = 1e6 * Median(pures);
  state.counters["overall_us"] = 1e6 * Median(overalls);
}

void Sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgName("bytes")->UseRealTime()->Iterations(9)->Unit(
      benchmark::kMillisecond);
  for (const int64_t bytes : {1 << 20, 4 << 20}) bench->Arg(bytes);
}

#define COMMSCHED_BENCH_OVERLAP(name, kind)                             \
  BENCHMARK_CAPTURE(RunOverlap, name##_link, kind, true)->Apply(Sizes); \
  BENCHMARK_CAPTURE(RunOverlap, name##_memory, kind, false)->Apply(Sizes)

COMMSCHED_BENCH_OVERLAP(all_reduce, CollectiveKind::kAllReduce);
COMMSCHED_BENCH_OVERLAP(reduce_scatter, CollectiveKind::kReduceScatter);
COMMSCHED_BENCH_OVERLAP(all_gather, CollectiveKind::kAllGather);
COMMSCHED_BENCH_OVERLAP(all_to_all, CollectiveKind::kAllToAll);
COMMSCHED_BENCH_OVERLAP(broadcast, CollectiveKind::kBroadcast);
COMMSCHED_BENCH_OVERLAP(reduce, CollectiveKind::kReduce);

}  // namespace
}  // namespace commsched
