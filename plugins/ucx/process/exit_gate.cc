#include "ucx/process/exit_gate.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace commsched::ucx {
namespace {

constexpr auto kMostWait = std::chrono::seconds(2);

// Never destroyed: it is used at the very end.
struct Gate {
  std::mutex mu;
  std::condition_variable changed;
  int num_inside = 0;
  bool closed = false;
  std::thread::id exiting;
  const pid_t process = getpid();
};

thread_local int own_depth = 0;

Gate& ProcessGate();

void Close() {
  Gate& gate = ProcessGate();
  if (gate.process != getpid()) return;  // A child's: nobody else is here.
  std::unique_lock<std::mutex> lock(gate.mu);
  gate.closed = true;
  gate.exiting = std::this_thread::get_id();
  gate.changed.wait_for(lock, kMostWait,
                        [&] { return gate.num_inside == own_depth; });
}

Gate& ProcessGate() {
  static Gate* const gate = [] {
    // Later than what UCX has registered, and so called before it.
    (void)atexit(&Close);
    return new Gate;
  }();
  return *gate;
}

}  // namespace

InUcx::InUcx() {
  Gate& gate = ProcessGate();
  std::unique_lock<std::mutex> lock(gate.mu);
  if (gate.closed && own_depth == 0 &&
      gate.exiting != std::this_thread::get_id()) {
    lock.unlock();
    while (true) pause();
  }
  ++gate.num_inside;
  ++own_depth;
}

InUcx::~InUcx() {
  Gate& gate = ProcessGate();
  const std::lock_guard<std::mutex> lock(gate.mu);
  --gate.num_inside;
  --own_depth;
  gate.changed.notify_all();
}

}  // namespace commsched::ucx
