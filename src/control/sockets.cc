#include "control/sockets.h"

#include <netinet/in.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>

#include "absl/status/status.h"
#include "base/mutex.h"

namespace commsched {
namespace {

constexpr int kBacklog = 4096;

absl::Status SystemReason() {
  const bool is_scarcity = errno == EMFILE || errno == ENFILE;
  return absl::Status(is_scarcity ? absl::StatusCode::kResourceExhausted
                                  : absl::StatusCode::kUnavailable,
                      std::strerror(errno));  // NOLINT(concurrency-mt-unsafe)
}

// Never destroyed: a child may be forked at the very end.
struct Kept {
  Mutex mu;
  std::set<int> fds ABSL_GUARDED_BY(mu);
};

Kept& ProcessKept();

// Whoever forks has the lock meanwhile, so that the child finds the list whole.
void BeforeFork() ABSL_NO_THREAD_SAFETY_ANALYSIS { ProcessKept().mu.Lock(); }
void AfterFork() ABSL_NO_THREAD_SAFETY_ANALYSIS { ProcessKept().mu.Unlock(); }
void AfterForkInChild() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  for (const int fd : ProcessKept().fds) close(fd);
  ProcessKept().mu.Unlock();
}

Kept& ProcessKept() {
  static Kept* const kept = [] {
    pthread_atfork(&BeforeFork, &AfterFork, &AfterForkInChild);
    return new Kept;
  }();
  return *kept;
}

}  // namespace

void KeepFromForks(int fd) {
  Kept& kept = ProcessKept();
  const MutexLock lock(&kept.mu);
  kept.fds.insert(fd);
}

void ReleaseToForks(int fd) {
  Kept& kept = ProcessKept();
  const MutexLock lock(&kept.mu);
  kept.fds.erase(fd);
}

void Descriptor::Close() {
  if (fd_ >= 0) close(Release());
}

Descriptor OpenSocket(int family, int type) {
  return Descriptor(socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

absl::StatusOr<Descriptor> ListenAt(const sockaddr* address, socklen_t bytes) {
  Descriptor fd = OpenSocket(address->sa_family, SOCK_STREAM);
  const int on = 1;
  if (!fd.valid() ||
      (address->sa_family != AF_UNIX &&
       setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0) ||
      bind(fd.get(), address, bytes) != 0 || listen(fd.get(), kBacklog) != 0) {
    return SystemReason();
  }
  return fd;
}

Descriptor AcceptAt(int listener) {
  return Descriptor(
      accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

int FamilyOf(int fd) {
  sockaddr_storage address = {};
  socklen_t bytes = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes);
  return address.ss_family;
}

uint16_t PortOf(int fd) {
  sockaddr_storage address = {};
  socklen_t bytes = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    return 0;
  }
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
  }
  if (address.ss_family != AF_INET) return 0;
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

}  // namespace commsched
