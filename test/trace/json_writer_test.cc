#include "trace/json_writer.h"

#include <cstdint>
#include <string>

#include "gtest/gtest.h"

namespace commsched {
namespace {

TEST(JsonQuotedTest, QuotesBackslashesAndControlsAreEscaped) {
  EXPECT_EQ(JsonQuoted("a\"b\\c\n\t\x01\x7f"),
            R"("a\"b\\c\u000a\u0009\u0001\u007f")");
  EXPECT_EQ(JsonQuoted(absl::string_view("\0", 1)), R"("\u0000")");
  EXPECT_EQ(JsonQuoted(""), R"("")");
}

TEST(JsonQuotedTest, CodePointsAreWrittenInAscii) {
  EXPECT_EQ(JsonQuoted("\xC3\xA9"), R"("\u00e9")");
  EXPECT_EQ(JsonQuoted("\xE2\x82\xAC"), R"("\u20ac")");
  EXPECT_EQ(JsonQuoted("\xF0\x9F\x98\x80"), R"("\ud83d\ude00")");
}

TEST(JsonQuotedTest, WhatIsNoUtf8IsReplacedByteByByte) {
  EXPECT_EQ(JsonQuoted("a\xFFz"), R"("a\ufffdz")");
  EXPECT_EQ(JsonQuoted("\xC3"), R"("\ufffd")");            // cut short
  EXPECT_EQ(JsonQuoted("\xC3("), R"("\ufffd(")");          // no continuation
  EXPECT_EQ(JsonQuoted("\xC0\x80"), R"("\ufffd\ufffd")");  // overlong
  EXPECT_EQ(JsonQuoted("\xED\xA0\x80"),
            R"("\ufffd\ufffd\ufffd")");  // half a pair
  EXPECT_EQ(JsonQuoted("\xF4\x90\x80\x80"),
            R"("\ufffd\ufffd\ufffd\ufffd")");  // beyond Unicode
}

std::string Written(absl::FunctionRef<void(JsonWriter&)> write) {
  std::string text;
  const auto sink = [&text](absl::string_view piece) {
    text.append(piece.data(), piece.size());
  };
  JsonWriter json(sink);
  write(json);
  json.Finish();
  return text;
}

TEST(JsonWriterTest, CommasAndSpacesAreWhereTheyBelong) {
  const std::string text = Written([](JsonWriter& json) {
    json.BeginObject();
    json.Field("rank", 3);
    json.Key("list");
    json.BeginArray();
    json.Number(-1);
    json.String("x");
    json.BeginObject();
    json.EndObject();
    json.BeginArray();
    json.EndArray();
    json.EndArray();
    json.NewLine();
    json.Field("last", ~uint64_t{0});
    json.EndObject();
  });
  EXPECT_EQ(text,
            "{\"rank\": 3,\"list\": [-1,\"x\",{},[]],\n"
            "\"last\": 18446744073709551615}\n");
}

TEST(JsonWriterTest, LongTextArrivesInPiecesAndWhole) {
  std::string text;
  int pieces = 0;
  const auto sink = [&](absl::string_view piece) {
    ++pieces;
    text.append(piece.data(), piece.size());
  };
  JsonWriter json(sink);
  json.BeginArray();
  for (int i = 0; i < 100000; ++i) json.Number(7);
  json.EndArray();
  json.Finish();

  EXPECT_GT(pieces, 2);
  EXPECT_EQ(text.size(), 200000u + 2);  // digits, commas, brackets, newline
  EXPECT_EQ(text.front(), '[');
  EXPECT_EQ(text.substr(text.size() - 4), ",7]\n");
}

}  // namespace
}  // namespace commsched
