// What planning costs, of a graph that the plan shares as those of the C ABI
// are. Run
//   build/release/bin/bench_plan
// and look at ns_per_op: the aim is 1,000 at 100,000 ops, and the same at every
// size, since all passes are O(n log n). Verifying is part of planning; alone
// it is BM_Verify.
#include <time.h>

#include <memory>
#include <string>

#include "benchmark/benchmark.h"
#include "plan/explain/merge_report_text.h"
#include "plan/identity/fingerprint.h"
#include "plan/planner.h"
#include "plan/predict/predict.h"
#include "plan/verify/verify.h"
#include "test/support/graph_builder.h"

namespace commsched {
namespace {

// A bucket is five ops: forward, backward, reduce-scatter, optimizer, gather.
Graph GraphOf(int64_t num_ops) {
  test::ZeroStepSpec spec;
  spec.buckets = static_cast<int>(num_ops / 5);
  return test::ZeroStep(spec);
}

PlanOptions Options() {
  PlanOptions options;
  options.max_launches_in_flight = 8;
  options.coalesce_bytes = 64 << 10;
  return options;
}

double ThreadCpuNs() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e9 * static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec);
}

// Runs `body` as the benchmark and reports its time per op of `graph`: CPU
// time, as planning is one thread's work and waits for nothing.
template <typename Body>
void Measure(benchmark::State& state, const Graph& graph, Body body) {
  const double begin = ThreadCpuNs();
  for (auto _ : state) body();
  state.counters["ns_per_op"] = (ThreadCpuNs() - begin) /
                                static_cast<double>(state.iterations()) /
                                static_cast<double>(graph.ops().size());
}

void MeasureBuild(benchmark::State& state,
                  const std::shared_ptr<const Graph>& graph,
                  const PlanOptions& options, const CostProfile& profile = {}) {
  Measure(state, *graph, [&] {
    auto plan = BuildPlan(graph, options, profile);
    if (!plan.ok()) state.SkipWithError(plan.status().ToString().c_str());
    benchmark::DoNotOptimize(plan);
  });
}

void BM_Plan(benchmark::State& state) {
  const auto graph = std::make_shared<const Graph>(GraphOf(state.range(0)));
  MeasureBuild(state, graph, Options());
}
BENCHMARK(BM_Plan)->ArgName("ops")->Arg(1000)->Arg(10000)->Arg(100000)->Unit(
    benchmark::kMillisecond);

// As by default: merged by cost, over a link whose latency is worth it. Above
// kMaxOpsCompared only the simulations of MergeByCost() come on top.
void BM_PlanByCost(benchmark::State& state) {
  const auto graph = std::make_shared<const Graph>(GraphOf(state.range(0)));
  PlanOptions options = Options();
  options.coalesce_bytes = kCoalesceAuto;
  CostProfile profile;
  profile.link_latency_ns = 50'000;
  MeasureBuild(state, graph, options, profile);
}
BENCHMARK(BM_PlanByCost)
    ->ArgName("ops")
    ->Arg(1000)
    ->Arg(10000)
    ->Arg(100000)
    ->Unit(benchmark::kMillisecond);

// With memory for half of what is owned: lifetimes, sharing, arena edges.
void BM_PlanInTightArena(benchmark::State& state) {
  const auto graph = std::make_shared<const Graph>(GraphOf(state.range(0)));
  PlanOptions options = Options();
  auto loose = BuildPlan(graph, options, {});
  if (!loose.ok()) {
    state.SkipWithError(loose.status().ToString().c_str());
    return;
  }
  options.arena_bytes = (*loose)->arena_bytes / 2;
  MeasureBuild(state, graph, options);
}
BENCHMARK(BM_PlanInTightArena)
    ->ArgName("ops")
    ->Arg(10000)
    ->Arg(100000)
    ->Unit(benchmark::kMillisecond);

// By cost, with memory for four gradients besides the shards, a fifth of what
// is owned, and none to pack much in. Merged launches do not fit: the plan
// without merges comes on top, and of up to kMaxOpsCompared ops those with
// limits. The label says what came of it.
void BM_PlanByCostInTightArena(benchmark::State& state) {
  const auto graph = std::make_shared<const Graph>(GraphOf(state.range(0)));
  CostProfile profile;
  profile.link_latency_ns = 50'000;
  PlanOptions options = Options();
  options.coalesce_bytes = 0;
  options.backend.lists = false;
  auto plan = BuildPlan(graph, options, profile);
  if (plan.ok()) {
    options.arena_bytes = (*plan)->arena_bytes / 5 +
                          4 * sizeof(float) * test::ZeroStepSpec().count;
    options.coalesce_bytes = kCoalesceAuto;
    plan = BuildPlan(graph, options, profile);
  }
  if (!plan.ok()) {
    state.SkipWithError(plan.status().ToString().c_str());
    return;
  }
  state.SetLabel(std::string(ChoiceName((*plan)->merging.choice)));
  MeasureBuild(state, graph, options, profile);
}
BENCHMARK(BM_PlanByCostInTightArena)
    ->ArgName("ops")
    ->Arg(1000)
    ->Arg(10000)
    ->Arg(100000)
    ->Unit(benchmark::kMillisecond);

template <typename Body>
void MeasureOnPlan(benchmark::State& state, Body body) {
  const Graph graph = GraphOf(state.range(0));
  auto plan = BuildPlan(graph, Options(), {});
  if (!plan.ok()) {
    state.SkipWithError(plan.status().ToString().c_str());
    return;
  }
  Measure(state, graph, [&] { body(**plan); });
}

void BM_InferDependencies(benchmark::State& state) {
  MeasureOnPlan(state, [](const Plan& plan) {
    benchmark::DoNotOptimize(InferDependencies(*plan.graph));
  });
}
BENCHMARK(BM_InferDependencies)
    ->ArgName("ops")
    ->Arg(100000)
    ->Unit(benchmark::kMillisecond);

void BM_Verify(benchmark::State& state) {
  MeasureOnPlan(state, [](const Plan& plan) {
    benchmark::DoNotOptimize(VerifyPlan(plan));
  });
}
BENCHMARK(BM_Verify)->ArgName("ops")->Arg(10000)->Arg(100000)->Unit(
    benchmark::kMillisecond);

void BM_Fingerprint(benchmark::State& state) {
  MeasureOnPlan(state, [](const Plan& plan) {
    benchmark::DoNotOptimize(FingerprintOf(plan));
  });
}
BENCHMARK(BM_Fingerprint)
    ->ArgName("ops")
    ->Arg(100000)
    ->Unit(benchmark::kMillisecond);

void BM_Predict(benchmark::State& state) {
  MeasureOnPlan(state, [](const Plan& plan) {
    benchmark::DoNotOptimize(Predict(plan, plan.profile));
  });
}
BENCHMARK(BM_Predict)
    ->ArgName("ops")
    ->Arg(100000)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace commsched
