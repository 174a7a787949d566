#include "examples/trainer/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace commsched::trainer {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

StepRecord Record(uint64_t step, double step_s) {
  StepRecord record;
  record.metrics.step = step;
  record.metrics.step_ns = static_cast<int64_t>(step_s * 1e9);
  record.metrics.compute_ns = record.metrics.step_ns / 2;
  record.metrics.comm_ns = 1'000'000'000;
  record.metrics.exposed_ns = record.metrics.step_ns / 10;
  record.metrics.num_launches = 3;
  record.metrics.num_collectives = 5;
  return record;
}

TEST(SummarizeTest, TakesTheMedianOverStepsOfTheSlowestRank) {
  const StepSummary summary =
      Summarize({{Record(0, 1), Record(1, 5), Record(2, 3)},
                 {Record(0, 2), Record(1, 4), Record(2, 1)}},
                0, {});
  EXPECT_EQ(summary.steps, 3);
  EXPECT_DOUBLE_EQ(summary.step_s, 3);
  EXPECT_DOUBLE_EQ(summary.compute_s, 1.5);
  EXPECT_DOUBLE_EQ(summary.exposed_s, 0.3);
  EXPECT_DOUBLE_EQ(summary.overlap_pct, 70);
  EXPECT_EQ(summary.launches, 3);
  EXPECT_EQ(summary.collectives, 5);
}

TEST(SummarizeTest, LeavesOutWarmUpExcludedAndIncompleteSteps) {
  const StepSummary summary = Summarize(
      {{Record(0, 9), Record(1, 9), Record(2, 1), Record(3, 9), Record(4, 3)},
       {Record(0, 9), Record(1, 9), Record(2, 1), Record(3, 9)}},
      2, {3});
  EXPECT_EQ(summary.steps, 1);
  EXPECT_DOUBLE_EQ(summary.step_s, 1);
}

TEST(SummarizeTest, CountsWarmUpWhenThereIsNothingElse) {
  EXPECT_DOUBLE_EQ(Summarize({{Record(0, 7)}}, 2, {}).step_s, 7);
}

TEST(SummarizeTest, OfNothingIsZero) {
  const StepSummary summary = Summarize({{}, {}}, 2, {});
  EXPECT_EQ(summary.steps, 0);
  EXPECT_EQ(summary.step_s, 0);
}

TEST(SummarizeTest, WithoutCommunicationThereIsNoOverlap) {
  StepRecord record = Record(2, 1);
  record.metrics.comm_ns = record.metrics.exposed_ns = 0;
  EXPECT_EQ(Summarize({{record}}, 0, {}).overlap_pct, 0);
}

TEST(ReportTest, JsonIsOneLineWithEveryPromisedKey) {
  Report report;
  report.weights_sha256 = "ab";
  report.step.step_s = 3;
  report.bound.lower_bound_ns = 2'000'000'000;
  const std::string text = FormatJson(report);
  EXPECT_THAT(text, Not(HasSubstr("\n")));
  const nlohmann::json json = nlohmann::json::parse(text);
  for (const char* key : {"steps",
                          "loss",
                          "val_loss",
                          "tokens_per_s",
                          "step_time_s",
                          "compute_s",
                          "comm_s",
                          "exposed_comm_s",
                          "overlap_pct",
                          "launches_per_step",
                          "collectives_per_step",
                          "peak_bytes_in_flight",
                          "cap_bytes",
                          "peak_bytes_per_rank",
                          "process_peak_bytes",
                          "save_bytes",
                          "lower_bound_s",
                          "ratio_to_lower_bound",
                          "weights_sha256",
                          "exposed_by",
                          "exposed_mean_s",
                          "predicted_step_s",
                          "micro_batches",
                          "accumulated_bytes",
                          "peak_live_bytes"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_DOUBLE_EQ(json["ratio_to_lower_bound"], 1.5);
}

TEST(SummarizeTest, BlameIsTheMeanAndAddsUpToTheMeanExposed) {
  StepRecord first = Record(2, 1);
  first.blame.cap_ns = 100'000'000;
  first.blame.link_ns = 400'000'000;
  StepRecord second = Record(3, 1);
  second.blame.order_ns = 200'000'000;
  second.blame.straggler_ns = 100'000'000;
  const StepSummary summary = Summarize({{first, second}}, 0, {});
  EXPECT_EQ(summary.blame.exposed_ns, 400'000'000);
  EXPECT_EQ(summary.blame.link_ns, 200'000'000);
  EXPECT_EQ(summary.blame.straggler_ns, 50'000'000);
}

TEST(ReportTest, TheTableNamesTheCausesThatThereAre) {
  Report report;
  report.step.steps = 1;
  report.step.blame.dependency_ns = 250'000'000;
  report.step.blame.link_ns = 500'000'000;
  const std::string table = FormatTable(report);
  EXPECT_THAT(table, HasSubstr("dependency 250"));
  EXPECT_THAT(table, HasSubstr(", link 500"));
  EXPECT_THAT(table, Not(HasSubstr("straggler")));
}

TEST(ReportTest, MemoryPerRankIsModelStateAndActivations) {
  Report report;
  report.engine.state_bytes = 300;
  report.activation_bytes = 4000;
  EXPECT_EQ(report.peak_bytes_per_rank(), 4300u);
  report.activation_bytes = 3 << 20;
  EXPECT_THAT(FormatTable(report),
              HasSubstr("activations per rank     3.00 MiB"));
}

TEST(ReportTest, WhatWasResidentIsBesideWhatIsAccountedFor) {
  Report report;
  EXPECT_THAT(FormatTable(report), Not(HasSubstr("resident")));
  report.process_peak_bytes = 5 << 20;
  EXPECT_THAT(FormatTable(report),
              HasSubstr("resident at the peak     5.00 MiB\n"));
  report.ranks_per_process = 4;
  report.save_bytes = 1 << 20;
  EXPECT_THAT(FormatTable(report),
              HasSubstr("5.00 MiB of the process with its 4 ranks, 1.00 MiB of "
                        "it for saves\n"));
}

TEST(ReportTest, TheTableSaysWhatAccumulatesOverMicroBatches) {
  Report report;
  report.engine.accumulated_bytes = 3 << 20;
  EXPECT_THAT(FormatTable(report), Not(HasSubstr("accumulated")));
  report.options.micro_batches = 4;
  EXPECT_THAT(FormatTable(report), HasSubstr("3.00 MiB over 4 micro-batches"));
}

TEST(ReportTest, TheTableNamesTheCap) {
  Report report;
  EXPECT_THAT(FormatTable(report), HasSubstr("no cap"));
  report.options.cap_bytes = 2 << 20;
  EXPECT_THAT(FormatTable(report), HasSubstr("cap 2.00 MiB"));
}

TEST(FormatTableTest, ARunTooShortForASteadyStepSaysSo) {
  Report report;
  report.options.ranks = 2;
  report.steps = 1;
  report.step.step_s = 0.25;
  const std::string table = FormatTable(report);
  EXPECT_THAT(table, HasSubstr("no steady step was measured"));
  EXPECT_THAT(table, HasSubstr("250 ms, mean of 1 steps"));
  EXPECT_THAT(table, Not(HasSubstr("median")));
  EXPECT_THAT(table, Not(HasSubstr("overlap  ")));
}

TEST(ReportTest, SkippedStepsAreToldOfWithoutALossScale) {
  Report report;
  report.loss_scale = 1;
  report.skipped_steps = 3;
  const std::string table = FormatTable(report);
  EXPECT_THAT(table, testing::ContainsRegex("skipped steps +3, gradients"));
  EXPECT_THAT(table, testing::Not(testing::HasSubstr("loss scale")));
}

}  // namespace
}  // namespace commsched::trainer
