#include "examples/trainer/interruption.h"

#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace commsched::trainer {
namespace {

constexpr int64_t kCopiesNs = 1'000'000'000;
constexpr int64_t kNever = -1;
constexpr int kSignals[] = {SIGINT, SIGTERM};

// The handler's; it has no other way to what it changes.
std::atomic<bool> is_deferred{false};
std::atomic<int> first_signal{0};
std::atomic<int64_t> first_ns{kNever};
static_assert(std::atomic<int>::is_always_lock_free &&
              std::atomic<int64_t>::is_always_lock_free);

// What follows calls only what is safe within a handler.

int64_t NowNs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void Tell(absl::string_view message) {
  // There is nowhere to say that this failed.
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, message.data(), message.size());
}

void Handle(int signal) {
  const int saved_errno = errno;
  if (!is_deferred.load()) {
    Tell("commsched-train: ends at once, before the first step\n");
    _exit(128 + signal);
  }
  // Before the signal: another thread may handle a copy meanwhile.
  const int64_t now_ns = NowNs();
  int64_t since_ns = kNever;
  if (first_ns.compare_exchange_strong(since_ns, now_ns)) since_ns = now_ns;
  int first = 0;
  if (first_signal.compare_exchange_strong(first, signal)) {
    Tell(
        "commsched-train: ends after the step at hand, or after the rest of a "
        "run whose steps are done; a second signal ends at once\n");
  } else if (signal != first || now_ns - since_ns >= kCopiesNs) {
    _exit(128 + signal);
  }
  errno = saved_errno;
}

// Calls that the signal meets go on: files are being written.
void Catch(int signal, struct sigaction* before) {
  sigaction(signal, nullptr, before);
  if (before->sa_handler == SIG_IGN) return;
  struct sigaction action = {};
  action.sa_handler = Handle;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

}  // namespace

Interruption::Interruption() {
  is_deferred.store(false);
  first_signal.store(0);
  first_ns.store(kNever);
  for (size_t i = 0; i < 2; ++i) Catch(kSignals[i], &before_[i]);
}

Interruption::~Interruption() {
  for (size_t i = 0; i < 2; ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

void Interruption::Defer() { is_deferred.store(true); }

const std::atomic<int>& Interruption::signal() const { return first_signal; }

}  // namespace commsched::trainer
