// The trace, read back by a reader of its own. What Perfetto's own definitions
// make of it is tested in perfetto_test.py.
#include "trace/perfetto.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One field: a number, or bytes.
struct Field {
  uint64_t number = 0;
  uint64_t varint = 0;
  std::string bytes;
};

uint64_t ReadVarint(absl::string_view* data) {
  uint64_t value = 0;
  for (int shift = 0; !data->empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(data->front());
    data->remove_prefix(1);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) break;
  }
  return value;
}

std::vector<Field> Parse(absl::string_view data) {
  std::vector<Field> fields;
  while (!data.empty()) {
    const uint64_t tag = ReadVarint(&data);
    Field field;
    field.number = tag >> 3;
    if ((tag & 7) == 0) {
      field.varint = ReadVarint(&data);
    } else {
      EXPECT_EQ(tag & 7, 2u);
      const uint64_t size = ReadVarint(&data);
      EXPECT_LE(size, data.size());
      field.bytes = std::string(data.substr(0, size));
      data.remove_prefix(std::min<uint64_t>(size, data.size()));
    }
    fields.push_back(field);
  }
  return fields;
}

std::optional<Field> Find(const std::vector<Field>& fields, uint64_t number) {
  for (const Field& field : fields) {
    if (field.number == number) return field;
  }
  return std::nullopt;
}

// "100 begin forward @stream 7: compute lane 0" ..., in the order of the file.
struct Picture {
  std::vector<std::string> events;
  std::map<uint64_t, std::string> tracks;
  std::map<uint64_t, uint64_t> parents;
};

Picture Draw(const std::string& trace) {
  Picture picture;
  for (const Field& packet : Parse(trace)) {
    EXPECT_EQ(packet.number, 1u);
    const std::vector<Field> fields = Parse(packet.bytes);
    EXPECT_TRUE(Find(fields, 10)) << "a packet without a sequence";
    if (const auto descriptor = Find(fields, 60)) {
      const std::vector<Field> track = Parse(descriptor->bytes);
      const uint64_t uuid = Find(track, 1)->varint;
      const auto name = Find(track, 2);
      picture.tracks[uuid] = name ? name->bytes : "process";
      if (const auto parent = Find(track, 5)) {
        picture.parents[uuid] = parent->varint;
      }
      continue;
    }
    const std::vector<Field> event = Parse(Find(fields, 11)->bytes);
    const uint64_t type = Find(event, 9)->varint;
    const uint64_t track = Find(event, 11)->varint;
    std::string text = std::to_string(Find(fields, 8)->varint);
    if (type == 1) text += " begin " + Find(event, 23)->bytes;
    if (type == 2) text += " end";
    if (type == 4) text += " = " + std::to_string(Find(event, 30)->varint);
    EXPECT_TRUE(picture.tracks.contains(track));
    picture.events.push_back(text + " @" + picture.tracks[track]);
  }
  return picture;
}

Record MadeForPerfetto(RecordKind kind, int64_t begin_ns, int64_t end_ns,
                       uint32_t index = 0) {
  Record record;
  record.kind = kind;
  record.begin_ns = begin_ns;
  record.end_ns = end_ns;
  record.index = index;
  return record;
}

class PerfettoTest : public ::testing::Test {
 protected:
  PerfettoTest() {
    RecordNames names;
    names.rank = 1;
    names.world_size = 2;
    names.ops = {"forward"};
    RecordNames::LaunchName launch;
    launch.name = "all_gather weight.0";
    launch.collective = "_allgather_base";
    launch.dtype = "f32";
    launch.axis = "dp_shard";
    launch.ranks = {0, 1};
    launch.bytes = 64;
    names.launches = {launch};
    recorder_.SetNames(names);
  }

  Recorder recorder_{1024};
};

TEST_F(PerfettoTest, SlicesAndCountersComeInTheOrderOfTime) {
  recorder_.Add(MadeForPerfetto(RecordKind::kStepBegin, 100, 0));
  recorder_.Add(MadeForPerfetto(RecordKind::kLaunch, 110, 150));
  recorder_.Add(MadeForPerfetto(RecordKind::kCompute, 120, 130));
  EXPECT_THAT(
      Draw(PerfettoTrace(recorder_)).events,
      ElementsAre("100 begin step 0 @steps",
                  "110 begin all_gather weight.0 @stream 20: communication "
                  "lane 0",
                  "110 = 1 @launches in flight", "110 = 64 @bytes in flight",
                  "120 begin forward @stream 7: compute lane 0",
                  "130 end @stream 7: compute lane 0", "150 end @steps",
                  "150 end @stream 20: communication lane 0",
                  "150 = 0 @launches in flight", "150 = 0 @bytes in flight"));
}

TEST_F(PerfettoTest, WhatEndsAtAnInstantEndsBeforeWhatBeginsThere) {
  recorder_.Add(MadeForPerfetto(RecordKind::kCompute, 100, 200));
  recorder_.Add(MadeForPerfetto(RecordKind::kCompute, 200, 200));
  recorder_.Add(MadeForPerfetto(RecordKind::kCompute, 200, 300));
  const std::string lane = " @stream 7: compute lane 0";
  EXPECT_THAT(
      Draw(PerfettoTrace(recorder_)).events,
      ElementsAre("100 begin forward" + lane, "200 end" + lane,
                  "200 begin forward" + lane, "200 begin forward" + lane,
                  "200 end" + lane, "300 end" + lane));
}

TEST_F(PerfettoTest, EveryTrackHangsUnderItsRank) {
  recorder_.Add(MadeForPerfetto(RecordKind::kStepBegin, 100, 0));
  recorder_.Add(MadeForPerfetto(RecordKind::kWait, 110, 150));
  const Picture picture = Draw(PerfettoTrace(recorder_));
  const uint64_t process = uint64_t{2} << 16;
  EXPECT_EQ(picture.tracks.at(process), "process");
  EXPECT_EQ(picture.parents.size(), picture.tracks.size() - 1);
  for (const auto& [track, parent] : picture.parents) {
    EXPECT_EQ(parent, process) << picture.tracks.at(track);
  }
}

TEST_F(PerfettoTest, AFileThatCannotBeWrittenIsNamed) {
  const absl::Status status = WritePerfetto(recorder_, "/nowhere/a.pftrace");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere/a.pftrace"));
}

}  // namespace
}  // namespace commsched
