// What goes wrong in a job, and whom it concerns.
#ifndef COMMSCHED_SRC_COMM_FAILURE_BOARD_H_
#define COMMSCHED_SRC_COMM_FAILURE_BOARD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"

namespace commsched {

// Who is told that a rank is gone, or has failed. Thread-safe.
class FailureWatcher {
 public:
  virtual ~FailureWatcher() = default;
  // `why` names the rank. From any thread; does not block. Perhaps several
  // times: the first counts.
  virtual void OnFailure(const absl::Status& why) = 0;
};

// A world, as a part of the job or all of it. Immutable, so thread-safe.
class JobPart {
 public:
  // All of it.
  JobPart() = default;
  // `id` is equal on all its ranks, and no other part's. `members`: by rank of
  // the world, the rank of the job; empty: a world of threads that was split
  // off, which is all that its board knows.
  JobPart(std::string id, std::string name, std::vector<int> members);

  bool is_all() const { return members_.empty(); }
  const std::string& id() const { return id_; }
  const std::string& name() const { return name_; }
  const std::vector<int>& members() const { return members_; }
  // The rank in the world of a rank of the job, or -1.
  int Find(int job_rank) const;
  // The rank of the job that `rank` of the world is.
  int JobRank(int rank) const {
    return is_all() ? rank : members_[static_cast<size_t>(rank)];
  }
  // What the server keeps for this world under `key`.
  std::string KeyOf(absl::string_view key) const;
  // An error as it is told in this world: under its name, if it has one, and
  // with keys as the world gave them. `where` precedes the message.
  absl::Status Named(const absl::Status& status,
                     absl::string_view where = "") const;

 private:
  std::string id_;
  std::string name_;
  std::vector<int> members_;
  absl::flat_hash_map<int, int> rank_of_;
};

// Ranks of a job that are lost concern the worlds that they are ranks of, and
// in them whoever watches these ranks; failures concern who watches their
// scope, a number that all ranks give the same thing. What has happened is told
// to those that come later, too.
//
// Thread-safe.
class FailureBoard {
 public:
  static constexpr int kEveryRank = -1;
  // Scopes with this bit are those of parts of the job.
  static constexpr uint64_t kPartsBit = uint64_t{1} << 63;

  FailureBoard() = default;
  FailureBoard(const FailureBoard&) = delete;
  FailureBoard& operator=(const FailureBoard&) = delete;

  // Whose failures a watcher of rank `rank` of the job is told of.
  struct Concern {
    std::shared_ptr<const JobPart> part;  // the world that it lives in
    int rank = 0;
    uint64_t scope = 0;
    // Ranks of the job whose loss concerns it; empty: all of `part`.
    std::vector<int> members;
  };
  // `watcher` is told of the first of those ranks that is lost, and of other
  // ranks' failures of the scope; at once if there was one, and while it lives.
  void Watch(const std::shared_ptr<FailureWatcher>& watcher, Concern concern);

  // `rank` of the job is lost, which `why` says of it, or all are. Of those
  // that concern a watcher, the first counts.
  void OnLost(int rank, const absl::Status& why);
  // `rank` of the job has failed with `why` in `scope`, of which the first
  // failure counts.
  void OnFailed(int rank, uint64_t scope, const absl::Status& why);

  // This rank has failed itself in the world `part`: what follows is the end.
  void NoteFailure(const JobPart& part);
  // All ranks have made what `scope` stands for: failures of `part` before it
  // are over, unless a rank is lost.
  void Recovered(const JobPart& part, uint64_t scope);
  // Since when the world `part` has failed, on RunningClock; 0: it has not.
  int64_t FailedSinceNs(const JobPart& part);

 private:
  struct Watching {
    std::weak_ptr<FailureWatcher> watcher;
    Concern concern;
  };
  struct Loss {
    int rank = 0;
    absl::Status why;
    int64_t at_ns = 0;
  };
  using Told =
      std::vector<std::pair<std::weak_ptr<FailureWatcher>, absl::Status>>;

  static bool IsIn(const Loss& loss, const JobPart& part);
  static bool Concerns(const Loss& loss, const Concern& concern);
  static absl::Status AsSeenBy(const JobPart& part, const Loss& loss);
  static void Tell(const Told& told);
  const Loss* FindLossLocked(const Concern& concern)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteFailureLocked(const JobPart& part)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  std::vector<Loss> lost_ ABSL_GUARDED_BY(mu_);
  // The first of each scope, and which rank of the job it comes from.
  absl::flat_hash_map<uint64_t, std::pair<int, absl::Status>> failures_
      ABSL_GUARDED_BY(mu_);
  std::vector<Watching> watchers_ ABSL_GUARDED_BY(mu_);
  // By id of the world: when the first failure came that has not been
  // recovered from.
  absl::flat_hash_map<std::string, int64_t> failed_ns_ ABSL_GUARDED_BY(mu_);
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_FAILURE_BOARD_H_
