// What ranks of the tests' jobs have in common.
#ifndef COMMSCHED_TEST_PROCESSES_JOB_RANK_H_
#define COMMSCHED_TEST_PROCESSES_JOB_RANK_H_

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "commsched/commsched.hpp"

namespace commsched::test {

// Says what has failed and ends with 1.
inline void Check(const api::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

template <typename T>
T Value(api::Result<T> result) {
  Check(result.status());
  return *std::move(result);
}

inline void Say(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

// A Reducer's Run() sums up a value of each of its ranks.
template <typename Reducer>
void Work(Reducer* reducer, int num_runs, float num_ranks) {
  for (int i = 0; i < num_runs; ++i) {
    float sum = 0;
    Check(reducer->Run(1, &sum));
    if (sum == num_ranks) continue;
    std::fprintf(stderr, "the sum of ones is %g, not %g\n",
                 static_cast<double>(sum), static_cast<double>(num_ranks));
    std::exit(1);
  }
}

// All ranks end with the same run, once one of them has had enough.
template <typename Reducer>
void WorkFor(std::chrono::seconds time, Reducer* reducer) {
  const auto end = std::chrono::steady_clock::now() + time;
  float has_enough = 0;
  while (has_enough == 0) {
    const bool enough = std::chrono::steady_clock::now() > end;
    Check(reducer->Run(enough ? 1 : 0, &has_enough));
  }
}

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_PROCESSES_JOB_RANK_H_
