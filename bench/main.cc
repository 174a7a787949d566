// Google Benchmark's main, for programs whose standard descriptors may be
// closed (a file of --benchmark_out would get theirs) and whose output may
// fail.

#include <benchmark/benchmark.h>

#include <iostream>

#include "examples/trainer/standard_streams.h"

int main(int argc, char** argv) {
  if (!commsched::OpenStandardStreams()) return 1;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  std::cout.flush();
  return commsched::FinishOutput(argv[0], std::cout.good() ? 0 : 1);
}
