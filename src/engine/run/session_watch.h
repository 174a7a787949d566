#ifndef COMMSCHED_SRC_ENGINE_RUN_SESSION_WATCH_H_
#define COMMSCHED_SRC_ENGINE_RUN_SESSION_WATCH_H_

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "checkpoint/status.h"
#include "commsched/agree.h"
#include "commsched/world.h"

namespace commsched::engine {

// Ends a comparison with other ranks that a failure has made pointless: while
// it lives, if a session fails, also by another rank's abort, this rank
// declines the comparison that it waits in.
//
// Has a thread, and so is for the rare steps that compare values.
class SessionWatch {
 public:
  // Called on a thread of its own, over and over until it is not OK.
  using Failure = std::function<Status()>;

  explicit SessionWatch(Failure failure) : failure_(std::move(failure)) {}
  ~SessionWatch();
  SessionWatch(const SessionWatch&) = delete;
  SessionWatch& operator=(const SessionWatch&) = delete;

  // Once. `context` and `desc` outlive this.
  Status Start(commsched_context_t* context,
               const commsched_agree_desc_t& desc);

 private:
  void Run(commsched_context_t* context, const commsched_agree_desc_t& desc);

  const Failure failure_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;  // Guarded by mutex_.
  std::thread thread_;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_RUN_SESSION_WATCH_H_
