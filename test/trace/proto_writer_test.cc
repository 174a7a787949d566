#include "trace/proto_writer.h"

#include <string>

#include "gtest/gtest.h"

namespace commsched {
namespace {

// The examples of protobuf.dev/programming-guides/encoding.
TEST(ProtoWriterTest, WritesVarintsLowestBitsFirst) {
  ProtoWriter writer;
  writer.Uint(1, 150);
  EXPECT_EQ(writer.bytes(), "\x08\x96\x01");
}

TEST(ProtoWriterTest, WritesTextWithItsLength) {
  ProtoWriter writer;
  writer.Bytes(2, "testing");
  EXPECT_EQ(writer.bytes(), "\x12\x07testing");
}

TEST(ProtoWriterTest, WritesMessagesAsBytes) {
  ProtoWriter inner;
  inner.Uint(1, 150);
  ProtoWriter writer;
  writer.Message(3, inner);
  EXPECT_EQ(writer.bytes(), "\x1a\x03\x08\x96\x01");
}

TEST(ProtoWriterTest, NegativeNumbersTakeTenBytes) {
  ProtoWriter writer;
  writer.Int(1, -2);
  EXPECT_EQ(writer.bytes(), std::string("\x08\xfe\xff\xff\xff\xff\xff\xff\xff"
                                        "\xff\x01"));
}

TEST(ProtoWriterTest, FieldNumbersAbove15TakeTwoBytes) {
  ProtoWriter writer;
  writer.Uint(60, 0);
  EXPECT_EQ(writer.bytes(), std::string("\xe0\x03\x00", 3));
}

}  // namespace
}  // namespace commsched
