// Communicators of a rank that outlive the sessions which use them.
#ifndef COMMSCHED_SRC_COMM_COMM_KEEPER_H_
#define COMMSCHED_SRC_COMM_COMM_KEEPER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "comm/backend_rank.h"
#include "comm/failure_board.h"

namespace commsched {

// What a communicator is asked for by.
struct CommWish {
  // Axis, ranks, and what it is for: equal on all members.
  std::string group;
  // Number of the lane of the device that its launches go out on; -1: this rank
  // has no launch there.
  int lane = -1;
  uint32_t max_members = 1;     // Of the largest launch.
  const void* owner = nullptr;  // Who asks.
};

// A communicator, or the place of one that is yet to be made.
struct KeptComm {
  CommWish wish;       // Of who has it, or had it last.
  uint32_t index = 0;  // Among the kept ones of the group.
  bool is_kept = true;
  bool is_lent = true;
  void* comm = nullptr;  // Null: not made.
  // Launches that it was told to expect. Owned by who has it.
  uint32_t num_expected = 0;
};

// The communicators of a rank from one failure of its world to the next. Each
// is lent to one session at a time: backends match launches of a communicator
// by their order alone, so that two sessions whose orders differ between ranks
// would add up each other's data. A failure is that of all.
//
// Thread-safe.
class CommGeneration final : public FailureWatcher {
 public:
  // `tell` has the other ranks' generations of this number fail as well.
  CommGeneration(BackendRank* rank, uint64_t number,
                 std::function<void(const absl::Status&)> tell)
      : number_(number), rank_(rank), tell_(std::move(tell)) {}

  // How many there were before, on every rank of the world.
  uint64_t number() const { return number_; }

  // The first that is like `wish`, made before and lent to nobody; else a place
  // for a new one, of the least index that is free. Lent until Return().
  KeptComm* Borrow(const CommWish& wish);
  // A place for one that ends when it is returned.
  KeptComm* BorrowOwn(const CommWish& wish);
  // `comm` was made for its place. Aborts it if the generation has failed.
  void Add(KeptComm* kept, void* comm);
  // Gives back what was borrowed, if it was made; else it is as if it had not
  // been. Null: nothing. `keep` false: nobody gets it any more. Returns the
  // handles that the caller has to destroy: of what nobody will get, and, once
  // the generation has failed, of all that is lent to nobody.
  std::vector<void*> Return(absl::Span<KeptComm* const> borrowed, bool keep);
  // Of all that is lent to nobody.
  std::vector<void*> TakeIdle();

  // `owner`, called `who` in messages, fails with `why`: aborts all that there
  // is and will be, and tells the other ranks. The first failure counts.
  void Fail(const void* owner, const std::string& who, const absl::Status& why);
  // The same, by another rank.
  void OnFailure(const absl::Status& why) override;
  // The first; OK: there was none.
  absl::Status failure();
  // Failures do nothing from here on.
  void Close();

 private:
  bool FailLocked(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AbortLocked(absl::Span<void* const> comms)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint32_t FreeIndex(const std::string& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  KeptComm* AddPlace(const CommWish& wish) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<void*> TakeIdleLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const uint64_t number_;
  BackendRank* const rank_;
  const std::function<void(const absl::Status&)> tell_;
  Mutex mu_;
  std::vector<std::unique_ptr<KeptComm>> comms_ ABSL_GUARDED_BY(mu_);
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  bool is_closed_ ABSL_GUARDED_BY(mu_) = false;
};

// Those of one rank of a world whose backend is STREAM_ORDERED
// (docs/decisions/022). They end with the world.
//
// Thread-safe, but for Close().
class CommKeeper {
 public:
  struct Spec {
    BackendRank* rank = nullptr;  // Outlives the keeper.
    // `watcher` is told of failures of generation `number` on other ranks, and
    // of ranks that are lost.
    std::function<void(const std::shared_ptr<FailureWatcher>& watcher,
                       uint64_t number)>
        watch;
    // The other ranks' generation `number` fails.
    std::function<void(uint64_t number, const absl::Status& why)> tell;
  };

  explicit CommKeeper(Spec spec) : spec_(std::move(spec)) {}
  CommKeeper(const CommKeeper&) = delete;
  CommKeeper& operator=(const CommKeeper&) = delete;

  // The one that has not failed, if it can be helped: all do once a rank of the
  // world is lost.
  std::shared_ptr<CommGeneration> Current();
  // The same; one before `number` fails first, as another rank has seen.
  std::shared_ptr<CommGeneration> AtLeast(uint64_t number);

  // Destroys all, up to `deadline_ns` of SystemClock; logs what does not end.
  // Nothing is lent any more.
  void Close(int64_t deadline_ns);

 private:
  std::shared_ptr<CommGeneration> CurrentLocked(uint64_t least)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Spec spec_;
  Mutex mu_;
  // The last one is the current one.
  std::vector<std::shared_ptr<CommGeneration>> all_ ABSL_GUARDED_BY(mu_);
};

// Destroys communicators of `rank`, up to `deadline_ns`: the first failure.
absl::Status DestroyComms(BackendRank* rank, absl::Span<void* const> comms,
                          int64_t deadline_ns);

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_COMM_KEEPER_H_
