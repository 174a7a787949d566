// What dependency inference costs per op.
//
//   bin/bench_graph --benchmark_filter=InferDependencies
//
// Look at ns_per_op: it should stay well under 1000 (planning as a whole may
// take that) and grow no faster than log n from 1e3 to 1e5 ops.
#include <chrono>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "graph/dependencies.h"
#include "test/graph/builders.h"

namespace commsched {
namespace {

constexpr uint64_t kElements = 4096;

// Forward, backward, reduce-scatter, update and gather for as many layers as
// give `num_ops` ops, each with its own weights, gradient and activation.
Graph LayeredStep(int64_t num_ops) {
  Graph graph;
  const GroupId dp = *graph.AddGroup("dp", 8);
  BufferId input = *graph.AddBuffer(F32("tokens", kElements));
  for (int64_t i = 0; i < num_ops / 5; ++i) {
    const auto buffer = [&](absl::string_view name) {
      return *graph.AddBuffer(F32(absl::StrCat(name, i), kElements));
    };
    const auto add = [&](Op op) { benchmark::DoNotOptimize(graph.AddOp(op)); };
    const BufferId w = buffer("w");
    const BufferId g = buffer("g");
    const BufferId x = buffer("x");
    const auto kWrite = AccessMode::kWrite;
    add(Compute(absl::StrCat("fwd", i),
                {Whole(input), Whole(w), Whole(x, kWrite)}));
    add(Compute(absl::StrCat("bwd", i),
                {Whole(x), Whole(w), Whole(g, kWrite)}));
    add(Collective(absl::StrCat("rs", i), CollectiveKind::kReduceScatter, dp,
                   Whole(g), Shard(g, dp)));
    add(Compute(absl::StrCat("opt", i),
                {Shard(g, dp), Shard(w, dp, AccessMode::kReadWrite)}));
    add(Collective(absl::StrCat("ag", i), CollectiveKind::kAllGather, dp,
                   Shard(w, dp), Whole(w)));
    input = x;
  }
  return graph;
}

// All gradients in one flat buffer, written as ranges and reduced in buckets of
// eight: the interval map at work.
Graph FlatStep(int64_t num_ops) {
  Graph graph;
  const GroupId dp = *graph.AddGroup("dp", 8);
  const int64_t num_buckets = num_ops / 9;
  const BufferId flat =
      *graph.AddBuffer(F32("flat", num_buckets * 8 * kElements));
  for (int64_t i = 0; i < num_buckets; ++i) {
    for (int64_t j = 0; j < 8; ++j) {
      const uint64_t offset = (i * 8 + j) * kElements;
      benchmark::DoNotOptimize(graph.AddOp(
          Compute(absl::StrCat("bwd", i, ".", j),
                  {Range(flat, offset, kElements, AccessMode::kWrite)})));
    }
    const Access bucket = Range(flat, i * 8 * kElements, 8 * kElements);
    benchmark::DoNotOptimize(graph.AddOp(Collective(absl::StrCat("ar", i),
                                                    CollectiveKind::kAllReduce,
                                                    dp, bucket, bucket)));
  }
  return graph;
}

void Infer(benchmark::State& state, const Graph& graph) {
  const auto begin = std::chrono::steady_clock::now();
  for (auto _ : state) {
    const auto dependencies = InferDependencies(graph);
    benchmark::DoNotOptimize(dependencies->edges.data());
  }
  const std::chrono::duration<double, std::nano> taken =
      std::chrono::steady_clock::now() - begin;
  const double num_ops = static_cast<double>(graph.ops().size());
  state.counters["ns_per_op"] =
      taken.count() / (num_ops * static_cast<double>(state.iterations()));
}

void BM_InferDependencies(benchmark::State& state) {
  Infer(state, LayeredStep(state.range(0)));
}
BENCHMARK(BM_InferDependencies)
    ->ArgName("ops")
    ->RangeMultiplier(10)
    ->Range(1000, 100000);

void BM_InferDependenciesFlatBuffer(benchmark::State& state) {
  Infer(state, FlatStep(state.range(0)));
}
BENCHMARK(BM_InferDependenciesFlatBuffer)
    ->ArgName("ops")
    ->RangeMultiplier(10)
    ->Range(1000, 100000);

}  // namespace
}  // namespace commsched
