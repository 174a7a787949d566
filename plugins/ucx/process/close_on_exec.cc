#include "ucx/process/close_on_exec.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstdlib>
#include <mutex>

namespace commsched::ucx {
namespace {

std::set<int> OpenDescriptors() {
  std::set<int> all;
  DIR* const entries = opendir("/proc/self/fd");
  if (entries == nullptr) return all;
  while (const dirent* entry = readdir(entries)) {
    if (entry->d_name[0] != '.') all.insert(atoi(entry->d_name));
  }
  all.erase(dirfd(entries));
  closedir(entries);
  return all;
}

// The port of a TCP socket; 0: it is none.
uint16_t PortOf(int fd) {
  sockaddr_storage address = {};
  socklen_t bytes = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    return 0;
  }
  if (address.ss_family == AF_INET6) {
    return reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port;
  }
  if (address.ss_family != AF_INET) return 0;
  return reinterpret_cast<const sockaddr_in*>(&address)->sin_port;
}

bool Listens(int fd) {
  int listens = 0;
  socklen_t bytes = sizeof(listens);
  return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) == 0 &&
         listens != 0;
}

// Where sockets that were opened in a scope listen: what a thread of UCX's own
// has accepted there, at any time, is known by the port. Never destroyed.
struct Listeners {
  std::mutex mu;
  std::set<uint16_t> ports;
};
Listeners& ProcessListeners() {
  static auto* const listeners = new Listeners;
  return *listeners;
}

}  // namespace

CloseOnExec::CloseOnExec() : before_(OpenDescriptors()) {}

CloseOnExec::~CloseOnExec() {
  Listeners& listeners = ProcessListeners();
  const std::lock_guard<std::mutex> lock(listeners.mu);
  for (const int fd : OpenDescriptors()) {
    const int flags = fcntl(fd, F_GETFD);
    if (flags < 0 || (flags & FD_CLOEXEC) != 0) continue;
    const bool opened = !before_.contains(fd);
    if (opened && Listens(fd)) listeners.ports.insert(PortOf(fd));
    if (opened || listeners.ports.contains(PortOf(fd))) {
      fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
    }
  }
}

}  // namespace commsched::ucx
