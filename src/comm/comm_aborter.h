#ifndef COMMSCHED_SRC_COMM_COMM_ABORTER_H_
#define COMMSCHED_SRC_COMM_COMM_ABORTER_H_

#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "comm/backend_rank.h"
#include "comm/world.h"

namespace commsched {

// Aborts communicators of a rank: when its owner says so, or the world
// (World::Watch).
//
// Thread-safe.
class CommAborter final : public FailureWatcher {
 public:
  explicit CommAborter(BackendRank* rank) : rank_(rank) {}

  // They live until Close().
  void Add(void* comm);
  void Close();

  void OnFailure(const absl::Status& why) override;
  // The first; OK: there was none.
  absl::Status failure();

 private:
  void AbortLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  BackendRank* const rank_;
  Mutex mu_;
  std::vector<void*> comms_ ABSL_GUARDED_BY(mu_);
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_COMM_ABORTER_H_
