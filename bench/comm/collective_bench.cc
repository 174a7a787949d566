// Collectives of the in-process backend on 4 rank threads, against memcpy.
//
//   build/release/bin/bench_comm --benchmark_filter='AllReduce/.*'
//
// What to look at: `bytes_per_s` is the input bytes of one rank over the time
// of a launch, `of_memcpy` is the bytes that the collective must at least read
// and write, on all ranks together, over the time that memcpy, on as many
// threads as there are cores, needs to read and write as many in the same run.
// 1.0 is what memory allows; small sizes are waiting for the ranks to take
// turns, about 4 context switches per launch.
//
// Fast sums start with the data of the last rank to arrive, which its core may
// have in its cache, instead of rank 0's. It hardly pays: on 2 cores,
// all-reduce of 1 MiB took 0.95 x the time (median of 15, interleaved), other
// sizes and reduce-scatter were the same within noise. The order of ranks is
// free here.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "comm/world.h"
#include "test/support/comm_driver.h"
#include "test/support/launches.h"

namespace commsched {
namespace {

constexpr int kRanks = 4;

using SteadyTime = std::chrono::steady_clock::time_point;

double SecondsBetween(SteadyTime begin, SteadyTime end) {
  return std::chrono::duration<double>(end - begin).count();
}

// Bytes per second that memcpy reads and writes on all cores, on arrays of
// `bytes` in all, each thread on its own part. From the first thread to begin
// to the last to end, by their own clocks: the thread that starts them may get
// a core only when they are done.
double MemcpyRateOnce(uint64_t bytes) {
  const auto num_threads =
      std::max<uint64_t>(1, std::thread::hardware_concurrency());
  const uint64_t part = std::max<uint64_t>(bytes / num_threads / 2, 64);
  const uint64_t rounds =
      std::clamp<uint64_t>((uint64_t{1} << 26) / bytes, 1, 1024);
  std::barrier<> start(static_cast<std::ptrdiff_t>(num_threads));
  std::vector<SteadyTime> begins(num_threads), ends(num_threads);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < num_threads; ++t) {
    threads.emplace_back([&, t] {
      std::vector<char> from(part, 1), to(part, 2);
      start.arrive_and_wait();
      begins[t] = std::chrono::steady_clock::now();
      for (uint64_t r = 0; r < rounds; ++r) {
        std::memcpy(to.data(), from.data(), part);
        benchmark::DoNotOptimize(to.data());
        benchmark::ClobberMemory();
      }
      ends[t] = std::chrono::steady_clock::now();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return static_cast<double>(2 * part * num_threads * rounds) /
         SecondsBetween(*std::min_element(begins.begin(), begins.end()),
                        *std::max_element(ends.begin(), ends.end()));
}

// The best of some tries: the machine may have other work.
double MemcpyRate(uint64_t bytes) {
  double best = 0;
  for (int i = 0; i < 5; ++i) best = std::max(best, MemcpyRateOnce(bytes));
  return best;
}

// One rank of the benchmarked launch, which is repeated. `bytes` is what is
// reduced, shared out, put together or exchanged, per rank.
class BenchRank {
 public:
  BenchRank(commsched_collective_t kind, bool deterministic, uint64_t bytes,
            int rank)
      : rank_(rank) {
    const uint64_t count = bytes / sizeof(float);
    const uint64_t part = count / kRanks;
    // All in place but all_to_all, which cannot be.
    data_.assign(kind == COMMSCHED_ALL_TO_ALL ? 2 * count : count, 0.0f);
    float* const data = data_.data();
    member_ = {data, data, count, nullptr, 0, 0, 0, 0};
    if (kind == COMMSCHED_REDUCE_SCATTER) {
      member_ = {data, data + part * static_cast<uint64_t>(rank),
                 part, nullptr,
                 0,    0,
                 0,    0};
    } else if (kind == COMMSCHED_ALL_GATHER) {
      member_ = {data + part * static_cast<uint64_t>(rank),
                 data,
                 part,
                 nullptr,
                 0,
                 0,
                 0,
                 0};
    } else if (kind == COMMSCHED_ALL_TO_ALL) {
      member_ = {data, data + count, part, nullptr, 0, 0, 0, 0};
    }
    launch_ = LaunchOf(kind, COMMSCHED_F32, COMMSCHED_SUM, 0,
                       deterministic ? 1u : 0u, 1, &member_);
  }
  BenchRank(const BenchRank&) = delete;

  bool Join(World* world) { return comm_.Create(world, {}, rank_).ok(); }
  bool RunOnce() { return comm_.LaunchAndWait(launch_).ok(); }
  // Ends the other ranks' loops too.
  void Stop() { comm_.Abort(COMMSCHED_CANCELLED, "the benchmark is over"); }

 private:
  const int rank_;
  std::vector<float> data_;
  commsched_member_t member_;
  commsched_launch_t launch_;
  CommDriver comm_;
};

// Bytes that all ranks together must read and write.
double LeastTraffic(commsched_collective_t kind, double bytes) {
  switch (kind) {
    case COMMSCHED_REDUCE_SCATTER:
    case COMMSCHED_ALL_GATHER:
      return bytes * (kRanks + 1);
  }
  return 2 * bytes * kRanks;
}

// Launches one after the other on all ranks, until rank 0 has had enough.
void RunCollective(benchmark::State& state, commsched_collective_t kind,
                   bool deterministic) {
  const auto bytes = static_cast<uint64_t>(state.range(0));
  const double traffic = LeastTraffic(kind, static_cast<double>(bytes));
  const double memcpy_rate = MemcpyRate(static_cast<uint64_t>(traffic));
  WorldSpec spec;
  spec.size = kRanks;
  const auto world = *World::Create(spec);
  std::vector<std::thread> others;
  for (int rank = 1; rank < kRanks; ++rank) {
    others.emplace_back([&, rank] {
      BenchRank other(kind, deterministic, bytes, rank);
      bool ok = other.Join(world.get());
      while (ok) ok = other.RunOnce();
    });
  }
  BenchRank first(kind, deterministic, bytes, 0);
  bool ok = first.Join(world.get()) && first.RunOnce();
  const auto begin = std::chrono::steady_clock::now();
  for (auto _ : state) {
    ok = ok && first.RunOnce();
    if (!ok) state.SkipWithError("a launch failed");
    if (!ok) break;
  }
  const double seconds =
      SecondsBetween(begin, std::chrono::steady_clock::now());
  first.Stop();
  for (std::thread& other : others) other.join();
  using benchmark::Counter;
  const auto iterations = static_cast<double>(state.iterations());
  state.counters["bytes_per_s"] =
      Counter(static_cast<double>(bytes) * iterations, Counter::kIsRate);
  state.counters["of_memcpy"] = traffic * iterations / seconds / memcpy_rate;
}

void BM_AllReduce(benchmark::State& state) {
  RunCollective(state, COMMSCHED_ALL_REDUCE, true);
}
void BM_AllReduceFast(benchmark::State& state) {
  RunCollective(state, COMMSCHED_ALL_REDUCE, false);
}
void BM_ReduceScatter(benchmark::State& state) {
  RunCollective(state, COMMSCHED_REDUCE_SCATTER, true);
}
void BM_ReduceScatterFast(benchmark::State& state) {
  RunCollective(state, COMMSCHED_REDUCE_SCATTER, false);
}
void BM_AllGather(benchmark::State& state) {
  RunCollective(state, COMMSCHED_ALL_GATHER, true);
}
void BM_AllToAll(benchmark::State& state) {
  RunCollective(state, COMMSCHED_ALL_TO_ALL, true);
}

void Sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgName("bytes")->UseRealTime();
  for (const int64_t bytes : {4 << 10, 64 << 10, 1 << 20, 4 << 20, 64 << 20}) {
    bench->Arg(bytes);
  }
}

BENCHMARK(BM_AllReduce)->Apply(Sizes);
BENCHMARK(BM_AllReduceFast)->Apply(Sizes);
BENCHMARK(BM_ReduceScatter)->Apply(Sizes);
BENCHMARK(BM_ReduceScatterFast)->Apply(Sizes);
BENCHMARK(BM_AllGather)->Apply(Sizes);
BENCHMARK(BM_AllToAll)->Apply(Sizes);

}  // namespace
}  // namespace commsched
