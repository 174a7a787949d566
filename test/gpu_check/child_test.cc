#include "test/gpu_check/child.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace commsched::gpu_check {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr char kLine[] =
    R"(echo '{"check":"c","ok":true,"figures":"f","why":""}' >&3; )";

ChildEnd RunShell(const std::string& script, seconds timeout = seconds(60)) {
  return RunChild({.command = {"/bin/sh", "-c", script}, .environment = {}},
                  timeout);
}

std::string Why(const ChildEnd& end) {
  return std::string(end.status.message());
}

TEST(ChildTest, ResultsAreReadUntilItExits) {
  const ChildEnd end = RunShell(absl::StrCat(kLine, kLine, "exit 1"));
  EXPECT_TRUE(end.status.ok()) << end.status;
  EXPECT_EQ(end.exit_code, 1);
  ASSERT_EQ(end.results.size(), 2u);
  EXPECT_EQ(end.results[1].check, "c");
  EXPECT_EQ(end.results[1].figures, "f");
}

TEST(ChildTest, ResultsBeforeACrashAreKept) {
  const ChildEnd end = RunShell(absl::StrCat(kLine, "kill -ABRT $$"));
  EXPECT_EQ(end.results.size(), 1u);
  EXPECT_THAT(Why(end), HasSubstr("ended by signal 6 (Aborted)"));
}

// Its own child has the pipe open, so that only killing both ends the wait.
TEST(ChildTest, WhatHangsIsKilledAndItsResultsAreKept) {
  const ChildEnd end =
      RunShell(absl::StrCat(kLine, "tail -f /dev/null & wait"), seconds(1));
  EXPECT_EQ(end.results.size(), 1u);
  EXPECT_EQ(end.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Why(end), HasSubstr("had not ended after 1 s"));
}

TEST(ChildTest, WhatHangsWithoutItsPipeIsKilledToo) {
  const ChildEnd end =
      RunShell("exec 3>&-; exec tail -f /dev/null", seconds(1));
  EXPECT_EQ(end.status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(ChildTest, AProgramThatIsNotThereIsNamed) {
  const ChildEnd end = RunChild(
      {.command = {"/nowhere/program"}, .environment = {}}, seconds(60));
  EXPECT_THAT(Why(end), HasSubstr("'/nowhere/program' cannot be run"));
}

TEST(ChildTest, WhatIsNoResultIsAFailedCheck) {
  const ChildEnd end = RunShell("echo text >&3");
  ASSERT_EQ(end.results.size(), 1u);
  EXPECT_FALSE(end.results[0].status.ok());
}

TEST(ChildTest, VariablesReplaceOursOfTheSameName) {
  const ChildEnd end =
      RunChild({.command = {"/bin/sh", "-c", "test \"$PATH:$NEW\" = here:1"},
                .environment = {{"PATH", "here"}, {"NEW", "1"}}},
               seconds(60));
  EXPECT_TRUE(end.status.ok()) << end.status;
  EXPECT_EQ(end.exit_code, 0);
}

// Two at once: neither holds the other's pipe open.
TEST(ChildTest, ChildrenDoNotShareTheirPipes) {
  auto slow =
      Child::Start({.command = {"/bin/sh", "-c", "exec tail -f /dev/null"},
                    .environment = {}});
  ASSERT_TRUE(slow.ok()) << slow.status();
  const ChildEnd end = RunShell(kLine);
  EXPECT_TRUE(end.status.ok()) << end.status;
  EXPECT_EQ(end.results.size(), 1u);
}

}  // namespace
}  // namespace commsched::gpu_check
