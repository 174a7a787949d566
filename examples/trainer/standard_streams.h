#ifndef COMMSCHED_EXAMPLES_TRAINER_STANDARD_STREAMS_H_
#define COMMSCHED_EXAMPLES_TRAINER_STANDARD_STREAMS_H_

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace commsched {

// For the first line of a program: opens /dev/null on those of the descriptors
// 0 to 2 that are closed. The next file to be opened would get such a
// descriptor, and what the program prints would be written into that file.
// Returns false if there is no /dev/null.
inline bool OpenStandardStreams() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO;
       ++descriptor) {
    if (fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest that is free: `descriptor`, since those below are open.
    if (open("/dev/null", O_RDWR) != descriptor) return false;
  }
  return true;
}

// For the last line of a program: `exit_code`, or 1 if what was printed cannot
// be written, which it then says on stderr.
inline int FinishOutput(const char* program, int exit_code) {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) return exit_code;
  std::fprintf(stderr, "%s: cannot write to standard output%s%s\n", program,
               errno == 0 ? "" : ": ", errno == 0 ? "" : std::strerror(errno));
  return exit_code == 0 ? 1 : exit_code;
}

}  // namespace commsched

#endif  // COMMSCHED_EXAMPLES_TRAINER_STANDARD_STREAMS_H_
