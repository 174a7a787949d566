#ifndef COMMSCHED_SRC_CLI_SIGNAL_DESK_H_
#define COMMSCHED_SRC_CLI_SIGNAL_DESK_H_

#include <signal.h>

namespace commsched::cli {

// Takes the signals of this process one at a time, where it waits for other
// things, too. A signal that the process was started to ignore (nohup, a shell
// without job control) stays ignored.
//
// One per process, made by the main thread before it starts others; the main
// thread's.
class SignalDesk {
 public:
  SignalDesk();
  ~SignalDesk();
  SignalDesk(const SignalDesk&) = delete;
  SignalDesk& operator=(const SignalDesk&) = delete;

  // To poll for POLLIN.
  int fd() const { return fd_; }

  // The next signal that has come, or 0: SIGCHLD, SIGTSTP, and those that are
  // passed on to ranks.
  int Take();

  // Stops this process as SIGTSTP does by default, and returns once it goes on.
  // Where nobody could continue it (an orphaned process group) returns at once.
  void Stop();

  // Whether the signal asks for the end.
  static bool AsksToEnd(int number);

 private:
  sigset_t taken_;
  int fd_ = -1;
};

}  // namespace commsched::cli

#endif  // COMMSCHED_SRC_CLI_SIGNAL_DESK_H_
