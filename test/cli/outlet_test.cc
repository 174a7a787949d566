#include "cli/outlet.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "gtest/gtest.h"

namespace commsched::cli {
namespace {

// Two ends that are closed with it.
struct Ends {
  int read = -1;
  int write = -1;

  ~Ends() {
    CloseRead();
    if (write >= 0) close(write);
  }
  void CloseRead() {
    if (read >= 0) close(read);
    read = -1;
  }
  std::string Take() const {
    std::string text(1 << 20, '\0');
    const ssize_t n = ::read(read, text.data(), text.size());
    text.resize(n < 0 ? 0 : static_cast<size_t>(n));
    return text;
  }
};

class OutletTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);
    int ends[2];
    ASSERT_EQ(
        GetParam() ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends), 0);
    ends_.read = ends[0];
    ends_.write = ends[1];
  }

  Ends ends_;
};

INSTANTIATE_TEST_SUITE_P(, OutletTest, testing::Bool(), [](const auto& test) {
  return test.param ? "OfASocket" : "OfAPipe";
});

TEST_P(OutletTest, WhatIsAddedIsWritten) {
  Outlet outlet(ends_.write);
  outlet.Add("one\n");
  outlet.Add("two\n");
  outlet.Write();
  EXPECT_EQ(outlet.pending_bytes(), 0);
  EXPECT_EQ(outlet.written_bytes(), 8);
  EXPECT_EQ(ends_.Take(), "one\ntwo\n");
}

TEST_P(OutletTest, AReaderThatStopsIsNotWaitedFor) {
  Outlet outlet(ends_.write);
  std::string expected;
  while (!outlet.is_full()) {
    outlet.Add(std::string(10'000, 'x'));
    outlet.Write();
    expected.append(10'000, 'x');
  }
  EXPECT_GE(outlet.pending_bytes(), Outlet::kFullBytes);
  EXPECT_EQ(outlet.error(), 0);
  std::string got;
  while (got.size() < expected.size()) {
    got += ends_.Take();
    outlet.Write();
  }
  EXPECT_EQ(outlet.pending_bytes(), 0);
  EXPECT_EQ(got, expected);
}

TEST_P(OutletTest, TheFlagsOfADescriptorThatOthersShareStay) {
  const int before = fcntl(ends_.write, F_GETFL);
  {
    Outlet outlet(ends_.write);
    outlet.Add("text");
    outlet.Write();
    EXPECT_EQ(fcntl(ends_.write, F_GETFL), before);
  }
  EXPECT_EQ(write(ends_.write, "x", 1), 1);  // It is still open.
}

TEST_P(OutletTest, WithoutAReaderWhatIsAddedIsDropped) {
  Outlet outlet(ends_.write);
  ends_.CloseRead();
  outlet.Add("text");
  outlet.Write();
  EXPECT_TRUE(outlet.has_no_reader());
  outlet.Add("more");
  EXPECT_EQ(outlet.pending_bytes(), 0);
}

TEST(OutletOfADeviceTest, AFullDeviceIsAnErrorButHasAReader) {
  const int fd = open("/dev/full", O_WRONLY);
  ASSERT_GE(fd, 0);
  {
    Outlet outlet(fd);
    outlet.Add("text");
    outlet.Write();
    EXPECT_EQ(outlet.error(), ENOSPC);
    EXPECT_FALSE(outlet.has_no_reader());
    EXPECT_FALSE(outlet.is_terminal());
  }
  close(fd);
}

}  // namespace
}  // namespace commsched::cli
