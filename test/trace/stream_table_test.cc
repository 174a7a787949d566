#include "trace/stream_table.h"

#include <cstdint>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace commsched {
namespace {

Record Kernel(RecordKind kind, uint8_t lane, int64_t begin_us, int64_t end_us) {
  Record record;
  record.kind = kind;
  record.lane = lane;
  record.begin_ns = begin_us * 1000;
  record.end_ns = end_us * 1000;
  return record;
}

TEST(MicrosecondsTest, RoundsDownOnBothSidesOfZero) {
  EXPECT_EQ(Microseconds(1999), 1);
  EXPECT_EQ(Microseconds(0), 0);
  EXPECT_EQ(Microseconds(-1), -1);
  EXPECT_EQ(Microseconds(-1000), -1);
  EXPECT_EQ(Microseconds(-1001), -2);
}

TEST(StreamTableTest, ChannelsHaveRowsAfterThoseOfLanes) {
  const StreamTable table({Kernel(RecordKind::kLaunch, 1, 0, 3),
                           Kernel(RecordKind::kLaunch, 1, 0, 2),
                           Kernel(RecordKind::kChannel, 0, 0, 2),
                           Kernel(RecordKind::kChannel, 3, 0, 1),
                           Kernel(RecordKind::kChannel, 0, 1, 3)},
                          1000);
  EXPECT_EQ(table.StreamOf(0), 21);
  std::set<int> others;
  for (size_t i = 1; i < 5; ++i) {
    EXPECT_GT(table.StreamOf(i), 21);
    others.insert(table.StreamOf(i));
  }
  EXPECT_EQ(others.size(), 4u);
}

TEST(StreamTableTest, ComputeLanesStartAt7AndCommunicationLanesAt20) {
  const StreamTable table({Kernel(RecordKind::kCompute, 0, 0, 1),
                           Kernel(RecordKind::kCompute, 1, 0, 1),
                           Kernel(RecordKind::kLaunch, 0, 0, 1),
                           Kernel(RecordKind::kLaunch, 2, 0, 1)},
                          1000);
  EXPECT_EQ(table.StreamOf(0), 7);
  EXPECT_EQ(table.StreamOf(1), 8);
  EXPECT_EQ(table.StreamOf(2), 20);
  EXPECT_EQ(table.StreamOf(3), 22);
}

TEST(StreamTableTest, ManyComputeLanesPushTheOthersUp) {
  const StreamTable table({Kernel(RecordKind::kCompute, 30, 0, 1),
                           Kernel(RecordKind::kLaunch, 0, 0, 1)},
                          1000);
  EXPECT_EQ(table.StreamOf(0), 37);
  EXPECT_EQ(table.StreamOf(1), 38);
}

TEST(StreamTableTest, LaunchesInFlightTogetherGetStreamsOfTheirOwn) {
  const StreamTable table({Kernel(RecordKind::kLaunch, 0, 0, 10),
                           Kernel(RecordKind::kLaunch, 0, 5, 15),
                           Kernel(RecordKind::kLaunch, 1, 6, 7),
                           Kernel(RecordKind::kLaunch, 0, 10, 20)},
                          1000);
  EXPECT_EQ(table.StreamOf(0), 20);
  EXPECT_EQ(table.StreamOf(1), 22);  // 21 is lane 1's
  EXPECT_EQ(table.StreamOf(2), 21);
  EXPECT_EQ(table.StreamOf(3), 20);
  std::set<int> streams;
  for (const StreamTable::Row& row : table.rows()) streams.insert(row.stream);
  EXPECT_EQ(streams, (std::set<int>{20, 21, 22}));
}

TEST(StreamTableTest, OnAFinerGridLessFitsOneRow) {
  const std::vector<Record> records = {Kernel(RecordKind::kLaunch, 0, 0, 10),
                                       Kernel(RecordKind::kLaunch, 0, 0, 10)};
  std::vector<Record> close = records;
  close[0].end_ns = 10'400;
  close[1].begin_ns = 10'200;
  close[1].end_ns = 20'000;
  EXPECT_EQ(StreamTable(close, 1000).rows().size(), 1u);
  EXPECT_EQ(StreamTable(close, 1).rows().size(), 2u);
}

}  // namespace
}  // namespace commsched
