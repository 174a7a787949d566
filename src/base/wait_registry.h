// What in this process may be waiting for other ranks, for who asks why a job
// does not get on.
#ifndef COMMSCHED_SRC_BASE_WAIT_REGISTRY_H_
#define COMMSCHED_SRC_BASE_WAIT_REGISTRY_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace commsched {

// Something that may wait. It is listed while it lives, oldest first, and then
// described from any thread at any time, also while others are inside it.
//
// Listing takes a lock for a moment, and allocates nothing (I6). Unlisting
// waits for a description that is under way.
class Waiter {
 public:
  virtual ~Waiter() = default;
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // Appends lines, each ended by a newline; nothing if there is nothing to
  // tell. Blocks for some 50 ms at most, and neither logs nor lists.
  virtual void DescribeTo(std::string* text) const = 0;

 protected:
  Waiter() = default;
  // Of the most derived class, once that can be described, and until it cannot.
  void List();
  void Unlist();

 private:
  friend std::string DescribeWaiters();
  Waiter* before_ = nullptr;
  Waiter* after_ = nullptr;
  bool listed_ = false;
};

// The lines of all; "" if nothing waits.
std::string DescribeWaiters();

// A call that waits for other ranks, as long as this lives.
class WaitingCall final : public Waiter {
 public:
  static constexpr int kNoRank = -1;

  // "rank 3: <doing><what> for 12.0 s". Both outlive it.
  WaitingCall(int rank, absl::string_view doing, absl::string_view what = "");
  ~WaitingCall() override { Unlist(); }

  void DescribeTo(std::string* text) const override;

 private:
  const int rank_;
  const absl::string_view doing_, what_;
  const int64_t since_ns_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_BASE_WAIT_REGISTRY_H_
