#include "examples/trainer/interruption.h"

#include <unistd.h>

#include <cerrno>

#include "absl/strings/string_view.h"

namespace commsched::trainer {
namespace {

// The handler's; it has no other way to what it changes.
std::atomic<int> first_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

// Only calls that are safe within a handler.
void Handle(int signal) {
  int none = 0;
  if (!first_signal.compare_exchange_strong(none, signal)) {
    _exit(128 + signal);
  }
  const int saved_errno = errno;
  constexpr absl::string_view kMessage =
      "commsched-train: ends after the step at hand, or after the rest of a "
      "run "
      "whose steps are done; a second signal ends at once\n";
  // There is nowhere to say that this failed.
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, kMessage.data(), kMessage.size());
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
  first_signal.store(0);
  Catch(SIGINT, &before_int_);
  Catch(SIGTERM, &before_term_);
}

Interruption::~Interruption() {
  sigaction(SIGINT, &before_int_, nullptr);
  sigaction(SIGTERM, &before_term_, nullptr);
}

const std::atomic<int>& Interruption::signal() const { return first_signal; }

}  // namespace commsched::trainer
