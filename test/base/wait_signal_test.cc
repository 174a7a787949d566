#include "base/wait_signal.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "base/wait_registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/support/await.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Collects what is logged, of which no level is severe enough.
class WaitSignalTest : public testing::Test {
 protected:
  void SetUp() override {
    SetMinLogLevel(LogLevel::kOff);
    SetLogSink({[](void* context, LogLevel, absl::string_view line) {
                  auto* self = static_cast<WaitSignalTest*>(context);
                  MutexLock lock(&self->mu_);
                  self->lines_.emplace_back(line);
                },
                this});
  }
  void TearDown() override {
    SetLogSink({nullptr, nullptr});
    SetMinLogLevel(LogLevel::kWarning);
  }

  std::vector<std::string> AwaitLines() {
    std::vector<std::string> lines;
    EXPECT_TRUE(test::Await([&] {
      MutexLock lock(&mu_);
      lines.swap(lines_);
      return !lines.empty();
    }));
    return lines;
  }

 private:
  Mutex mu_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mu_);
};

TEST_F(WaitSignalTest, ASignalMakesTheProcessSayWhatItWaitsFor) {
  ASSERT_OK(PrintWaitersOn(SIGUSR2));
  ASSERT_OK(PrintWaitersOn(SIGUSR2));  // It has it already.
  raise(SIGUSR2);
  EXPECT_THAT(AwaitLines(), ElementsAre(HasSubstr(": no session, and no call "
                                                  "that waits for a rank")));
  const WaitingCall call(5, "joins the job");
  raise(SIGUSR2);
  EXPECT_THAT(AwaitLines(), ElementsAre(HasSubstr("rank 5: joins the job")));
}

TEST_F(WaitSignalTest, AForkedChildDoesWhatTheSignalDoesByDefault) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP()
      << "the thread sanitizer keeps a forked child's signals to itself";
#endif
  ASSERT_OK(PrintWaitersOn(SIGUSR2));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    raise(SIGUSR2);
    while (true) pause();
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGUSR2);
}

TEST_F(WaitSignalTest, WhatTheProcessHandlesOrCannotHandleIsLeftAlone) {
  signal(SIGUSR1, SIG_IGN);
  EXPECT_THAT(PrintWaitersOn(SIGUSR1),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "waits: the process ignores signal 10"));
  signal(SIGUSR1, [](int) {});
  EXPECT_THAT(PrintWaitersOn(SIGUSR1),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "waits: the process handles signal 10"));
  signal(SIGUSR1, SIG_DFL);
  for (int number : {-1, 0, SIGKILL, SIGSTOP, 1000}) {
    EXPECT_THAT(PrintWaitersOn(number),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "is not a signal that can be caught"))
        << number;
  }
}

}  // namespace
}  // namespace commsched
