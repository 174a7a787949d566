#ifndef COMMSCHED_SRC_COMM_COMM_ABORTER_H_
#define COMMSCHED_SRC_COMM_COMM_ABORTER_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "comm/backend_rank.h"
#include "comm/comm_keeper.h"
#include "comm/world.h"

namespace commsched {

// Aborts communicators of a rank: when its owner says so, or the world
// (World::Watch). Where they are of a generation, with all others of that.
//
// Thread-safe.
class CommAborter final : public FailureWatcher {
 public:
  explicit CommAborter(BackendRank* rank) : rank_(rank) {}
  // Of what `owner`, called `who` in messages, has borrowed of `generation`.
  CommAborter(BackendRank* rank, std::shared_ptr<CommGeneration> generation,
              const void* owner, std::string who)
      : rank_(rank),
        owner_(owner),
        who_(std::move(who)),
        generation_(std::move(generation)) {}

  // They live until Close(). Not of a generation, which knows its own.
  void Add(void* comm);
  void Close();

  void OnFailure(const absl::Status& why) override;
  // The first, of the generation as well; OK: there was none.
  absl::Status failure();

 private:
  void AbortLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  BackendRank* const rank_;
  const void* const owner_ = nullptr;
  const std::string who_;
  Mutex mu_;
  std::shared_ptr<CommGeneration> generation_ ABSL_GUARDED_BY(mu_);
  std::vector<void*> comms_ ABSL_GUARDED_BY(mu_);
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_COMM_ABORTER_H_
