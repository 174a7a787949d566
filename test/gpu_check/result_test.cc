#include "test/gpu_check/result.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched::gpu_check {
namespace {

using ::testing::HasSubstr;

TEST(ResultTest, ALineGivesTheResultBack) {
  const Result held = {"a \"check\"", absl::OkStatus(), "1 %\n2 %"};
  ASSERT_OK_AND_ASSIGN(const Result read, FromLine(ToLine(held)));
  EXPECT_EQ(read.check, held.check);
  EXPECT_EQ(read.figures, held.figures);
  EXPECT_OK(read.status);
  EXPECT_EQ(read.skipped, "");
}

TEST(ResultTest, ALineSaysWhyACheckFailed) {
  const Result failed = {"c", absl::UnknownError("\xff broke"), ""};
  EXPECT_THAT(ToLine(failed), HasSubstr("\"ok\":false"));
  ASSERT_OK_AND_ASSIGN(const Result read, FromLine(ToLine(failed)));
  EXPECT_THAT(std::string(read.status.message()), HasSubstr(" broke"));
}

TEST(ResultTest, ASkippedCheckNeitherHoldsNorFails) {
  const Result skipped = {"c", absl::OkStatus(), "", "no second device"};
  EXPECT_THAT(ToLine(skipped), HasSubstr("\"ok\":null"));
  ASSERT_OK_AND_ASSIGN(const Result read, FromLine(ToLine(skipped)));
  EXPECT_EQ(read.skipped, "no second device");
}

TEST(ResultTest, WhatIsNoResultIsRefused) {
  for (const char* line :
       {"", "text", "[]", "{\"check\":\"c\"}",
        "{\"check\":1,\"ok\":true,\"figures\":\"\",\"why\":\"\"}",
        "{\"check\":\"c\",\"ok\":1,\"figures\":\"\",\"why\":\"\"}"}) {
    EXPECT_FALSE(FromLine(line).ok()) << line;
  }
}

TEST(ResultsTest, OneThatFailedIsEnough) {
  Results results(-1);
  results.Skip("a", "no device");
  results.Add("b", absl::OkStatus());
  EXPECT_TRUE(results.all_hold());
  results.Add("c", absl::InternalError("no"));
  results.Add("d", absl::OkStatus());
  EXPECT_FALSE(results.all_hold());
}

}  // namespace
}  // namespace commsched::gpu_check
