#include "test/gpu_check/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

extern char** environ;

namespace commsched::gpu_check {
namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

// Ours with those of `spec` in the place of what we have under their names.
std::vector<std::string> EnvironmentOf(const ChildSpec& spec) {
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    bool is_replaced = false;
    for (const auto& [name, value] : spec.environment) {
      is_replaced |= strncmp(*variable, name.c_str(), name.size()) == 0 &&
                     (*variable)[name.size()] == '=';
    }
    if (!is_replaced) all.emplace_back(*variable);
  }
  for (const auto& [name, value] : spec.environment) {
    all.push_back(absl::StrCat(name, "=", value));
  }
  return all;
}

std::vector<char*> Pointers(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

int Milliseconds(Child::TimePoint deadline) {
  const auto left =
      std::chrono::duration_cast<milliseconds>(deadline - SteadyClock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Child>> Child::Start(const ChildSpec& spec) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return absl::InternalError(absl::StrCat("pipe2: ", strerror(errno)));
  }
  std::vector<std::string> arguments = spec.command;
  std::vector<std::string> environment = EnvironmentOf(spec);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // Also if it is there already: then this clears its close-on-exec.
  posix_spawn_file_actions_adddup2(&actions, ends[1], kResultsFile);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  pid_t pid = -1;
  const int code =
      posix_spawn(&pid, arguments[0].c_str(), &actions, &attributes,
                  Pointers(&arguments).data(), Pointers(&environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (code != 0) {
    close(ends[0]);
    return absl::InternalError(
        absl::StrCat("'", arguments[0], "' cannot be run: ", strerror(code)));
  }
  return std::unique_ptr<Child>(new Child(pid, ends[0]));
}

Child::~Child() {
  if (pid_ != -1) {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(pipe_);
}

bool Child::Read(TimePoint deadline, std::string* out_text) {
  char buffer[4096];
  while (SteadyClock::now() < deadline) {
    pollfd file = {pipe_, POLLIN, 0};
    if (poll(&file, 1, Milliseconds(deadline)) <= 0) continue;
    const ssize_t n = read(pipe_, buffer, sizeof(buffer));
    if (n == 0) return true;
    if (n > 0) out_text->append(buffer, static_cast<size_t>(n));
  }
  return false;
}

bool Child::Reap(TimePoint deadline, int* out_status) {
  // Its end can be waited for with a limit. Kernels before 5.3 cannot.
  const int process = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  bool has_ended = process < 0;
  while (!has_ended && SteadyClock::now() < deadline) {
    pollfd file = {process, POLLIN, 0};
    has_ended = poll(&file, 1, Milliseconds(deadline)) > 0;
  }
  if (process >= 0) close(process);
  if (!has_ended) return false;
  while (waitpid(pid_, out_status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return true;
}

ChildEnd Child::Wait(TimePoint deadline) {
  ChildEnd end;
  std::string text;
  const auto begin = SteadyClock::now();
  int status = 0;
  if (Read(deadline, &text) && Reap(deadline, &status)) {
    if (WIFEXITED(status)) {
      end.exit_code = WEXITSTATUS(status);
    } else {
      end.status = absl::InternalError(
          absl::StrCat("ended by signal ", WTERMSIG(status), " (",
                       strsignal(WTERMSIG(status)), ")"));
    }
  } else {
    const auto took = std::chrono::duration_cast<std::chrono::seconds>(
        SteadyClock::now() - begin);
    end.status = absl::DeadlineExceededError(
        absl::StrCat("had not ended after ", took.count(), " s, was killed"));
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (line.empty()) continue;
    absl::StatusOr<Result> result = FromLine(line);
    end.results.push_back(result.ok() ? *std::move(result)
                                      : Result{"a line", result.status(), ""});
  }
  return end;
}

ChildEnd RunChild(const ChildSpec& spec, std::chrono::seconds timeout) {
  auto child = Child::Start(spec);
  if (!child.ok()) return {.results = {}, .status = child.status()};
  return (*child)->Wait(SteadyClock::now() + timeout);
}

std::string OwnPath() {
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
  return n <= 0 ? "" : std::string(path, static_cast<size_t>(n));
}

std::string FindProgram(absl::string_view name) {
  const char* const path = getenv("PATH");
  if (path == nullptr) return "";
  for (const absl::string_view folder : absl::StrSplit(path, ':')) {
    const std::string file = absl::StrCat(folder, "/", name);
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

}  // namespace commsched::gpu_check
