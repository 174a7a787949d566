#ifndef COMMSCHED_SRC_CHECKPOINT_THREAD_H_
#define COMMSCHED_SRC_CHECKPOINT_THREAD_H_

#include <functional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "checkpoint/status.h"

namespace commsched::engine {

// Runs `body` on a new thread. `what` says which it is: "the thread that writes
// checkpoints". RESOURCE_EXHAUSTED, with that, if there is none to be had.
inline Status StartThread(const std::string& what, std::function<void()> body,
                          std::thread* out) {
  try {
    *out = std::thread(std::move(body));
    return Status();
  } catch (const std::system_error& e) {
    return Status(COMMSCHED_RESOURCE_EXHAUSTED,
                  "engine: cannot start " + what + ": " + e.code().message());
  }
}

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_CHECKPOINT_THREAD_H_
