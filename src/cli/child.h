#ifndef COMMSCHED_SRC_CLI_CHILD_H_
#define COMMSCHED_SRC_CLI_CHILD_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace commsched::cli {

// A child process in a process group of its own, whose output comes through
// pipes. It is killed when the thread that started it ends, however that ends.
// Thread-compatible.
class Child {
 public:
  struct Spec {
    std::vector<std::string> arguments;  // The program first, found by PATH.
    // Set in its environment, beside what this process has.
    std::vector<std::pair<std::string, std::string>> variables;
    std::string input;  // What it finds on stdin; "": nothing.
    // It passes on the signals whose names ("TERM") it then finds there, a line
    // each: it is only the way to the process that is meant, on another host.
    bool relays = false;
  };

  // Null, with the reason in `*why`, if it cannot be started.
  static std::unique_ptr<Child> Start(const Spec& spec, std::string* why);
  // Closes the pipes. Kills and reaps what still runs.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  // To read from, without blocking; -1 once closed.
  int out() const { return out_; }
  int err() const { return err_; }
  void CloseOut();
  void CloseErr();

  // To the whole process group, also after the child itself has ended. Of one
  // that relays, to the process that is meant; SIGKILL to both.
  void Signal(int number) const;

  // Whether it has ended; reaps it. Does not block.
  bool HasEnded();
  // Once it has: the exit code, or 128 + the number of the signal that killed
  // it, as shells count.
  int exit_code() const { return exit_code_; }
  // "exited with code 1", "was killed by signal 9 (Killed)".
  std::string Describe() const;

 private:
  Child() = default;

  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
  int relay_ = -1;  // Where it reads signals; -1: it does not relay.
  bool ended_ = false;
  int exit_code_ = 0;
  int status_ = 0;
};

}  // namespace commsched::cli

#endif  // COMMSCHED_SRC_CLI_CHILD_H_
