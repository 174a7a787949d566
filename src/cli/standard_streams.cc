#include "cli/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <iostream>

namespace commsched::cli {

bool OpenStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    const bool is_open = fcntl(fd, F_GETFD) != -1 || errno != EBADF;
    // The lowest number that is free is given, which is this one.
    if (!is_open && open("/dev/null", O_RDWR) != fd) return false;
  }
  return true;
}

int FinishOutput(int exit_code) {
  errno = 0;
  std::cout.flush();  // To stdout.
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (!failed) return exit_code;
  const int error = errno;
  std::fprintf(stderr, "commsched: cannot write to standard output%s%s\n",
               error == 0 ? "" : ": ", error == 0 ? "" : std::strerror(error));
  return exit_code == 0 ? 1 : exit_code;
}

}  // namespace commsched::cli
