#ifndef COMMSCHED_SRC_COMM_WORLD_H_
#define COMMSCHED_SRC_COMM_WORLD_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "comm/backend_rank.h"
#include "comm/comm_keeper.h"
#include "comm/device_lanes.h"
#include "comm/failure_board.h"
#include "comm/lane_order.h"
#include "comm/meeting/meeting.h"
#include "comm/meeting/value_store.h"
#include "comm/order_board.h"
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

// The ranks of one job, or some of them, where they meet, and the backend they
// share: threads of this process, or processes of which this is one. A world
// outlives its communicators.
//
// Thread-safe.
class World : public std::enable_shared_from_this<World> {
 public:
  static constexpr int kAllRanks = -1;
  static constexpr int kMaxRanks = 4096;
  static constexpr size_t kMaxNameBytes = 63;

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

  // A world of `members`, ranks of this one, which it numbers in their order;
  // `rank`, the caller, is one of them. All of them call this with the same
  // members and name, and in one order for all splits that they have in common;
  // nobody else does. The n-th calls of the members with the same arguments
  // belong together, those that fail, too. The part has an instance of the
  // backend of its own and all else of this world (docs/decisions/023). Of
  // threads, all members get the same world.
  //
  // Blocks until all members have called, and all ranks of the job have joined:
  // up to `timeout_ns`. Fails on all members or on none.
  // kInvalidArgument      a name that is empty or too long, no members or one
  //                       twice
  // kOutOfRange           a member that is not in the world
  // kNotFound             the caller is not among the members
  // kFailedPrecondition   members call with other members or another name; this
  //                       rank is in another call; a member could not make it
  // kDeadlineExceeded     a member has not called
  // kAborted              a member is lost
  absl::StatusOr<std::shared_ptr<World>> Split(int rank,
                                               absl::Span<const int> members,
                                               absl::string_view name,
                                               int64_t timeout_ns);
  // What it was called when it was split; empty: it was not.
  const std::string& name() const { return part_->name(); }

  const WorldSpec& spec() const { return spec_; }
  // The rank that this process is, or kAllRanks.
  int own_rank() const { return own_rank_; }
  // How long a rank of a job waits for others to join; 0 for threads.
  int64_t join_timeout_ns() const { return join_timeout_ns_; }
  // How many ranks of it are on this machine.
  int local_size() const { return local_size_; }
  Meeting* meeting() { return meeting_.get(); }
  const commsched_backend_t* backend() const { return table_; }
  // That of `rank`, which lives in this process. Lives as long as the world.
  Device* device(int rank) const;
  // Lanes of that device, one per key, borrowed until their handles go
  // (DeviceLanes::Borrow). They stay with the world.
  absl::StatusOr<std::vector<std::shared_ptr<DeviceLane>>> BorrowLanes(
      int rank, absl::Span<const LaneKey> keys, LanesInUse* in_use = nullptr);
  // The same, of these numbers (DeviceLanes::BorrowAt). Both are local; who
  // compares orders with other ranks borrows by BorrowSameLanes()
  // (comm/lane_agreement.h).
  absl::StatusOr<std::vector<std::shared_ptr<DeviceLane>>> BorrowLanesAt(
      int rank, absl::Span<const LaneKey> keys,
      absl::Span<const uint32_t> numbers);
  // What a session or channel of `rank` launches on `lane`, on the group of
  // `members`, ranks of this world. `what` says which group of which session:
  // equal on all members, for people as well. Lives no longer than the world.
  std::unique_ptr<LaneQueue> AddQueue(DeviceLane* lane, int rank,
                                      const std::string& what,
                                      absl::Span<const int> members,
                                      const void* owner);
  // Where its ranks are; empty if they are threads of this process. Blocks
  // until all ranks of the job have joined, or one is lost.
  absl::StatusOr<Roster> WaitForRoster();
  // What rank 0 was given (WorldSpec::links); none: nothing. Blocks likewise.
  absl::StatusOr<std::optional<commsched_link_profile_t>> Links();
  // `rank`, one that lives in this process, as the backend has opened it. Stays
  // open with the world. Blocks until all ranks of the job have joined, or one
  // is lost.
  absl::StatusOr<BackendRank*> Rank(int rank);
  // What keeps the communicators of `rank`, likewise, where the backend
  // enqueues on streams. Blocks as Rank() does.
  absl::StatusOr<CommKeeper*> Keeper(int rank);

  // Takes a rank; kAlreadyExists while another holder lives. Give it back with
  // ReleaseRank.
  absl::Status AcquireRank(int rank);
  void ReleaseRank(int rank);

  // `watcher`, of `rank`, is told of the first of `members` that is lost, which
  // are ranks of this world, or all of them if it is empty; and of failures of
  // `scope`, which is a number that all ranks give the same thing; at once if
  // there was one, and while it lives.
  void Watch(const std::shared_ptr<FailureWatcher>& watcher, int rank,
             uint64_t scope, absl::Span<const int> members = {});
  // `rank` has failed with `why`, which names it: all others learn of it. Never
  // blocks. The first failure of a scope counts.
  void Tell(int rank, uint64_t scope, const absl::Status& why);
  // All ranks have made what `scope` stands for: failures before it are over.
  void Recovered(uint64_t scope);

 private:
  // A part that all members are about to have. Of threads.
  struct Making {
    absl::StatusOr<std::shared_ptr<World>> part;
    size_t num_taken = 0;
  };
  // Of a part of the job, on a thread of its own.
  struct Ending {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> is_over;
  };

  World(WorldSpec spec, const commsched_backend_t* table);
  absl::Status CreateInstance();
  absl::Status CheckSplit(int rank, absl::Span<const int> members,
                          absl::string_view name) const;
  absl::StatusOr<std::string> BeginSplit(int rank,
                                         absl::Span<const int> members,
                                         absl::string_view name);
  void EndSplit(int rank);
  absl::StatusOr<std::shared_ptr<World>> SplitAs(const std::string& id,
                                                 int rank,
                                                 absl::Span<const int> members,
                                                 absl::string_view name,
                                                 int64_t timeout_ns);
  absl::StatusOr<std::shared_ptr<World>> TakeOfThreads(
      const std::string& id, absl::Span<const int> members,
      absl::string_view name);
  absl::StatusOr<std::shared_ptr<World>> MakeOfThreads(
      const std::string& id, absl::Span<const int> members,
      absl::string_view name);
  absl::StatusOr<std::shared_ptr<World>> MakeOfProcesses(
      const std::string& id, int rank, absl::Span<const int> members,
      absl::string_view name);
  // Deletes `part`, whose end may wait for others, on a thread; or, without
  // one, at once.
  void EndPart(World* part);
  void AwaitParts();
  // Members leave together, so that what they have sent reaches each other.
  void LeavePart();
  uint64_t ScopeOf(uint64_t scope) const;
  // The rank, in the world that all others were split from, of `rank`.
  int OriginOf(int rank) const;
  absl::Status CheckDevices() const;
  const std::shared_ptr<Device>& SharedDevice(int rank) const;
  DeviceLanes* LanesOf(int rank);
  LaneBudget BudgetOf(int rank) const;
  void TakeSeats();
  // Of a rank that lives in this process, in what holds one thing for each.
  size_t IndexOf(int rank) const {
    return own_rank_ == kAllRanks ? static_cast<size_t>(rank) : 0;
  }
  absl::Status CheckOwn(int rank) const;
  // The rank that this process is, if it is open; else null.
  BackendRank* Opened();
  void CloseKeepers();
  void TellKept(int rank, uint64_t number, const absl::Status& why);
  int64_t EndTimeoutNs();

  // Constant after creation.
  WorldSpec spec_;
  int own_rank_ = kAllRanks;
  int local_size_ = 0;
  // Who shares the cores of this machine: ranks of the job, or of the threads,
  // that this is a part of, too.
  int num_sharing_ = 0;
  const commsched_backend_t* const table_;
  uint64_t epoch_ = 0;
  int64_t join_timeout_ns_ = 0;
  int local_rank_ = 0;  // Of own_rank().
  // By rank of this process: which of those on its device it is, where a world
  // of threads has several there.
  std::vector<int> seats_;
  std::shared_ptr<const JobPart> part_ = std::make_shared<JobPart>();
  // Of a part of a world of threads: by rank, OriginOf() it.
  std::vector<int> origins_;
  // Of all worlds that were split from one.
  std::shared_ptr<OrderBoard> orders_ = std::make_shared<OrderBoard>();
  // Of a part of a job of processes: the world of all of it, which outlives
  // this one (EndPart()), and what this has of it.
  World* all_ = nullptr;
  std::shared_ptr<World> keeps_all_;
  std::optional<Roster> roster_;
  bool is_agreed_ = false;  // All members have it.
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
  std::vector<std::unique_ptr<CommKeeper>> keepers_ ABSL_GUARDED_BY(ranks_mu_);
  // Of a part: gets its rank on wherever this process waits.
  std::unique_ptr<BackendRank::Driven> driven_ ABSL_GUARDED_BY(ranks_mu_);

  Mutex mu_;
  // By rank of this process; null: none has been borrowed.
  std::vector<std::shared_ptr<DeviceLanes>> lanes_ ABSL_GUARDED_BY(mu_);
  std::vector<bool> taken_ ABSL_GUARDED_BY(mu_);
  // By rank: whether it is in Split(), and how often it has been in which.
  std::vector<bool> splits_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::pair<int, std::string>, uint64_t> num_splits_
      ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, Making> making_ ABSL_GUARDED_BY(mu_);
  std::vector<Ending> endings_ ABSL_GUARDED_BY(mu_);

  // Of the job, or of threads; a part of a job looks at that of all of it.
  FailureBoard own_board_;
  FailureBoard* board_ = &own_board_;

  // The last member: its thread tells the board.
  std::unique_ptr<Job> job_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_WORLD_H_
