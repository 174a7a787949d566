#include "session_watch.h"

#include <chrono>
#include <utility>

namespace commsched::engine {

SessionWatch::SessionWatch(Failure failure, commsched_context_t* context,
                           const commsched_agree_desc_t& desc)
    : failure_(std::move(failure)) {
  thread_ = std::thread([this, context, &desc] { Run(context, desc); });
}

SessionWatch::~SessionWatch() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  thread_.join();
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
