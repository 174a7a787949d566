#ifndef COMMSCHED_SRC_COMM_INPROC_COMM_H_
#define COMMSCHED_SRC_COMM_INPROC_COMM_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "comm/emulated_link.h"
#include "comm/inproc_transfer.h"
#include "commsched/plugin.h"

namespace commsched {

// One launch in flight, as all members share it. Used again and again: launch
// number s takes slot s modulo the number of slots, and where a use must be
// told from another, s + 1 is stored.
struct InprocSlot {
  // Counts arrivals over all uses; a use is full at a multiple of the size.
  // The last arrival acquires what the others released by arriving.
  alignas(64) std::atomic<uint64_t> num_arrived{0};
  // s + 1 once blocks may be claimed. Released by the last to arrive.
  std::atomic<uint64_t> opened{0};
  // s + 1 once all outputs are written. Released by who wrote the last block.
  std::atomic<uint64_t> completed{0};

  alignas(64) std::atomic<uint64_t> next_block{0};
  std::atomic<uint64_t> num_blocks_done{0};

  // By rank, each written by its member before it arrives.
  std::vector<commsched_launch_t> launches;
  std::vector<uint64_t> signatures;

  // Written by the last to arrive, before it stores `opened` or `completed`.
  int last_rank = 0;
  uint64_t num_blocks = 0;
  int64_t started_ns = 0;
  int64_t link_end_ns = 0;
};

// What the members of one communicator share.
//
// Every member posts its launches in the same order. The last to arrive at a
// launch compares what was posted, books the link and opens the launch; then
// members claim its blocks by an atomic counter in poll(), the last to arrive
// first, others if they are awake or get woken for it. Nobody ever waits for
// another member in here: a member with nothing to do parks outside, and is
// woken through its `wake`.
//
// Why a slot is free when its next use begins: there are twice as many slots as
// launches that a member may have in flight (F). A member that posts launch s
// has seen s-F complete, so all members had posted s-F, so all of them had seen
// s-2F complete and have no business with its slot any more.
//
// Thread-safe; each rank's calls come from one thread at a time.
class InprocComm {
 public:
  InprocComm(const commsched_comm_desc_t& desc, const Clock* clock,
             EmulatedLink* link);
  InprocComm(const InprocComm&) = delete;
  InprocComm& operator=(const InprocComm&) = delete;

  // Takes the rank of `desc`. InvalidArgument if it describes another
  // communicator than the first member did, AlreadyExists if the rank has
  // joined before.
  absl::Status Join(const commsched_comm_desc_t& desc);

  // The member will take no part in launches from `num_posted` on. Returns when
  // no other thread calls its `wake` or touches its memory any more.
  void Leave(int rank, uint64_t num_posted);

  // Posts launch number `number`. Does the transfer at once if this completes a
  // small one. `launch` is normalized. Adds the thread-CPU time spent to
  // `cpu_ns`.
  absl::Status Post(int rank, uint64_t number, const commsched_launch_t& launch,
                    TransferScratch* scratch, int64_t* cpu_ns);

  // Works on launch `number` as long as there are blocks to claim, then fills
  // in all of `out_result` but `cpu_ns`.
  absl::Status Advance(int rank, uint64_t number, TransferScratch* scratch,
                       commsched_launch_result_t* out_result, int64_t* cpu_ns);

  // The first failure sticks: it is what every call returns from then on.
  void Abort(absl::Status failure);

  bool failed() const { return failed_.load(std::memory_order_seq_cst); }
  absl::Status failure();

  bool all_left() const {
    return num_left_.load(std::memory_order_acquire) == size();
  }
  int size() const { return static_cast<int>(ranks_.size()); }
  uint32_t max_in_flight() const { return max_in_flight_; }
  const std::string& axis() const { return axis_; }
  int world_rank(int rank) const { return ranks_[rank]; }

 private:
  struct Member {
    enum State : uint32_t { kAbsent, kJoined, kLeft };
    std::atomic<uint32_t> state{kAbsent};
    // Threads that may be about to call `wake`.
    std::atomic<uint32_t> num_wakers{0};
    // Constant once joined; released by `state`.
    void (*wake)(void* user) = nullptr;
    void* wake_user = nullptr;
    // Constant once left; released by `state`.
    uint64_t num_posted = 0;
  };

  InprocSlot& SlotOf(uint64_t number) { return slots_[number % num_slots_]; }
  Transfer TransferOf(const InprocSlot& slot) const;

  absl::Status CheckAgreement(const InprocSlot& slot, uint64_t number) const;
  absl::Status Open(int rank, uint64_t number, TransferScratch* scratch,
                    int64_t* cpu_ns);
  void RunAll(InprocSlot& slot, TransferScratch* scratch, int64_t* cpu_ns);
  uint64_t RunClaimed(InprocSlot& slot, uint64_t first,
                      TransferScratch* scratch);
  void Work(int rank, uint64_t number, TransferScratch* scratch,
            int64_t* cpu_ns);
  void Complete(int rank, uint64_t number);

  // Between these two the thread may touch members' memory. False, and nothing
  // to end, if the communicator has failed.
  bool BeginWork();
  void EndWork();

  void AbortIfSomebodyLeft(uint64_t number);
  void Wake(int rank);
  void WakeHelpers(int rank);
  void WakeOthers(int rank);

  // Constant after construction.
  const std::string id_;
  const std::string axis_;
  const std::vector<int32_t> ranks_;
  const uint32_t max_in_flight_;
  const Clock* const clock_;
  EmulatedLink* const link_;
  const int num_helpers_;  // Members to wake for a large transfer.
  const uint64_t num_slots_;

  const std::unique_ptr<InprocSlot[]> slots_;
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

#endif  // COMMSCHED_SRC_COMM_INPROC_COMM_H_
