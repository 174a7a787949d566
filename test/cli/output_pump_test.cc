#include "cli/output_pump.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace commsched::cli {
namespace {

std::unique_ptr<Child> Shell(const std::string& script) {
  Child::Spec spec;
  spec.arguments = {"sh", "-c", script};
  std::string why;
  std::unique_ptr<Child> child = Child::Start(spec, &why);
  EXPECT_NE(child, nullptr) << why;
  return child;
}

std::string ReadAll(int fd) {
  fcntl(fd, F_SETFL, O_NONBLOCK);
  std::string all;
  char bytes[4096];
  for (ssize_t n = 0; (n = read(fd, bytes, sizeof(bytes))) > 0;) {
    all.append(bytes, static_cast<size_t>(n));
  }
  return all;
}

class OutputPumpTest : public testing::Test {
 protected:
  OutputPumpTest() {
    signal(SIGPIPE, SIG_IGN);
    // Not for the children: they would be readers.
    EXPECT_EQ(pipe2(out_, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(err_, O_CLOEXEC), 0);
  }
  ~OutputPumpTest() override {
    for (const int fd : {out_[0], out_[1], err_[0], err_[1]}) close(fd);
  }

  static void Run(OutputPump* pump) {
    while (!pump->IsOver()) {
      std::vector<pollfd> fds;
      pump->AddTo(&fds);
      poll(fds.data(), fds.size(), -1);
      pump->Turn();
    }
    pump->Finish();
  }

  int out_[2];
  int err_[2];
};

TEST_F(OutputPumpTest, EachStreamHasTheLinesOfAllRanks) {
  Outlet out(out_[1]);
  Outlet err(err_[1]);
  OutputPump pump(&out, &err, /*prefixes=*/true);
  const auto first = Shell("echo one; echo wrong >&2");
  const auto second = Shell("printf 'no end'");
  pump.Add(0, first.get());
  pump.Add(1, second.get());
  Run(&pump);
  const std::string text = ReadAll(out_[0]);
  EXPECT_NE(text.find("[0] one\n"), std::string::npos) << text;
  EXPECT_NE(text.find("[1] no end\n"), std::string::npos) << text;
  EXPECT_EQ(ReadAll(err_[0]), "[0] wrong\n");
}

TEST_F(OutputPumpTest, RanksWaitForAReaderThatHasStopped) {
  Outlet out(out_[1]);
  Outlet err(err_[1]);
  OutputPump pump(&out, &err, /*prefixes=*/false);
  const auto rank = Shell("exec yes");
  pump.Add(0, rank.get());
  while (!out.is_full()) {
    std::vector<pollfd> fds;
    pump.AddTo(&fds);
    poll(fds.data(), fds.size(), -1);
    pump.Turn();
  }
  // A turn takes nothing more, and only standard error and the reader's next
  // byte are worth waiting for.
  const size_t pending = pump.pending_bytes();
  pump.Turn();
  EXPECT_EQ(pump.pending_bytes(), pending);
  std::vector<pollfd> fds;
  pump.AddTo(&fds);
  ASSERT_EQ(fds.size(), 2);
  EXPECT_EQ(fds[0].fd, rank->err());
  EXPECT_EQ(fds[1].fd, out.fd());
  EXPECT_FALSE(pump.IsOver());
}

TEST_F(OutputPumpTest, WhoPrintsToNobodyGetsSigpipe) {
  Outlet out(out_[1]);
  Outlet err(err_[1]);
  OutputPump pump(&out, &err, /*prefixes=*/false);
  const auto rank = Shell("exec yes");
  pump.Add(0, rank.get());
  close(out_[0]);
  out_[0] = open("/dev/null", O_RDONLY);
  while (!out.has_no_reader()) {
    std::vector<pollfd> fds;
    pump.AddTo(&fds);
    poll(fds.data(), fds.size(), -1);
    pump.Turn();
  }
  pump.CloseUnread();
  Run(&pump);
  while (!rank->HasEnded()) sched_yield();
  EXPECT_EQ(rank->exit_code(), 128 + SIGPIPE);
}

// A terminal, whose other end the test reads.
class TerminalPumpTest : public OutputPumpTest {
 protected:
  TerminalPumpTest() : master_(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    EXPECT_EQ(grantpt(master_), 0);
    EXPECT_EQ(unlockpt(master_), 0);
    char name[64];
    EXPECT_EQ(ptsname_r(master_, name, sizeof(name)), 0);
    terminal_ = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    termios settings;
    EXPECT_EQ(tcgetattr(terminal_, &settings), 0);
    cfmakeraw(&settings);  // What is written arrives as it is.
    EXPECT_EQ(tcsetattr(terminal_, TCSANOW, &settings), 0);
  }
  ~TerminalPumpTest() override {
    close(terminal_);
    close(master_);
  }

  const int master_;
  int terminal_ = -1;
};

TEST_F(TerminalPumpTest, ABarStaysBelowTheLinesUntilItsRankEnds) {
  Outlet out(terminal_);
  Outlet err(terminal_);
  OutputPump pump(&out, &err, /*prefixes=*/true);
  const auto rank = Shell("printf '\\r[#.] 1/2\\033[K' >&2; exec sleep 600");
  pump.Add(0, rank.get());
  while (pump.written_bytes() == 0) pump.Turn();
  const auto other = Shell("echo line");
  pump.Add(1, other.get());
  while (other->out() >= 0) pump.Turn();
  rank->Signal(SIGKILL);
  Run(&pump);
  EXPECT_EQ(ReadAll(master_),
            "\r\033[K[0] [#.] 1/2"
            "\r\033[K[1] line\n[0] [#.] 1/2"
            "\r\033[K");
}

TEST_F(TerminalPumpTest, AFileBesideTheTerminalHasNoBars) {
  Outlet out(out_[1]);
  Outlet err(terminal_);
  OutputPump pump(&out, &err, /*prefixes=*/false);
  const auto rank = Shell("printf '\\rbar' >&2; echo line");
  pump.Add(0, rank.get());
  Run(&pump);
  EXPECT_EQ(ReadAll(out_[0]), "line\n");
  EXPECT_EQ(ReadAll(master_), "\r\033[Kbar\r\033[K");
}

}  // namespace
}  // namespace commsched::cli
