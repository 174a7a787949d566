#include "cli/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace commsched::cli {
namespace {

// Ends of pipes, closed with it.
struct Pipe {
  int read = -1;
  int write = -1;

  bool Open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    read = ends[0];
    write = ends[1];
    return true;
  }
  ~Pipe() {
    CloseRead();
    CloseWrite();
  }
  void CloseRead() {
    if (read >= 0) close(std::exchange(read, -1));
  }
  void CloseWrite() {
    if (write >= 0) close(std::exchange(write, -1));
  }
};

void DontBlock(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

// This process' environment with `variables`, as execve takes it.
std::vector<std::string> EnvironmentWith(
    const std::vector<std::pair<std::string, std::string>>& variables) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const char* equals = std::strchr(*entry, '=');
    const std::string name(*entry, equals == nullptr
                                       ? std::strlen(*entry)
                                       : static_cast<size_t>(equals - *entry));
    bool replaced = false;
    for (const auto& variable : variables) replaced |= variable.first == name;
    if (!replaced) all.emplace_back(*entry);
  }
  for (const auto& [name, value] : variables) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> PointersTo(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// In the child, up to the new program: no memory is taken here, since another
// thread of the parent may have held the allocator's lock.
[[noreturn]] void Become(char* const* arguments, char* const* environment,
                         int in, int out, int err, int failed) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  if (dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
      dup2(err, STDERR_FILENO) >= 0) {
    execvpe(arguments[0], arguments, environment);
  }
  const int error = errno;
  (void)!write(failed, &error, sizeof(error));
  _exit(127);
}

}  // namespace

std::unique_ptr<Child> Child::Start(const Spec& spec, std::string* why) {
  Pipe in, out, err, failed;
  if (!in.Open() || !out.Open() || !err.Open() || !failed.Open()) {
    *why = std::string("no pipe: ") + std::strerror(errno);
    return nullptr;
  }
  std::vector<std::string> arguments = spec.arguments;
  std::vector<std::string> environment = EnvironmentWith(spec.variables);
  const std::vector<char*> argv = PointersTo(&arguments);
  const std::vector<char*> envp = PointersTo(&environment);
  const pid_t pid = fork();
  if (pid < 0) {
    *why = std::string("no process: ") + std::strerror(errno);
    return nullptr;
  }
  if (pid == 0) {
    Become(argv.data(), envp.data(), in.read, out.write, err.write,
           failed.write);
  }
  setpgid(pid, pid);  // In both: whoever comes first.
  std::unique_ptr<Child> child(new Child);
  child->pid_ = pid;
  failed.CloseWrite();
  int error = 0;
  ssize_t n = 0;
  do {
    n = read(failed.read, &error, sizeof(error));
  } while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(sizeof(error))) {
    *why = spec.arguments[0] + ": " + std::strerror(error);
    return nullptr;
  }
  // Fits the pipe, so that this does not block.
  (void)!write(in.write, spec.input.data(), spec.input.size());
  if (spec.relays) {
    child->relay_ = std::exchange(in.write, -1);
    DontBlock(child->relay_);
  }
  child->out_ = std::exchange(out.read, -1);
  child->err_ = std::exchange(err.read, -1);
  DontBlock(child->out_);
  DontBlock(child->err_);
  return child;
}

Child::~Child() {
  CloseOut();
  CloseErr();
  Signal(SIGKILL);
  if (!ended_ && pid_ > 0) waitpid(pid_, &status_, 0);
  if (relay_ >= 0) close(relay_);
}

void Child::CloseOut() {
  if (out_ >= 0) close(std::exchange(out_, -1));
}

void Child::CloseErr() {
  if (err_ >= 0) close(std::exchange(err_, -1));
}

void Child::Signal(int number) const {
  if (pid_ <= 0) return;
  if (relay_ >= 0) {
    const std::string line = std::string(sigabbrev_np(number)) + "\n";
    // Who does not read is beyond reach.
    (void)!write(relay_, line.data(), line.size());
    if (number != SIGKILL) return;
  }
  kill(-pid_, number);
}

bool Child::HasEnded() {
  if (ended_) return true;
  if (waitpid(pid_, &status_, WNOHANG) != pid_) return false;
  ended_ = true;
  exit_code_ =
      WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
  return true;
}

std::string Child::Describe() const {
  if (WIFSIGNALED(status_)) {
    const int number = WTERMSIG(status_);
    return "was killed by signal " + std::to_string(number) + " (" +
           strsignal(number) + ")";  // NOLINT(concurrency-mt-unsafe)
  }
  return "exited with code " + std::to_string(exit_code_);
}

}  // namespace commsched::cli
