#include "trace/prometheus.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace commsched {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(PrometheusWriterTest, AFamilyIsHelpTypeAndSamples) {
  PrometheusWriter writer;
  writer.Family("commsched_steps_total", "counter", "Steps.");
  writer.Sample({{"rank", "3"}}, 12);
  writer.Sample({}, 0.5);
  EXPECT_EQ(writer.text(),
            "# HELP commsched_steps_total Steps.\n"
            "# TYPE commsched_steps_total counter\n"
            "commsched_steps_total{rank=\"3\"} 12\n"
            "commsched_steps_total 0.5\n");
}

TEST(PrometheusWriterTest, LabelValuesAreEscaped) {
  PrometheusWriter writer;
  writer.Family("m", "gauge", "M.");
  writer.Sample({{"axis", "a\"b\\c\nd"}}, 1);
  EXPECT_THAT(writer.text(), HasSubstr("m{axis=\"a\\\"b\\\\c\\nd\"} 1\n"));
}

TEST(PrometheusWriterTest, LargeCountsAreExact) {
  PrometheusWriter writer;
  writer.Family("m", "gauge", "M.");
  writer.Sample({}, 9007199254740991.0);
  EXPECT_THAT(writer.text(), HasSubstr("m 9007199254740991\n"));
}

TEST(HistogramTest, BucketsAreCumulativeAndIncludeTheirEdge) {
  Histogram histogram({1, 2});
  for (const double value : {0.5, 1.0, 1.5, 7.0}) histogram.Add(value);
  PrometheusWriter writer;
  writer.Family("m", "histogram", "M.");
  histogram.Write({}, &writer);
  EXPECT_THAT(writer.text(), HasSubstr("m_bucket{le=\"1\"} 2\n"
                                       "m_bucket{le=\"2\"} 3\n"
                                       "m_bucket{le=\"+Inf\"} 4\n"
                                       "m_sum 10\n"
                                       "m_count 4\n"));
}

Record MadeInStep(RecordKind kind, uint64_t step, int64_t begin_ns,
                  int64_t end_ns) {
  Record record;
  record.kind = kind;
  record.step = step;
  record.begin_ns = begin_ns;
  record.end_ns = end_ns;
  return record;
}

RecordNames Names() {
  RecordNames names;
  names.rank = 2;
  names.ops = {"forward"};
  RecordNames::LaunchName launch;
  launch.collective = "all_gather";
  launch.axis = "dp";
  launch.bytes = 4096;
  launch.num_members = 3;
  names.launches = {launch};
  return names;
}

// A step of 10 ms: launch in [1, 5) ms, compute in [2, 4) ms.
TEST(TraceMetricsTest, SumsUpTheStepsAndLaunchesHeld) {
  Recorder recorder(1024);
  recorder.SetNames(Names());
  recorder.Add(MadeInStep(RecordKind::kStepBegin, 0, 0, 0));
  recorder.Add(MadeInStep(RecordKind::kLaunch, 0, 1'000'000, 5'000'000));
  recorder.Add(MadeInStep(RecordKind::kCompute, 0, 2'000'000, 4'000'000));
  recorder.Add(MadeInStep(RecordKind::kWait, 0, 5'000'000, 5'500'000));
  recorder.Add(MadeInStep(RecordKind::kStepBegin, 1, 10'000'000, 0));
  const std::string text = TraceMetricsText(recorder);
  EXPECT_THAT(text, HasSubstr("commsched_trace_steps{rank=\"2\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("commsched_step_seconds{rank=\"2\"} 0.01\n"));
  EXPECT_THAT(text,
              HasSubstr("commsched_exposed_comm_seconds{rank=\"2\"} 0.002\n"));
  EXPECT_THAT(text, HasSubstr("commsched_overlap_ratio{rank=\"2\"} 0.5\n"));
  const std::string kind = "{rank=\"2\",op=\"all_gather\",axis=\"dp\"";
  EXPECT_THAT(text, HasSubstr("commsched_collective_seconds_bucket" + kind +
                              ",le=\"0.003\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("commsched_collective_seconds_bucket" + kind +
                              ",le=\"0.01\"} 1\n"));
  EXPECT_THAT(text,
              HasSubstr("commsched_collective_bytes" + kind + "} 4096\n"));
  EXPECT_THAT(text, HasSubstr("commsched_batch_ops_sum" + kind + "} 3\n"));
  EXPECT_THAT(text,
              HasSubstr("commsched_task_wait_seconds_count{rank=\"2\"} 1\n"));
}

TEST(TraceMetricsTest, AnEmptyTraceHasNoOverlap) {
  Recorder recorder(1024);
  const std::string text = TraceMetricsText(recorder);
  EXPECT_THAT(text, HasSubstr("commsched_trace_steps{rank=\"0\"} 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("commsched_overlap_ratio")));
}

}  // namespace
}  // namespace commsched
