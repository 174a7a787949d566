#ifndef COMMSCHED_SRC_ENGINE_SESSION_WATCH_H_
#define COMMSCHED_SRC_ENGINE_SESSION_WATCH_H_

#include <condition_variable>
#include <mutex>
#include <thread>

#include "commsched/agree.h"
#include "commsched/session.h"
#include "commsched/world.h"

namespace commsched::engine {

// Ends a comparison with other ranks that a failure has made pointless: while
// it lives, if the session fails, also by another rank's abort, this rank
// declines the comparison that it waits in.
//
// Has a thread, and so is for the rare steps that compare values.
class SessionWatch {
 public:
  // All three outlive this. Does nothing without a session.
  SessionWatch(const commsched_session_t* session, commsched_context_t* context,
               const commsched_agree_desc_t& desc);
  ~SessionWatch();
  SessionWatch(const SessionWatch&) = delete;
  SessionWatch& operator=(const SessionWatch&) = delete;

 private:
  void Run(const commsched_session_t* session, commsched_context_t* context,
           const commsched_agree_desc_t& desc);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;  // Guarded by mutex_.
  std::thread thread_;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_SESSION_WATCH_H_
