#ifndef COMMSCHED_SRC_COMM_WORLD_H_
#define COMMSCHED_SRC_COMM_WORLD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "comm/meeting.h"
#include "commsched/plugin.h"
#include "control/job.h"

namespace commsched {

struct WorldSpec {
  int size = 0;  // Unused by Join, which the job tells.
  std::string backend = "inproc";
  std::string backend_config;  // commsched_world_desc_t
  // Used instead of the backend called `backend` if set: how a test brings its
  // own. Outlives the world.
  const commsched_backend_t* table = nullptr;
};

// Who is told that a rank is gone. Thread-safe.
class LossWatcher {
 public:
  virtual ~LossWatcher() = default;
  // `why` names the rank. From any thread; does not block.
  virtual void OnLost(const absl::Status& why) = 0;
};

// The ranks of one job, where they meet, and the backend they share: threads of
// this process, or processes of which this is one. A world outlives its
// communicators.
//
// Thread-safe.
class World {
 public:
  static constexpr int kAllRanks = -1;

  // All ranks are threads of this process.
  static absl::StatusOr<std::shared_ptr<World>> Create(const WorldSpec& spec);
  // This process is one rank of a job. Blocks until it has joined. Its
  // destructor leaves the job and blocks until all ranks have, or are lost, so
  // that what others still wait for reaches them.
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
  // The backend's table and the instance to pass to comm_create.
  const commsched_backend_t* backend() const { return table_; }
  void* backend_instance() { return instance_; }

  // Takes a rank; kAlreadyExists while another holder lives. Give it back with
  // ReleaseRank.
  absl::Status AcquireRank(int rank);
  void ReleaseRank(int rank);

  // `watcher` is told of the first rank that is lost, at once if one is, while
  // it lives.
  void Watch(const std::shared_ptr<LossWatcher>& watcher);

 private:
  World(WorldSpec spec, const commsched_backend_t* table);
  absl::Status CreateInstance();
  void OnLost(const std::string& why);

  // Constant after creation.
  WorldSpec spec_;
  int own_rank_ = kAllRanks;
  int local_size_ = 0;
  const commsched_backend_t* const table_;
  std::unique_ptr<Meeting> meeting_;
  commsched_oob_t oob_ = {};
  bool created_ = false;
  void* instance_ = nullptr;

  Mutex mu_;
  std::vector<bool> taken_ ABSL_GUARDED_BY(mu_);
  absl::Status lost_ ABSL_GUARDED_BY(mu_);
  std::vector<std::weak_ptr<LossWatcher>> watchers_ ABSL_GUARDED_BY(mu_);

  // The last member: its thread calls OnLost.
  std::unique_ptr<Job> job_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_WORLD_H_
