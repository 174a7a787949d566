#include "engine/run/session_watch.h"

#include <chrono>
#include <utility>

#include "checkpoint/thread.h"

namespace commsched::engine {

Status SessionWatch::Start(commsched_context_t* context,
                           const commsched_agree_desc_t& desc) {
  return StartThread(
      "the thread that watches sessions",
      [this, context, &desc] { Run(context, desc); }, &thread_);
}

SessionWatch::~SessionWatch() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void SessionWatch::Run(commsched_context_t* context,
                       const commsched_agree_desc_t& desc) {
  constexpr std::chrono::milliseconds kPeriod(20);
  std::unique_lock<std::mutex> lock(mutex_);
  while (!changed_.wait_for(lock, kPeriod, [this] { return over_; })) {
    const Status failure = failure_();
    if (failure.ok()) continue;
    commsched_context_decline(context, &desc, COMMSCHED_ABORTED,
                              failure.message().c_str());
    return;
  }
}

}  // namespace commsched::engine
