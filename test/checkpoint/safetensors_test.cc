// The header of safetensors files.

#include "checkpoint/format/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace commsched::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TensorHeader TwoTensors() {
  TensorHeader header;
  header.metadata = {{"format", "pt"}, {"\"quoted\"", "line\nline"}};
  header.tensors = {{"wte.weight", "F32", {3, 2}, 0, 24},
                    {"scalar", "BF16", {}, 24, 26},
                    {"empty", "I64", {4, 0}, 26, 26}};
  return header;
}

// The header as ParseHeader() takes it.
std::string TextOf(const TensorHeader& header) {
  return FormatHeader(header).substr(kLengthBytes);
}

Status Parse(const std::string& text, uint64_t data_bytes = 8) {
  TensorHeader header;
  return ParseHeader("file 'f'", text, data_bytes, &header);
}

std::string OneTensor(const std::string& dtype, const std::string& shape,
                      const std::string& offsets) {
  return R"({"t":{"dtype":")" + dtype + R"(","shape":)" + shape +
         R"(,"data_offsets":)" + offsets + "}}";
}

TEST(SafetensorsTest, AHeaderIsReadAsItWasWritten) {
  const TensorHeader header = TwoTensors();
  TensorHeader again;
  ASSERT_TRUE(ParseHeader("file 'f'", TextOf(header), 26, &again).ok());
  // Sorted by place: the empty tensor ends where the data does.
  EXPECT_EQ(again, header);
}

TEST(SafetensorsTest, TheLengthComesFirstAndDataAreAligned) {
  const std::string text = FormatHeader(TwoTensors());
  EXPECT_EQ(text.size() % 8, 0u);
  uint64_t bytes = 0;
  const auto* first = reinterpret_cast<const unsigned char*>(text.data());
  ASSERT_TRUE(
      ParseHeaderLength("file 'f'", first, text.size() + 26, &bytes).ok());
  EXPECT_EQ(bytes, text.size() - kLengthBytes);
}

TEST(SafetensorsTest, TheFormatsOwnExampleIsRead) {
  TensorHeader header;
  ASSERT_TRUE(ParseHeader("file 'f'",
                          R"({"b":{"dtype":"F16","shape":[2],)"
                          R"("data_offsets":[4,8]},)"
                          R"("a":{"dtype":"F32","shape":[1,1],)"
                          R"("data_offsets":[0,4]}}   )",
                          8, &header)
                  .ok());
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[1].name, "b");
}

TEST(SafetensorsTest, ALengthThatCannotBeIsRefusedBeforeMemoryIsTaken) {
  const unsigned char huge[8] = {0, 0, 0, 0, 0, 0, 0, 0x7f};
  uint64_t bytes = 0;
  const Status limit = ParseHeaderLength("file 'f'", huge, 1 << 20, &bytes);
  EXPECT_EQ(limit.code(), COMMSCHED_INVALID_ARGUMENT);
  EXPECT_THAT(limit.message(),
              AllOf(HasSubstr("file 'f'"), HasSubstr("limit is 100000000")));
  const unsigned char hundred[8] = {100, 0, 0, 0, 0, 0, 0, 0};
  for (uint64_t file_bytes : {0, 7, 8, 107}) {
    const Status cut =
        ParseHeaderLength("file 'f'", hundred, file_bytes, &bytes);
    EXPECT_EQ(cut.code(), COMMSCHED_DATA_LOSS) << file_bytes;
  }
  EXPECT_TRUE(ParseHeaderLength("file 'f'", hundred, 108, &bytes).ok());
  EXPECT_EQ(bytes, 100u);
}

struct BadHeader {
  const char* what;
  std::string text;
  commsched_status_t code;
  const char* message;
};

TEST(SafetensorsTest, WhatIsWrongIsNamed) {
  const std::string good = OneTensor("F32", "[2]", "[0,8]");
  ASSERT_TRUE(Parse(good).ok());
  const std::string twice = good.substr(0, good.size() - 1) + "," +
                            good.substr(1, good.size() - 2) + "}";
  const BadHeader cases[] = {
      {"not JSON", "{", COMMSCHED_INVALID_ARGUMENT, "not JSON at byte"},
      {"a list", "[]", COMMSCHED_INVALID_ARGUMENT, "not an object"},
      {"a name twice", twice, COMMSCHED_INVALID_ARGUMENT, "'t' appears twice"},
      {"nesting", std::string(100, '['), COMMSCHED_INVALID_ARGUMENT, "nested"},
      {"dtype", OneTensor("F4", "[2]", "[0,8]"), COMMSCHED_INVALID_ARGUMENT,
       "tensor 't' has dtype 'F4'"},
      {"shape and bytes", OneTensor("F32", "[1]", "[0,8]"),
       COMMSCHED_INVALID_ARGUMENT, "shape [1] of F32, 4 bytes, but 8"},
      {"an overflow", OneTensor("F32", "[4294967296,4294967296]", "[0,8]"),
       COMMSCHED_INVALID_ARGUMENT, "the limit is 2 elements"},
      {"a negative extent", OneTensor("F32", "[-2]", "[0,8]"),
       COMMSCHED_INVALID_ARGUMENT, "'shape'"},
      {"backward offsets", OneTensor("F32", "[2]", "[8,0]"),
       COMMSCHED_INVALID_ARGUMENT, "[8,0]"},
      {"three offsets", OneTensor("F32", "[2]", "[0,8,8]"),
       COMMSCHED_INVALID_ARGUMENT, "[0,8,8]"},
      {"a hole", OneTensor("F32", "[1]", "[4,8]"), COMMSCHED_INVALID_ARGUMENT,
       "begins at byte 4"},
      {"past the end", OneTensor("F32", "[3]", "[0,12]"), COMMSCHED_DATA_LOSS,
       "ends at byte 12"},
      {"data without a tensor", OneTensor("F32", "[1]", "[0,4]"),
       COMMSCHED_DATA_LOSS, "the tensors end at byte 4"},
      {"metadata", R"({"__metadata__":{"a":1}})", COMMSCHED_INVALID_ARGUMENT,
       "'a' is not a text"},
      {"a missing field", R"({"t":{"dtype":"F32","shape":[2]}})",
       COMMSCHED_INVALID_ARGUMENT, "'data_offsets' is missing"},
      {"an unknown field",
       R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})",
       COMMSCHED_INVALID_ARGUMENT, "'x' is not known"},
  };
  for (const BadHeader& bad : cases) {
    const Status status = Parse(bad.text);
    EXPECT_EQ(status.code(), bad.code) << bad.what << ": " << status.message();
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("file 'f'"), HasSubstr(bad.message)))
        << bad.what;
  }
}

TEST(SafetensorsTest, EveryDTypeHasItsSize) {
  for (const auto& [dtype, bytes] :
       std::vector<std::pair<std::string, uint64_t>>{{"BOOL", 1},
                                                     {"F8_E4M3", 1},
                                                     {"F8_E5M2", 1},
                                                     {"BF16", 2},
                                                     {"F16", 2},
                                                     {"F32", 4},
                                                     {"F64", 8},
                                                     {"I8", 1},
                                                     {"U64", 8},
                                                     {"f32", 0},
                                                     {"", 0}}) {
    EXPECT_EQ(DTypeBytes(dtype), bytes) << dtype;
  }
}

}  // namespace
}  // namespace commsched::engine
