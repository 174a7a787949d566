#ifndef COMMSCHED_SRC_COMM_INPROC_MEMBERS_H_
#define COMMSCHED_SRC_COMM_INPROC_MEMBERS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "commsched/plugin.h"

namespace commsched {

// Who is in a communicator: how they are woken, who has left, what failed, and
// who is working on the others' memory just now.
//
// Thread-safe.
class InprocMembers {
 public:
  // How a member is woken.
  struct Waker {
    void (*wake)(void* user) = nullptr;
    void* user = nullptr;
  };

  explicit InprocMembers(const commsched_comm_desc_t& desc);
  InprocMembers(const InprocMembers&) = delete;
  InprocMembers& operator=(const InprocMembers&) = delete;

  // Takes the rank of `desc`. InvalidArgument if it describes another
  // communicator than the first member did, AlreadyExists if the rank has
  // joined before. One after the other (InprocBackend).
  absl::Status Join(const commsched_comm_desc_t& desc, const Waker& waker);

  // The member will post no more. Returns when no other thread calls its `wake`
  // or, after a failure, touches its memory any more.
  void Leave(int rank);
  bool any_left() const {
    return num_left_.load(std::memory_order_seq_cst) != 0;
  }
  bool all_left() const {
    return num_left_.load(std::memory_order_acquire) == size();
  }
  // What a member did before it left is visible to who sees that it has.
  bool has_left(int rank) const {
    return members_[rank].state.load(std::memory_order_seq_cst) ==
           Member::kLeft;
  }

  // The first failure sticks: it is what every call returns from then on.
  void Abort(absl::Status failure);
  bool failed() const { return failed_.load(std::memory_order_seq_cst); }
  absl::Status failure();

  // Between these two the thread may touch members' memory. False, and nothing
  // to end, if the communicator has failed.
  bool BeginWork();
  void EndWork();
  bool nobody_works() const {
    return num_working_.load(std::memory_order_seq_cst) == 0;
  }

  void Wake(int rank);
  void WakeOthers(int rank);  // all but `rank`

  int size() const { return static_cast<int>(ranks_.size()); }
  uint32_t max_in_flight() const { return max_in_flight_; }
  const std::string& axis() const { return axis_; }
  const std::vector<int32_t>& world_ranks() const { return ranks_; }
  int world_rank(int rank) const { return ranks_[rank]; }

 private:
  struct Member {
    enum State : uint32_t { kAbsent, kJoined, kLeft };
    std::atomic<uint32_t> state{kAbsent};
    // Threads that may be about to call `wake`.
    std::atomic<uint32_t> num_wakers{0};
    // Constant once joined; released by `state`.
    Waker waker;
  };

  // Constant after construction.
  const std::string id_;
  const std::string axis_;
  const std::vector<int32_t> ranks_;
  const uint32_t max_in_flight_;

  const std::unique_ptr<Member[]> members_;
  std::atomic<int> num_left_{0};

  // Whoever works announces it before looking at failed_; whoever fails sets
  // failed_ before looking for workers. All sequentially consistent, so that
  // one sees the other, and no member's memory is touched once its poll() has
  // returned the failure.
  std::atomic<bool> failed_{false};
  std::atomic<uint32_t> num_working_{0};

  Mutex mu_;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_INPROC_MEMBERS_H_
