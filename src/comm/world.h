#ifndef COMMSCHED_SRC_COMM_WORLD_H_
#define COMMSCHED_SRC_COMM_WORLD_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "comm/backend_rank.h"
#include "comm/meeting.h"
#include "comm/value_store.h"
#include "commsched/link_profile.h"
#include "commsched/plugin.h"
#include "control/job.h"
#include "device/device.h"

namespace commsched {

struct WorldSpec {
  int size = 0;  // Unused by Join, which the job tells.
  std::string backend = "inproc";
  std::string backend_config;  // commsched_world_desc_t
  // Used instead of the backend called `backend` if set: how a test brings its
  // own. Outlives the world.
  const commsched_backend_t* table = nullptr;
  // By rank, of those that live in this process, in their order; empty: all
  // compute on the host.
  std::vector<std::shared_ptr<Device>> devices;
  // Of Join, on rank 0: the job's profile of links.
  std::optional<commsched_link_profile_t> links;
};

// Who is told that a rank is gone, or has failed. Thread-safe.
class FailureWatcher {
 public:
  virtual ~FailureWatcher() = default;
  // `why` names the rank. From any thread; does not block. Perhaps several
  // times: the first counts.
  virtual void OnFailure(const absl::Status& why) = 0;
};

// The ranks of one job, where they meet, and the backend they share: threads of
// this process, or processes of which this is one. A world outlives its
// communicators.
//
// Thread-safe.
class World {
 public:
  static constexpr int kAllRanks = -1;
  static constexpr int kMaxRanks = 4096;

  // All ranks are threads of this process.
  static absl::StatusOr<std::shared_ptr<World>> Create(const WorldSpec& spec);
  // This process is one rank of a job. Blocks until it has joined. Its
  // destructor leaves the job and blocks until all ranks have, or are lost, so
  // that what others still wait for reaches them: for a minute at most, and of
  // a world that has failed until a second after that.
  static absl::StatusOr<std::shared_ptr<World>> Join(const WorldSpec& spec,
                                                     JobSpec job);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  const WorldSpec& spec() const { return spec_; }
  // The rank that this process is, or kAllRanks.
  int own_rank() const { return own_rank_; }
  // How many ranks of the job are on this machine.
  int local_size() const { return local_size_; }
  Meeting* meeting() { return meeting_.get(); }
  const commsched_backend_t* backend() const { return table_; }
  // That of `rank`, which lives in this process. Lives as long as the world.
  Device* device(int rank) const;
  // Where all ranks of the job are; empty if they are threads of this process.
  // Blocks until all have joined, or one is lost.
  absl::StatusOr<Roster> WaitForRoster();
  // What rank 0 was given (WorldSpec::links); none: nothing. Blocks likewise.
  absl::StatusOr<std::optional<commsched_link_profile_t>> Links();
  // `rank`, one that lives in this process, as the backend has opened it. Stays
  // open with the world. Blocks until all ranks of the job have joined, or one
  // is lost.
  absl::StatusOr<BackendRank*> Rank(int rank);

  // Takes a rank; kAlreadyExists while another holder lives. Give it back with
  // ReleaseRank.
  absl::Status AcquireRank(int rank);
  void ReleaseRank(int rank);

  // `watcher`, of `rank`, is told of the first rank that is lost, and of
  // failures of `scope`, which is a number that all ranks give the same thing;
  // at once if there was one, and while it lives.
  void Watch(const std::shared_ptr<FailureWatcher>& watcher, int rank,
             uint64_t scope);
  // `rank` has failed with `why`, which names it: all others learn of it. Never
  // blocks. The first failure of a scope counts.
  void Tell(int rank, uint64_t scope, const absl::Status& why);
  // All ranks have made what `scope` stands for: failures before it are over.
  void Recovered(uint64_t scope);

 private:
  struct Watching {
    std::weak_ptr<FailureWatcher> watcher;
    int rank = 0;
    uint64_t scope = 0;
  };

  World(WorldSpec spec, const commsched_backend_t* table);
  absl::Status CreateInstance();
  absl::Status CheckDevices() const;
  absl::Status CheckOwn(int rank) const;
  // The rank that this process is, if it is open; else null.
  BackendRank* Opened();
  void NoteFailureLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int64_t EndTimeoutNs();
  void OnLost(const absl::Status& why);
  void OnFailed(int rank, uint64_t scope, const absl::Status& why);

  // Constant after creation.
  WorldSpec spec_;
  int own_rank_ = kAllRanks;
  int local_size_ = 0;
  const commsched_backend_t* const table_;
  uint64_t epoch_ = 0;
  int local_rank_ = 0;  // Of own_rank().
  std::unique_ptr<Meeting> meeting_;
  std::unique_ptr<ValueStore> store_;
  bool created_ = false;
  void* instance_ = nullptr;

  // Who has it asks for the roster: the server answers one thread of a rank at
  // a time.
  Mutex roster_mu_;

  Mutex ranks_mu_;
  // By rank; null: not opened.
  std::vector<std::unique_ptr<BackendRank>> ranks_ ABSL_GUARDED_BY(ranks_mu_);

  Mutex mu_;
  std::vector<bool> taken_ ABSL_GUARDED_BY(mu_);
  absl::Status lost_ ABSL_GUARDED_BY(mu_);
  // The first of each scope, and who it comes from.
  absl::flat_hash_map<uint64_t, std::pair<int, absl::Status>> failures_
      ABSL_GUARDED_BY(mu_);
  std::vector<Watching> watchers_ ABSL_GUARDED_BY(mu_);
  // When the first failure came that has not been recovered from; 0: none.
  int64_t failed_ns_ ABSL_GUARDED_BY(mu_) = 0;

  // The last member: its thread calls OnLost.
  std::unique_ptr<Job> job_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_WORLD_H_
