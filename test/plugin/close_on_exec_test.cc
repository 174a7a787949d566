#include "plugins/ucx/process/close_on_exec.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace commsched::ucx {
namespace {

bool IsInherited(int fd) { return (fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0; }

TEST(CloseOnExecTest, WhatIsOpenedMeanwhileIsNotInherited) {
  const int earlier = socket(AF_INET, SOCK_DGRAM, 0);
  int listener = -1;
  sockaddr_in address = {};
  socklen_t bytes = sizeof(address);
  {
    const CloseOnExec close_on_exec;
    listener = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const at = reinterpret_cast<sockaddr*>(&address);
    ASSERT_EQ(bind(listener, at, bytes), 0);
    ASSERT_EQ(listen(listener, 1), 0);
    ASSERT_EQ(getsockname(listener, at, &bytes), 0);
  }
  EXPECT_TRUE(IsInherited(earlier));
  EXPECT_FALSE(IsInherited(listener));
  // As a thread of UCX's own does at any time; the other end is a peer's.
  const int peer = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(connect(peer, reinterpret_cast<const sockaddr*>(&address), bytes),
            0);
  const int accepted = accept(listener, nullptr, nullptr);
  ASSERT_GE(accepted, 0);
  { const CloseOnExec close_on_exec; }
  EXPECT_FALSE(IsInherited(accepted));
  EXPECT_TRUE(IsInherited(peer));
  for (const int fd : {earlier, listener, peer, accepted}) close(fd);
}

}  // namespace
}  // namespace commsched::ucx
