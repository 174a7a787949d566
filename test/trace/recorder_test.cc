#include "trace/recorder.h"

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

Record Interval(int64_t begin_ns, int64_t end_ns, uint32_t index = 0) {
  Record record;
  record.kind = RecordKind::kCompute;
  record.begin_ns = begin_ns;
  record.end_ns = end_ns;
  record.index = index;
  return record;
}

TEST(RecorderTest, CapacityOutsideItsLimitsIsRefusedByName) {
  EXPECT_THAT(Recorder::Create(1023),
              StatusIs(absl::StatusCode::kInvalidArgument, "1023"));
  EXPECT_THAT(Recorder::Create((uint64_t{1} << 26) + 1),
              StatusIs(absl::StatusCode::kInvalidArgument, "67108865"));
  EXPECT_OK(Recorder::Create(1024));
}

TEST(RecorderTest, EveryFieldComesBack) {
  Recorder recorder(16);
  Record record;
  record.begin_ns = -5;
  record.end_ns = int64_t{1} << 60;
  record.step = ~uint64_t{0};
  record.value = ~uint64_t{0} - 1;
  record.index = 0xFFFFFFFE;
  record.kind = RecordKind::kWait;
  record.lane = 255;
  recorder.Add(record);

  const std::vector<Record> records = recorder.Snapshot();

  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].begin_ns, record.begin_ns);
  EXPECT_EQ(records[0].end_ns, record.end_ns);
  EXPECT_EQ(records[0].step, record.step);
  EXPECT_EQ(records[0].value, record.value);
  EXPECT_EQ(records[0].index, record.index);
  EXPECT_EQ(records[0].kind, record.kind);
  EXPECT_EQ(records[0].lane, record.lane);
}

TEST(RecorderTest, OldestRecordsAreOverwritten) {
  Recorder recorder(1000);  // 1024 slots
  for (uint32_t i = 0; i < 3000; ++i) recorder.Add(Interval(i, i + 1, i));

  const std::vector<Record> records = recorder.Snapshot();

  ASSERT_EQ(records.size(), 1024u);
  EXPECT_EQ(records.front().index, 3000u - 1024u);
  EXPECT_EQ(records.back().index, 2999u);
}

TEST(RecorderTest, SnapshotIsSortedByBeginAndKeepsTheOrderOfEquals) {
  Recorder recorder(8);
  recorder.Add(Interval(20, 21, 0));
  recorder.Add(Interval(10, 30, 1));
  recorder.Add(Interval(20, 22, 2));

  const std::vector<Record> records = recorder.Snapshot();

  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].index, 1u);
  EXPECT_EQ(records[1].index, 0u);
  EXPECT_EQ(records[2].index, 2u);
}

TEST(RecorderTest, IntervalThatEndsBeforeItBeginsIsDropped) {
  Recorder recorder(8);
  recorder.Add(Interval(20, 10));
  EXPECT_TRUE(recorder.Snapshot().empty());
}

TEST(RecorderTest, NothingIsLostWhenSeveralThreadsAdd) {
  constexpr uint32_t kThreads = 4, kEach = 4096;
  Recorder recorder(kThreads * kEach);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&recorder, t] {
      for (uint32_t i = 0; i < kEach; ++i) {
        recorder.Add(Interval(i, i + 1, t * kEach + i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  std::vector<int> seen(kThreads * kEach, 0);
  for (const Record& record : recorder.Snapshot()) {
    EXPECT_EQ(record.begin_ns, record.index % kEach);
    ++seen[record.index];
  }

  EXPECT_EQ(seen, std::vector<int>(kThreads * kEach, 1));
}

TEST(RecorderTest, WritersAndOthersLoseNothing) {
  constexpr uint32_t kThreads = 4, kEach = 4099;
  Recorder recorder(1 << 15);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&recorder, t] {
      Recorder::Writer writer(&recorder);
      for (uint32_t i = 0; i < kEach; ++i) {
        const Record record = Interval(i, i + 1, t * kEach + i);
        if (t == 0) {
          recorder.Add(record);
        } else {
          writer.Add(record);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  std::vector<int> seen(kThreads * kEach, 0);
  for (const Record& record : recorder.Snapshot()) {
    EXPECT_EQ(record.begin_ns, record.index % kEach);
    ++seen[record.index];
  }

  EXPECT_EQ(seen, std::vector<int>(kThreads * kEach, 1));
}

TEST(RecorderTest, WhatAWriterHasTakenAndNotFilledIsNoRecord) {
  Recorder recorder(1024);
  for (uint32_t i = 0; i < 1024; ++i) recorder.Add(Interval(i, i + 1, i));
  Recorder::Writer writer(&recorder);
  writer.Add(Interval(2000, 2001, 2000));

  const std::vector<Record> records = recorder.Snapshot();

  EXPECT_EQ(records.back().index, 2000u);
  // Nor is what was in its place before, of which the first is overwritten.
  EXPECT_GT(records[0].index, 1u);
  for (size_t i = 0; i + 1 < records.size(); ++i) {
    EXPECT_EQ(records[i].index, records[0].index + i);
  }
  EXPECT_EQ(records[records.size() - 2].index, 1023u);
  EXPECT_GE(records.size(), 1024u - 16u);
}

TEST(RecorderTest, AWriterThatWasLappedIsNotOverwrittenEarly) {
  Recorder recorder(1024);
  Recorder::Writer writer(&recorder);
  writer.Add(Interval(1, 2));
  for (uint32_t i = 0; i < 2000; ++i) recorder.Add(Interval(10, 11, i));

  writer.CatchUp();
  writer.Add(Interval(20, 21));

  for (uint32_t i = 0; i < 1000; ++i) recorder.Add(Interval(15, 16, i));
  EXPECT_EQ(recorder.Snapshot().back().begin_ns, 20);
}

TEST(RecorderTest, WritersThatLapEachOtherLeaveReadableRecords) {
  Recorder recorder(2);  // every Add meets another thread's slot
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&recorder, t] {
      for (int64_t i = 0; i < 20000; ++i) {
        recorder.Add(Interval(i, i + 1 + t, t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  const std::vector<Record> records = recorder.Snapshot();

  EXPECT_LE(records.size(), 2u);
  for (const Record& record : records) {
    EXPECT_EQ(record.kind, RecordKind::kCompute);
    EXPECT_LT(record.index, 4u);
    EXPECT_GE(record.end_ns, record.begin_ns);
  }
}

}  // namespace
}  // namespace commsched
