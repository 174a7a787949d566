#include "control/wire.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

TEST(WireTest, FieldsComeBackAsTheyWere) {
  WireWriter writer;
  writer(uint32_t{0xfedcba98}, int32_t{-5}, uint64_t{1} << 63, INT64_MIN,
         std::string("a\0b", 3), std::vector<int32_t>{1, -2, 3},
         std::vector<std::string>{"", "x", "yz"});
  const std::string bytes = writer.Take();
  uint32_t u32 = 0;
  int32_t i32 = 0;
  uint64_t u64 = 0;
  int64_t i64 = 0;
  std::string text;
  std::vector<int32_t> numbers;
  std::vector<std::string> texts;
  WireReader reader(bytes);
  reader(u32, i32, u64, i64, text, numbers, texts);
  EXPECT_OK(reader.Finish());
  EXPECT_EQ(u32, 0xfedcba98);
  EXPECT_EQ(i32, -5);
  EXPECT_EQ(u64, uint64_t{1} << 63);
  EXPECT_EQ(i64, INT64_MIN);
  EXPECT_EQ(text, std::string("a\0b", 3));
  EXPECT_EQ(numbers, (std::vector<int32_t>{1, -2, 3}));
  EXPECT_EQ(texts, (std::vector<std::string>{"", "x", "yz"}));
}

TEST(WireTest, NumbersAreLittleEndian) {
  WireWriter writer;
  writer(uint32_t{0x04030201});
  EXPECT_EQ(writer.Take(), "\x01\x02\x03\x04");
}

TEST(WireTest, EveryPrefixIsTooShort) {
  WireWriter writer;
  writer(uint32_t{7}, std::string("text"), std::vector<int32_t>{1, 2},
         std::vector<std::string>{"a", "b"});
  const std::string bytes = writer.Take();
  for (size_t size = 0; size < bytes.size(); ++size) {
    uint32_t number = 0;
    std::string text;
    std::vector<int32_t> numbers;
    std::vector<std::string> texts;
    WireReader reader(absl::string_view(bytes.data(), size));
    reader(number, text, numbers, texts);
    EXPECT_THAT(reader.Finish(),
                StatusIs(absl::StatusCode::kInvalidArgument, "too short"))
        << size;
  }
}

TEST(WireTest, WhatFollowsIsTooLong) {
  uint32_t number = 0;
  WireReader reader("12345");
  reader(number);
  EXPECT_THAT(reader.Finish(),
              StatusIs(absl::StatusCode::kInvalidArgument, "too long"));
}

TEST(WireTest, LengthsBeyondTheMessageTakeNoMemory) {
  WireWriter writer;
  writer(UINT32_MAX);
  const std::string bytes = writer.Take();
  std::string text;
  std::vector<int32_t> numbers;
  std::vector<std::string> texts;
  WireReader{bytes}(text);
  WireReader{bytes}(numbers);
  WireReader{bytes}(texts);
  EXPECT_LT(text.capacity(), 100u);
  EXPECT_EQ(numbers.capacity(), 0u);
  EXPECT_EQ(texts.capacity(), 0u);
}

}  // namespace
}  // namespace commsched
