// What a rank waits for until its communicators can be used.
#ifndef COMMSCHED_SRC_SESSION_JOIN_WAIT_H_
#define COMMSCHED_SRC_SESSION_JOIN_WAIT_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace commsched {

// One wait of one rank, looked at again and again. If a rank fails, all do,
// with the words of the first: what the others have waited for themselves,
// which shows where a message got lost, is in their logs alone. It is in no
// error: whom a rank waits for need not be to blame.
//
// Thread-compatible.
class JoinWait {
 public:
  JoinWait(int rank, int64_t limit_ns);

  // A look has ended: the communicator of `axis` is not ready, for want of
  // `missing`; "": the backend does not say. Warns, once, if half of the limit
  // is over.
  void OnMissing(absl::string_view axis, absl::string_view missing);
  bool IsOver() const;
  // Warns: another rank has failed, as the look has found that ends now.
  void OnOtherFailed();

 private:
  int64_t WaitedNs() const;
  void Looked();
  std::string LookedText() const;

  const int rank_;
  const int64_t limit_ns_;
  const int64_t begin_ns_;  // Of RunningClock.
  std::string axis_;
  std::string missing_;
  // Of SystemClock, and from the end of a look to that of the next: a rank that
  // has not run, or was kept within a look, tells it by that.
  int64_t looked_ns_;
  int64_t longest_ns_ = 0;
  int64_t num_looks_ = 0;
  bool has_warned_ = false;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_SESSION_JOIN_WAIT_H_
