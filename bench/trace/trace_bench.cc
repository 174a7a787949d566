// What recording costs a step, and what reading the records costs afterwards.
//
//   bench_trace
//
// Look at BM_RecordSpan: ns_per_record of an interval with the two times that
// it takes, at most 80, as sessions record it. BM_Record is the store alone
// where a ring is shared (allocations must be 0; with threads:2 both write to
// one ring), BM_ReadClock two times of the clock. The readers should cost the
// same per record at either size, a logarithm apart.
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "benchmark/benchmark.h"
#include "test/support/alloc_counter.h"
#include "trace/kineto.h"
#include "trace/metrics.h"
#include "trace/recorder.h"

namespace commsched {
namespace {

// Sets ns_per_record from construction to Report. (A rate counter would be
// printed as seconds.)
class PerRecord {
 public:
  void Report(benchmark::State& state, int64_t records) const {
    const auto elapsed =
        static_cast<double>(SystemClock::Get().NowNs() - begin_ns_);
    state.counters["ns_per_record"] = benchmark::Counter(
        elapsed / static_cast<double>(state.iterations() * records),
        benchmark::Counter::kAvgThreads);
  }

 private:
  const int64_t begin_ns_ = SystemClock::Get().NowNs();
};

void BM_Record(benchmark::State& state) {
  static Recorder recorder(1 << 16);
  Record record;
  record.kind = RecordKind::kCompute;
  const uint64_t allocations = HeapAllocations();
  const PerRecord per_record;
  for (auto _ : state) {
    ++record.begin_ns;
    ++record.end_ns;
    recorder.Add(record);
  }
  if (state.threads() == 1) {
    state.counters["allocations"] =
        static_cast<double>(HeapAllocations() - allocations);
  }
  per_record.Report(state, 1);
}
BENCHMARK(BM_Record)->Threads(1)->Threads(2)->UseRealTime();

void BM_RecordSpan(benchmark::State& state) {
  Recorder recorder(1 << 16);
  Recorder::Writer writer(&recorder);
  Record record;
  record.kind = RecordKind::kCompute;
  const PerRecord per_record;
  for (auto _ : state) {
    record.begin_ns = SystemClock::Get().NowNs();
    record.end_ns = SystemClock::Get().NowNs();
    writer.Add(record);
  }
  per_record.Report(state, 1);
}
BENCHMARK(BM_RecordSpan)->UseRealTime();

void BM_ReadClock(benchmark::State& state) {
  const PerRecord per_record;
  for (auto _ : state) {
    benchmark::DoNotOptimize(SystemClock::Get().NowNs());
    benchmark::DoNotOptimize(SystemClock::Get().NowNs());
  }
  per_record.Report(state, 1);
}
BENCHMARK(BM_ReadClock)->UseRealTime();

// Full of steps of 50 computations and 50 launches that overlap them by half.
std::unique_ptr<Recorder> FullRecorder(int64_t capacity) {
  auto recorder = std::make_unique<Recorder>(static_cast<uint64_t>(capacity));
  for (int64_t i = 0; i < capacity; ++i) {
    Record record;
    const int64_t place = i % 101;
    record.step = static_cast<uint64_t>(i / 101);
    record.begin_ns = i * 1000;
    record.end_ns = record.begin_ns + 1500;
    record.kind = place == 0       ? RecordKind::kStepBegin
                  : place % 2 == 0 ? RecordKind::kLaunch
                                   : RecordKind::kCompute;
    recorder->Add(record);
  }
  return recorder;
}

void BM_ComputeStepMetrics(benchmark::State& state) {
  const auto recorder = FullRecorder(state.range(0));
  const PerRecord per_record;
  for (auto _ : state) {
    benchmark::DoNotOptimize(ComputeStepMetrics(*recorder));
  }
  per_record.Report(state, state.range(0));
}
BENCHMARK(BM_ComputeStepMetrics)
    ->ArgName("records")
    ->Arg(1 << 10)
    ->Arg(1 << 16)
    ->UseRealTime();

void BM_KinetoJson(benchmark::State& state) {
  const auto recorder = FullRecorder(state.range(0));
  const PerRecord per_record;
  size_t bytes = 0;
  for (auto _ : state) bytes = KinetoJson(*recorder).size();
  state.counters["bytes_per_record"] =
      static_cast<double>(bytes) / static_cast<double>(state.range(0));
  per_record.Report(state, state.range(0));
}
BENCHMARK(BM_KinetoJson)
    ->ArgName("records")
    ->Arg(1 << 10)
    ->Arg(1 << 16)
    ->UseRealTime();

}  // namespace
}  // namespace commsched
