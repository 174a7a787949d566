#include "trace/flight_record.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string PathOf(const char* name) {
  return absl::StrCat(testing::TempDir(), "/", name, ".", getpid());
}

FlightInfo TwoLaunches() {
  FlightInfo info;
  info.rank = 3;
  info.launches = {"#0 all_reduce 'a' on axis dp",
                   "#1 all_reduce 'b' on axis dp"};
  return info;
}

TEST(FlightRecordTest, AKilledProcessLeavesWhatItDid) {
  const std::string path = PathOf("killed");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto record = FlightRecord::Create(path, TwoLaunches());
    if (!record.ok()) _exit(1);
    (*record)->Add(FlightEvent::kStepBegin, 5, 1000);
    (*record)->Add(FlightEvent::kDue, 12, 1500);
    (*record)->Add(FlightEvent::kIssue, 10, 2000);
    (*record)->Add(FlightEvent::kIssue, 11, 3000);
    (*record)->Add(FlightEvent::kRetire, 10, 4000);
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const auto text = ReadFlightRecord(path);
  ASSERT_OK(text.status());
  EXPECT_THAT(*text, HasSubstr("rank 3"));
  EXPECT_THAT(*text,
              HasSubstr("in flight: #1 all_reduce 'b' on axis dp of step 5\n"));
  EXPECT_THAT(*text, Not(HasSubstr("in flight: #0")));
  EXPECT_THAT(*text, HasSubstr("-0.000003 s  step 5 begins"));
  EXPECT_THAT(*text, Not(HasSubstr("failure")));
  std::remove(path.c_str());
}

TEST(FlightRecordTest, TheOldestAreOverwritten) {
  const std::string path = PathOf("ring");
  auto record = FlightRecord::Create(path, TwoLaunches()).value();
  for (uint64_t i = 0; i < FlightRecord::kCapacity + 7; ++i) {
    record->Add(FlightEvent::kIssue, i, static_cast<int64_t>(i));
    record->Add(FlightEvent::kRetire, i, static_cast<int64_t>(i));
  }
  record->Fail("rank 3 has had enough", 1 << 20);
  const std::string text = ReadFlightRecord(path).value();
  EXPECT_THAT(text, HasSubstr("failure: rank 3 has had enough\n"));
  EXPECT_THAT(text, HasSubstr("the session fails"));
  EXPECT_THAT(text, Not(HasSubstr("in flight")));
  std::remove(path.c_str());
}

TEST(FlightRecordTest, AReplacedOneIsLeftToWhoeverStillWritesIt) {
  const std::string path = PathOf("replaced");
  const auto old = FlightRecord::Create(path, TwoLaunches());
  ASSERT_OK(old.status());
  const auto made = FlightRecord::Create(path, TwoLaunches());
  ASSERT_OK(made.status());
  (*old)->Fail("not mine", 1000);
  (*made)->Add(FlightEvent::kIssue, 2, 2000);
  const auto text = ReadFlightRecord(path);
  ASSERT_OK(text.status());
  EXPECT_THAT(*text, HasSubstr("1 events"));
  EXPECT_THAT(*text, Not(HasSubstr("not mine")));
  std::remove(path.c_str());
}

TEST(FlightRecordTest, WhatIsNotOneIsRefused) {
  const std::string path = PathOf("other");
  EXPECT_THAT(ReadFlightRecord(path),
              StatusIs(absl::StatusCode::kUnavailable, path));
  std::ofstream(path) << std::string(4096, 'x');
  EXPECT_THAT(ReadFlightRecord(path),
              StatusIs(absl::StatusCode::kInvalidArgument, "begins otherwise"));
  (void)FlightRecord::Create(path, TwoLaunches()).value();
  ASSERT_EQ(truncate(path.c_str(), 5000), 0);
  EXPECT_THAT(ReadFlightRecord(path),
              StatusIs(absl::StatusCode::kInvalidArgument, "sizes"));
  std::remove(path.c_str());
}

// Reading them would not end, or not begin.
TEST(FlightRecordTest, WhatIsNoFileIsRefusedUnread) {
  const std::string path = PathOf("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  for (const std::string& other :
       {std::string("/dev/zero"), testing::TempDir(), path}) {
    EXPECT_THAT(ReadFlightRecord(other),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         absl::StrCat("'", other,
                                      "' is not a flight record: "
                                      "it is not a regular file")));
  }
  EXPECT_THAT(FlightRecord::Create(path, TwoLaunches()),
              StatusIs(absl::StatusCode::kUnavailable, "not a regular file"));
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
  std::remove(path.c_str());
}

// Of a file without end only the head is read, and no more is believed of it
// than a record can have.
TEST(FlightRecordTest, OfALargeFileNoMoreIsReadThanARecordHas) {
  constexpr off_t kManyBytes = off_t{1} << 42;
  const std::string path = PathOf("large");
  std::ofstream(path) << "x";
  ASSERT_EQ(truncate(path.c_str(), kManyBytes), 0);
  EXPECT_THAT(ReadFlightRecord(path),
              StatusIs(absl::StatusCode::kInvalidArgument, "begins otherwise"));
  (void)FlightRecord::Create(path, TwoLaunches()).value();
  const uint64_t names_bytes = uint64_t{1} << 41;
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out)
      .seekp(16)
      .write(reinterpret_cast<const char*>(&names_bytes), sizeof(names_bytes));
  ASSERT_EQ(truncate(path.c_str(), kManyBytes), 0);
  EXPECT_THAT(ReadFlightRecord(path),
              StatusIs(absl::StatusCode::kInvalidArgument, "sizes"));
  std::remove(path.c_str());
}

TEST(FlightRecordTest, AFileThatCannotBeMadeIsAnError) {
  EXPECT_THAT(FlightRecord::Create("/nowhere/at/all", {}),
              StatusIs(absl::StatusCode::kUnavailable, "/nowhere/at/all"));
}

}  // namespace
}  // namespace commsched
