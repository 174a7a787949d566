#include "session_watch.h"

#include <chrono>
#include <string>

#include "commsched/status.h"

namespace commsched::engine {

SessionWatch::SessionWatch(const commsched_session_t* session,
                           commsched_context_t* context,
                           const commsched_agree_desc_t& desc) {
  if (session == nullptr) return;  // The order is recorded.
  thread_ = std::thread(
      [this, session, context, &desc] { Run(session, context, desc); });
}

SessionWatch::~SessionWatch() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void SessionWatch::Run(const commsched_session_t* session,
                       commsched_context_t* context,
                       const commsched_agree_desc_t& desc) {
  constexpr std::chrono::milliseconds kPeriod(20);
  std::unique_lock<std::mutex> lock(mutex_);
  while (!changed_.wait_for(lock, kPeriod, [this] { return over_; })) {
    if (commsched_session_status(session) == COMMSCHED_OK) continue;
    const std::string reason = commsched_last_error();
    commsched_context_decline(context, &desc, COMMSCHED_ABORTED,
                              reason.c_str());
    return;
  }
}

}  // namespace commsched::engine
