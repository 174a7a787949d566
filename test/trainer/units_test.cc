#include "examples/trainer/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace commsched::trainer {
namespace {

using ::testing::HasSubstr;

TEST(ParseWholeTest, TakesDecimalDigitsOfAnyLength) {
  EXPECT_EQ(*ParseWhole("300"), 300);
  EXPECT_EQ(*ParseWhole("-5"), -5);
  EXPECT_EQ(*ParseWhole("010"), 10);  // Not octal.
  EXPECT_EQ(*ParseWhole("9223372036854775807"), INT64_MAX);
}

TEST(ParseWholeTest, RefusesEverythingElseAndSaysWhatIsAccepted) {
  for (const char* text :
       {"", "-", "0x3", "1e3", "1.0", " 7", "+7", "9223372036854775808"}) {
    const auto value = ParseWhole(text);
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_THAT(std::string(value.status().message()),
                HasSubstr(absl::StrCat("'", text, "' is not a whole number")));
  }
}

TEST(ParseNumberTest, TakesFiniteDecimalNumbersOnly) {
  EXPECT_DOUBLE_EQ(*ParseNumber("0.1"), 0.1);
  EXPECT_DOUBLE_EQ(*ParseNumber("-1e-3"), -1e-3);
  for (const char* text : {"", "nan", "inf", "1e999", "0x1p3", "1 "}) {
    EXPECT_FALSE(ParseNumber(text).ok()) << text;
  }
}

TEST(ParseBytesTest, TakesPlainNumbersAndBinaryUnits) {
  EXPECT_EQ(*ParseBytes("0"), 0u);
  EXPECT_EQ(*ParseBytes("65536"), 65536u);
  EXPECT_EQ(*ParseBytes("64KiB"), 65536u);
  EXPECT_EQ(*ParseBytes("1MiB"), 1048576u);
  EXPECT_EQ(*ParseBytes("1.5MiB"), 1572864u);
  EXPECT_EQ(*ParseBytes("2GiB"), uint64_t{2} << 30);
}

TEST(ParseBytesTest, RefusesEverythingElseAndSaysWhatIsAccepted) {
  for (const char* text : {"", "MiB", "1MB", "1 MiB", "-1", "1e6", "inf", "nan",
                           "0x10", "1..2", "64KiBs", "99999999999GiB"}) {
    const auto bytes = ParseBytes(text);
    ASSERT_FALSE(bytes.ok()) << text;
    EXPECT_THAT(std::string(bytes.status().message()),
                HasSubstr(absl::StrCat("'", text, "' is not a number of")));
  }
  EXPECT_FALSE(ParseBytes("1.5").ok());
}

TEST(ParseLinkTest, TakesBandwidthInBitsAndLatency) {
  const auto link = ParseLink("1Gbit,100us");
  ASSERT_TRUE(link.ok());
  EXPECT_DOUBLE_EQ(link->bytes_per_s, 125e6);
  EXPECT_EQ(link->latency_ns, 100'000);
  EXPECT_DOUBLE_EQ(ParseLink("2.5Gbit,50us")->bytes_per_s, 312.5e6);
  EXPECT_DOUBLE_EQ(ParseLink("100Mbit,0us")->bytes_per_s, 12.5e6);
  EXPECT_EQ(ParseLink("8Kbit,1ms")->latency_ns, 1'000'000);
  EXPECT_EQ(ParseLink("1Gbit,2s")->latency_ns, 2'000'000'000);
  EXPECT_EQ(ParseLink("1Gbit,250ns")->latency_ns, 250);
}

TEST(ParseLinkTest, RefusesEverythingElseAndSaysWhatIsAccepted) {
  for (const char* text :
       {"", ",", "1Gbit", "100us", "1Gbit,100", "1GB,100us", "0Gbit,1us",
        "1Gbit,-1us", "1Gbit,1us,1us", "Gbit,us", "1gbit,1us"}) {
    const auto link = ParseLink(text);
    ASSERT_FALSE(link.ok()) << text;
    EXPECT_THAT(std::string(link.status().message()),
                HasSubstr("such as 1Gbit,100us"));
  }
}

TEST(FormatTest, ChoosesTheUnit) {
  EXPECT_EQ(FormatBytes(640), "640 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(1.5 * 1048576), "1.50 MiB");
  EXPECT_EQ(FormatSeconds(1.239), "1.24 s");
  EXPECT_EQ(FormatSeconds(0.31), "310 ms");
  EXPECT_EQ(FormatSeconds(4.5e-6), "4.5 us");
}

}  // namespace
}  // namespace commsched::trainer
