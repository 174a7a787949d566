#include "base/wait_registry.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace commsched {
namespace {

struct WaiterList {
  Mutex mu;
  Waiter* first ABSL_GUARDED_BY(mu) = nullptr;
  Waiter* last ABSL_GUARDED_BY(mu) = nullptr;
};

// Never destroyed: a signal may ask while the process exits.
WaiterList& TheWaiters() {
  static WaiterList* const list = new WaiterList;
  return *list;
}

}  // namespace

void Waiter::List() {
  WaiterList& list = TheWaiters();
  MutexLock lock(&list.mu);
  before_ = list.last;
  (before_ == nullptr ? list.first : before_->after_) = this;
  list.last = this;
  listed_ = true;
}

void Waiter::Unlist() {
  WaiterList& list = TheWaiters();
  MutexLock lock(&list.mu);
  if (!listed_) return;
  (before_ == nullptr ? list.first : before_->after_) = after_;
  (after_ == nullptr ? list.last : after_->before_) = before_;
  listed_ = false;
}

std::string DescribeWaiters() {
  std::string text;
  WaiterList& list = TheWaiters();
  MutexLock lock(&list.mu);
  for (const Waiter* waiter = list.first; waiter != nullptr;
       waiter = waiter->after_) {
    waiter->DescribeTo(&text);
  }
  return text;
}

WaitingCall::WaitingCall(int rank, absl::string_view doing,
                         absl::string_view what)
    : rank_(rank),
      doing_(doing),
      what_(what),
      since_ns_(SystemClock::Get().NowNs()) {
  List();
}

void WaitingCall::DescribeTo(std::string* text) const {
  if (rank_ != kNoRank) absl::StrAppend(text, "rank ", rank_, ": ");
  const int64_t waited_ns = SystemClock::Get().NowNs() - since_ns_;
  absl::StrAppendFormat(text, "%s%s for %.1f s\n", doing_, what_,
                        static_cast<double>(waited_ns) * 1e-9);
}

}  // namespace commsched
