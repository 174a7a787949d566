#include "base/wait_signal.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/env.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/wait_registry.h"

namespace commsched {
namespace {

constexpr int kNoFile = -1;

// What the handler reads. Written before it is installed.
std::atomic<int> wake_file{kNoFile};
std::atomic<pid_t> owner{0};
static_assert(std::atomic<int>::is_always_lock_free);

// Only calls that are safe within a handler.
void HandleWaitSignal(int number) {
  const int saved_errno = errno;
  if (getpid() != owner.load(std::memory_order_relaxed)) {
    signal(number, SIG_DFL);
    raise(number);
  } else {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written =
        write(wake_file.load(std::memory_order_relaxed), &one, sizeof(one));
  }
  errno = saved_errno;
}

void PrintWaiters() {
  const std::string text = DescribeWaiters();
  if (text.empty()) {
    LogAnswer(absl::StrCat("process ", getpid(),
                           ": no session, and no call that waits for a rank"));
  }
  for (const absl::string_view line :
       absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    LogAnswer(line);
  }
}

void* PrintWheneverWoken(void* /*unused*/) {
  pthread_setname_np(pthread_self(), "commsched/waits");
  while (true) {
    uint64_t count = 0;
    const ssize_t got = read(wake_file.load(), &count, sizeof(count));
    if (got < 0 && errno != EINTR) return nullptr;
    if (got != sizeof(count)) continue;
    try {
      PrintWaiters();
    } catch (const std::bad_alloc&) {
      LogAnswer("no memory to say what this process waits for");
    }
  }
}

// Signals of the program are not for this thread.
absl::Status StartPrinter() {
  const int file = eventfd(0, EFD_CLOEXEC);
  if (file < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("waits: no event descriptor: ", std::strerror(errno)));
  }
  wake_file.store(file);
  owner.store(getpid());
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const int error =
      pthread_create(&thread, nullptr, &PrintWheneverWoken, nullptr);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error == 0) {
    pthread_detach(thread);
    return absl::OkStatus();
  }
  wake_file.store(kNoFile);
  close(file);
  return absl::ResourceExhaustedError(
      absl::StrCat("waits: no thread to print them: ", std::strerror(error)));
}

}  // namespace

absl::Status PrintWaitersOn(int number) {
  static Mutex* const mu = new Mutex;
  MutexLock lock(mu);
  struct sigaction before = {};
  if (number < 1 || sigaction(number, nullptr, &before) != 0 ||
      number == SIGKILL || number == SIGSTOP) {
    return absl::InvalidArgumentError(
        absl::StrCat("waits: ", number, " is not a signal that can be caught"));
  }
  const bool has_info = (before.sa_flags & SA_SIGINFO) != 0;
  if (!has_info && before.sa_handler == &HandleWaitSignal) {
    return absl::OkStatus();
  }
  if (has_info || before.sa_handler != SIG_DFL) {
    return absl::FailedPreconditionError(absl::StrCat(
        "waits: the process ",
        !has_info && before.sa_handler == SIG_IGN ? "ignores" : "handles",
        " signal ", number));
  }
  if (wake_file.load() == kNoFile) RETURN_IF_ERROR(StartPrinter());
  struct sigaction action = {};
  action.sa_handler = &HandleWaitSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(number, &action, nullptr);
  return absl::OkStatus();
}

void PrintWaitersIfAsked() {
  [[maybe_unused]] static const bool once = [] {
    const absl::StatusOr<int64_t> asked =
        Env::Process().Get("COMMSCHED_SIGQUIT");
    absl::Status status = asked.status();
    if (asked.ok() && *asked == 1) status = PrintWaitersOn(SIGQUIT);
    if (!status.ok()) Log(LogLevel::kWarning, status.message());
    return true;
  }();
}

}  // namespace commsched
