// How the library starts a thread.
#ifndef COMMSCHED_SRC_BASE_THREAD_H_
#define COMMSCHED_SRC_BASE_THREAD_H_

#include <functional>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace commsched {

// Runs `body` on a new thread. `what` says which and whose it is: "the progress
// thread of rank 1". kResourceExhausted, with that, if there is none to be had,
// as where the number of threads is limited (ulimit -u, a container's pids).
absl::StatusOr<std::thread> StartThread(absl::string_view what,
                                        std::function<void()> body);

}  // namespace commsched

#endif  // COMMSCHED_SRC_BASE_THREAD_H_
