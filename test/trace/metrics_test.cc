#include "trace/metrics.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/property.h"

namespace commsched {
namespace {

// A recorder that is told what happened in the order of a test.
class History {
 public:
  void Begin(uint64_t step, int64_t at_ns) {
    Add(RecordKind::kStepBegin, step, at_ns, at_ns);
  }
  void Compute(int64_t begin_ns, int64_t end_ns, uint8_t lane = 0) {
    Add(RecordKind::kCompute, 0, begin_ns, end_ns, lane);
  }
  void Launch(uint64_t step, int64_t begin_ns, int64_t end_ns,
              uint32_t index = 0, uint64_t bytes_in_flight = 0) {
    Add(RecordKind::kLaunch, step, begin_ns, end_ns, 0, index, bytes_in_flight);
  }
  void Wait(int64_t begin_ns, int64_t end_ns) {
    Add(RecordKind::kWait, 0, begin_ns, end_ns);
  }
  Recorder& recorder() { return recorder_; }
  std::vector<StepMetrics> Metrics() const {
    return ComputeStepMetrics(recorder_);
  }

 private:
  void Add(RecordKind kind, uint64_t step, int64_t begin_ns, int64_t end_ns,
           uint8_t lane = 0, uint32_t index = 0, uint64_t value = 0) {
    Record record;
    record.kind = kind;
    record.step = step;
    record.begin_ns = begin_ns;
    record.end_ns = end_ns;
    record.lane = lane;
    record.index = index;
    record.value = value;
    recorder_.Add(record);
  }

  Recorder recorder_{4096};
};

TEST(StepMetricsTest, ExposedIsCommunicationThatNoComputeHides) {
  History history;
  history.Begin(0, 0);
  history.Compute(0, 100);
  history.Launch(0, 60, 150);  // 40 hidden, 50 exposed
  history.Compute(180, 260);
  history.Launch(0, 200, 220);  // hidden
  history.Begin(1, 300);

  const std::vector<StepMetrics> metrics = history.Metrics();

  ASSERT_EQ(metrics.size(), 1u);
  EXPECT_EQ(metrics[0].step, 0u);
  EXPECT_EQ(metrics[0].step_ns, 300);
  EXPECT_EQ(metrics[0].compute_ns, 180);
  EXPECT_EQ(metrics[0].comm_ns, 110);
  EXPECT_EQ(metrics[0].exposed_ns, 50);
}

TEST(StepMetricsTest, WhatOverlapsItselfCountsOnce) {
  History history;
  history.Begin(0, 0);
  history.Compute(0, 50, 0);
  history.Compute(30, 80, 1);
  history.Launch(0, 60, 120);
  history.Launch(0, 70, 90);    // inside the one before
  history.Launch(0, 120, 130);  // touches it
  history.Begin(1, 200);

  const std::vector<StepMetrics> metrics = history.Metrics();

  ASSERT_EQ(metrics.size(), 1u);
  EXPECT_EQ(metrics[0].compute_ns, 80);
  EXPECT_EQ(metrics[0].comm_ns, 70);
  EXPECT_EQ(metrics[0].exposed_ns, 50);
}

TEST(StepMetricsTest, IntervalAcrossTheBoundaryIsCutThere) {
  History history;
  history.Begin(0, 0);
  history.Launch(0, 80, 130);
  history.Begin(1, 100);
  history.Compute(100, 120);
  history.Begin(2, 200);

  const std::vector<StepMetrics> metrics = history.Metrics();

  ASSERT_EQ(metrics.size(), 2u);
  EXPECT_EQ(metrics[0].comm_ns, 20);
  EXPECT_EQ(metrics[0].exposed_ns, 20);
  EXPECT_EQ(metrics[1].comm_ns, 30);
  EXPECT_EQ(metrics[1].exposed_ns, 10);
}

TEST(StepMetricsTest, LaunchIsCountedInItsOwnStepWhereverItRan) {
  History history;
  history.recorder().SetNames([] {
    RecordNames names;
    names.launches.resize(2);
    names.launches[0].num_members = 3;
    return names;
  }());
  history.Begin(0, 0);
  history.Begin(1, 100);
  history.Launch(0, 110, 130, 0, 700);
  history.Launch(1, 120, 140, 1, 900);
  history.Launch(1, 125, 145, 1, 800);
  history.Begin(2, 200);

  const std::vector<StepMetrics> metrics = history.Metrics();

  ASSERT_EQ(metrics.size(), 2u);
  EXPECT_EQ(metrics[0].num_launches, 1u);
  EXPECT_EQ(metrics[0].num_collectives, 3u);
  EXPECT_EQ(metrics[0].peak_bytes_in_flight, 700u);
  EXPECT_EQ(metrics[1].num_launches, 2u);
  EXPECT_EQ(metrics[1].num_collectives, 2u);
  EXPECT_EQ(metrics[1].peak_bytes_in_flight, 900u);
}

TEST(StepMetricsTest, StepWithoutItsSuccessorIsNotComplete) {
  History history;
  EXPECT_TRUE(history.Metrics().empty());
  history.Compute(0, 10);
  history.Begin(7, 20);
  EXPECT_TRUE(history.Metrics().empty());
  history.Begin(8, 50);
  history.Begin(0, 90);  // another session's first
  history.Begin(1, 95);

  const std::vector<StepMetrics> metrics = history.Metrics();

  ASSERT_EQ(metrics.size(), 2u);
  EXPECT_EQ(metrics[0].step, 7u);
  EXPECT_EQ(metrics[0].compute_ns, 0);
  EXPECT_EQ(metrics[1].step, 0u);
}

TEST(StepMetricsTest, OverwrittenStepsAreLeftOut) {
  History history;
  for (uint64_t step = 0; step < 1000; ++step) {
    const auto at = static_cast<int64_t>(step) * 100;
    history.Begin(step, at);
    for (int64_t i = 0; i < 9; ++i)
      history.Compute(at + i * 10, at + i * 10 + 5);
  }

  const std::vector<StepMetrics> metrics = history.Metrics();

  // 4096 records are 409.6 steps: of the oldest the begin is gone, the newest
  // has no successor.
  ASSERT_EQ(metrics.size(), 408u);
  EXPECT_EQ(metrics.front().step, 591u);
  EXPECT_EQ(metrics.back().step, 998u);
  for (const StepMetrics& step : metrics) EXPECT_EQ(step.compute_ns, 45);
}

// The definition, one nanosecond at a time.
StepMetrics BruteForce(const std::vector<Record>& records, uint64_t step,
                       int64_t begin_ns, int64_t end_ns) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.step_ns = end_ns - begin_ns;
  for (int64_t t = begin_ns; t < end_ns; ++t) {
    const auto runs = [&records, t](RecordKind kind) {
      return std::any_of(records.begin(), records.end(),
                         [kind, t](const Record& record) {
                           return record.kind == kind && record.begin_ns <= t &&
                                  t < record.end_ns;
                         });
    };
    const bool compute = runs(RecordKind::kCompute);
    const bool comm = runs(RecordKind::kLaunch);
    metrics.compute_ns += compute;
    metrics.comm_ns += comm;
    metrics.exposed_ns += comm && !compute;
  }
  return metrics;
}

TEST(StepMetricsTest, TimesAreThoseOfTheDefinitionForRandomHistories) {
  for (int i = 0; i < test::PropertyCases(200); ++i) {
    const uint64_t seed = test::PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(test::DescribeSeed(seed));
    std::mt19937_64 random(seed);
    const auto below = [&random](uint64_t limit) {
      return static_cast<int64_t>(random() % limit);
    };
    History history;
    std::vector<int64_t> begins;
    for (int64_t t = below(20); begins.size() < 5; t += below(60)) {
      history.Begin(begins.size(), t);
      begins.push_back(t);
    }
    for (int64_t n = below(40); n > 0; --n) {
      const int64_t begin = below(250);
      const int64_t end = begin + below(30);
      const int64_t kind = below(5);
      if (kind < 2) history.Compute(begin, end);
      if (kind == 2) history.Wait(begin, end);
      if (kind > 2) history.Launch(0, begin, end);
    }

    const std::vector<StepMetrics> metrics = history.Metrics();

    ASSERT_EQ(metrics.size(), begins.size() - 1);
    const std::vector<Record> records = history.recorder().Snapshot();
    for (size_t s = 0; s < metrics.size(); ++s) {
      const StepMetrics expected =
          BruteForce(records, s, begins[s], begins[s + 1]);
      EXPECT_EQ(metrics[s].step_ns, expected.step_ns);
      EXPECT_EQ(metrics[s].compute_ns, expected.compute_ns);
      EXPECT_EQ(metrics[s].comm_ns, expected.comm_ns);
      EXPECT_EQ(metrics[s].exposed_ns, expected.exposed_ns);
    }
  }
}

TEST(RecentStepTest, IsWhatTheStepIsAmongAll) {
  History history;
  for (uint64_t step = 0; step < 40; ++step) {
    const auto begin = static_cast<int64_t>(1000 * step);
    history.Begin(step, begin);
    history.Compute(begin + 10, begin + 500);
    history.Launch(step, begin + 400, begin + 600 + static_cast<int64_t>(step));
  }
  const std::vector<StepMetrics> all = history.Metrics();
  for (const uint64_t step : {37, 38}) {
    const auto recent = ComputeRecentStep(history.recorder(), step);
    ASSERT_TRUE(recent.has_value());
    EXPECT_EQ(recent->exposed_ns, all[step].exposed_ns);
    EXPECT_EQ(recent->comm_ns, all[step].comm_ns);
    EXPECT_EQ(recent->step_ns, all[step].step_ns);
    EXPECT_EQ(recent->num_launches, 1u);
  }
  EXPECT_FALSE(ComputeRecentStep(history.recorder(), 2).has_value());
}

TEST(RecentStepTest, LastOneLastsUntilTheLastRecord) {
  History history;
  history.Begin(0, 0);
  history.Compute(0, 100);
  history.Launch(0, 60, 150);
  const auto recent = ComputeRecentStep(history.recorder(), 0);
  ASSERT_TRUE(recent.has_value());
  EXPECT_EQ(recent->step_ns, 150);
  EXPECT_EQ(recent->exposed_ns, 50);
}

TEST(RecentStepTest, IsNoneWhereItsBeginIsNotHeld) {
  History history;
  EXPECT_FALSE(ComputeRecentStep(history.recorder(), 0).has_value());
  history.Compute(0, 100);
  EXPECT_FALSE(ComputeRecentStep(history.recorder(), 0).has_value());
  history.Begin(7, 200);
  EXPECT_FALSE(ComputeRecentStep(history.recorder(), 8).has_value());
}

// A writer's block of slots may be that of some steps before.
TEST(RecentStepTest, FindsRecordsThatWritersPutIntoOlderBlocks) {
  History history;
  Recorder::Writer writer(&history.recorder());
  for (uint64_t step = 0; step < 20; ++step) {
    const auto begin = static_cast<int64_t>(1000 * step);
    history.Begin(step, begin);
    Record launch;
    launch.kind = RecordKind::kLaunch;
    launch.step = step;
    launch.begin_ns = begin + 100;
    launch.end_ns = begin + 300;
    writer.Add(launch);
    history.Compute(begin + 400, begin + 500);
    const auto recent = ComputeRecentStep(history.recorder(), step);
    ASSERT_TRUE(recent.has_value());
    EXPECT_EQ(recent->comm_ns, 200) << step;
  }
}

}  // namespace
}  // namespace commsched
