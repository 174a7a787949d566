#include "cli/outlet.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace commsched::cli {
namespace {

// Who is told that there is room may write this much without waiting: Linux
// says so of a pipe that has a free page. Of a terminal there is no such
// promise, which matters only where it cannot be opened again.
constexpr size_t kPolledBytes = 512;

}  // namespace

Outlet::Outlet(int fd) : given_fd_(fd), fd_(fd) {
  is_terminal_ = isatty(fd) == 1;
  struct stat status;
  if (fstat(fd, &status) != 0) return;
  if (S_ISSOCK(status.st_mode)) kind_ = Kind::kSocket;
  if (!S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode)) return;
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const int own =
      open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  kind_ = own < 0 ? Kind::kPolled : Kind::kNonBlocking;
  if (own >= 0) fd_ = own;
}

Outlet::~Outlet() {
  if (fd_ != given_fd_) close(fd_);
}

void Outlet::Add(const std::string& text) {
  if (error_ == 0) pending_ += text;
}

bool Outlet::has_no_reader() const {
  return error_ == EPIPE || (error_ == EIO && is_terminal_);
}

int64_t Outlet::WriteSome() {
  const char* const bytes = pending_.data() + begin_;
  switch (kind_) {
    case Kind::kFile:
    case Kind::kNonBlocking:
      return write(fd_, bytes, pending_bytes());
    case Kind::kSocket:
      return send(fd_, bytes, pending_bytes(), MSG_DONTWAIT | MSG_NOSIGNAL);
    case Kind::kPolled:
      break;
  }
  pollfd room = {fd_, POLLOUT, 0};
  if (poll(&room, 1, 0) != 1) {
    errno = EAGAIN;
    return -1;
  }
  return write(fd_, bytes, std::min(pending_bytes(), kPolledBytes));
}

void Outlet::Write() {
  while (pending_bytes() > 0) {
    const int64_t n = WriteSome();
    if (n >= 0) {
      begin_ += static_cast<size_t>(n);
      written_bytes_ += n;
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      error_ = errno;
      begin_ = pending_.size();
    }
  }
  pending_.erase(0, begin_);
  begin_ = 0;
}

}  // namespace commsched::cli
