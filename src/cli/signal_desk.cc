#include "cli/signal_desk.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

namespace commsched::cli {
namespace {

constexpr int kEnding[] = {SIGINT, SIGTERM, SIGHUP};
constexpr int kOthers[] = {SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP};

void TakeUnlessIgnored(int number, sigset_t* taken) {
  struct sigaction action = {};
  sigaction(number, nullptr, &action);
  if (action.sa_handler != SIG_IGN) sigaddset(taken, number);
}

}  // namespace

SignalDesk::SignalDesk() {
  sigemptyset(&taken_);
  sigaddset(&taken_, SIGCHLD);
  for (const int number : kEnding) TakeUnlessIgnored(number, &taken_);
  for (const int number : kOthers) TakeUnlessIgnored(number, &taken_);
  // A background job may write to the terminal: stopped for that, it would be
  // a server that is silent.
  sigset_t blocked = taken_;
  sigaddset(&blocked, SIGTTOU);
  sigprocmask(SIG_BLOCK, &blocked, nullptr);
  fd_ = signalfd(-1, &taken_, SFD_NONBLOCK | SFD_CLOEXEC);
  signal(SIGPIPE, SIG_IGN);
}

SignalDesk::~SignalDesk() {
  if (fd_ >= 0) close(fd_);
}

int SignalDesk::Take() {
  signalfd_siginfo info;
  const ssize_t n = read(fd_, &info, sizeof(info));
  return n == static_cast<ssize_t>(sizeof(info))
             ? static_cast<int>(info.ssi_signo)
             : 0;
}

void SignalDesk::Stop() {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  raise(SIGTSTP);
  sigprocmask(SIG_UNBLOCK, &stop, nullptr);  // Stops here.
  sigprocmask(SIG_BLOCK, &stop, nullptr);
}

bool SignalDesk::AsksToEnd(int number) {
  return std::count(std::begin(kEnding), std::end(kEnding), number) != 0;
}

}  // namespace commsched::cli
