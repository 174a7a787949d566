// Sockets that no child of this process inherits.
#ifndef COMMSCHED_SRC_CONTROL_SOCKETS_H_
#define COMMSCHED_SRC_CONTROL_SOCKETS_H_

#include <sys/socket.h>

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

namespace commsched {

// Closed with its owner.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    Close();
    fd_ = other.Release();
    return *this;
  }
  ~Descriptor() { Close(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  void Close();

 private:
  int fd_ = -1;
};

// Close-on-exec from the start: a program that another thread starts meanwhile
// would keep the connection, and with it what hides that this process is gone.
// None, with errno, if there is no descriptor left.
Descriptor OpenSocket(int family, int type);

// From here to ReleaseToForks(), a child that this process forks closes `fd`:
// one that does not start another program would keep the connection, too.
void KeepFromForks(int fd);
void ReleaseToForks(int fd);

// Listens at `address`. kUnavailable, or without a descriptor
// kResourceExhausted, with the system's reason, if that cannot be.
absl::StatusOr<Descriptor> ListenAt(const sockaddr* address, socklen_t bytes);

// A connection that waits at `listener`: none, with errno, if there is none.
Descriptor AcceptAt(int listener);

// AF_INET and the like.
int FamilyOf(int fd);

// The port that a TCP socket is bound to; 0: it is no such.
uint16_t PortOf(int fd);

}  // namespace commsched

#endif  // COMMSCHED_SRC_CONTROL_SOCKETS_H_
