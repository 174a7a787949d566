#ifndef COMMSCHED_SRC_COMM_INPROC_COMM_H_
#define COMMSCHED_SRC_COMM_INPROC_COMM_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "comm/inproc/emulated_link.h"
#include "comm/inproc/members.h"
#include "comm/inproc/peers.h"
#include "comm/inproc/runner.h"
#include "comm/inproc/transfer.h"
#include "commsched/plugin.h"

namespace commsched {

// One collective in flight, as all members share it. Used again and again:
// launch number s takes slot s modulo the number of slots, and where a use must
// be told from another, s + 1 is stored.
struct InprocSlot {
  // Counts arrivals over all uses; a use is full at a multiple of the size.
  // The last arrival acquires what the others released by arriving.
  alignas(64) std::atomic<uint64_t> num_arrived{0};
  // s + 1 once blocks may be claimed. Released by the last to arrive.
  std::atomic<uint64_t> opened{0};
  // s + 1 once all outputs are written. Released by who wrote the last block.
  std::atomic<uint64_t> completed{0};

  alignas(64) std::atomic<uint64_t> next_claim{0};
  std::atomic<uint64_t> num_blocks_done{0};

  // By rank, each written by its member before it arrives.
  std::vector<commsched_launch_t> launches;
  std::vector<uint64_t> signatures;

  // Written by the last to arrive, before it stores `opened` or `completed`.
  int last_rank = 0;
  uint64_t num_blocks = 0;
  uint64_t blocks_per_claim = 1;
  int64_t started_ns = 0;
  int64_t link_end_ns = 0;
};

// What the members of one communicator share.
//
// Every member posts its collectives in the same order; sends and receives are
// apart from that order (peers.h). The last to arrive at a
// launch compares what was posted, books the link and opens the launch; then
// members claim its blocks by an atomic counter in poll(), the last to arrive
// first, others if they are awake or get woken for it. Nobody ever waits for
// another member in here: a member with nothing to do parks outside, and is
// woken through its `wake`.
//
// Why a slot is free when its next use begins: there are twice as many slots as
// launches that a member may have in flight (F). A member that posts collective
// s has seen s-F complete, so all members had posted s-F, so all of them had
// seen s-2F complete and have no business with its slot any more.
//
// Thread-safe; each rank's calls come from one thread at a time.
class InprocComm {
 public:
  InprocComm(const commsched_comm_desc_t& desc, const Clock* clock,
             EmulatedLink* link);
  InprocComm(const InprocComm&) = delete;
  InprocComm& operator=(const InprocComm&) = delete;

  InprocMembers* members() { return &members_; }
  // Sends and receives.
  InprocPeers* peers() { return &peers_; }
  int size() const { return members_.size(); }

  // Posts collective number `number`. Does the transfer at once if this
  // completes a small one. `launch` is normalized. Adds the thread-CPU time
  // spent to `cpu_ns`.
  absl::Status Post(int rank, uint64_t number, const commsched_launch_t& launch,
                    TransferScratch* scratch, int64_t* cpu_ns);

  // Works on collective `number` as long as there are blocks to claim, then
  // fills in all of `out_result` but `cpu_ns`.
  absl::Status Advance(int rank, uint64_t number, TransferScratch* scratch,
                       commsched_launch_result_t* out_result, int64_t* cpu_ns);

  // As comm_missing of the table, for collective `number`.
  uint32_t Missing(uint64_t number, int32_t* out_ranks,
                   uint32_t capacity) const;

 private:
  InprocSlot& SlotOf(uint64_t number) { return slots_[number % num_slots_]; }
  Transfer TransferOf(const InprocSlot& slot) const;

  absl::Status CheckAgreement(const InprocSlot& slot, uint64_t number) const;
  absl::Status CheckOwnCounts(const InprocSlot& slot, uint64_t number) const;
  absl::Status Open(int rank, uint64_t number, TransferScratch* scratch,
                    int64_t* cpu_ns);
  void RunAll(InprocSlot& slot, TransferScratch* scratch, int64_t* cpu_ns);
  uint64_t RunClaimed(InprocSlot& slot, TransferScratch* scratch);
  void Work(int rank, uint64_t number, TransferScratch* scratch,
            int64_t* cpu_ns);
  void Complete(int rank, uint64_t number);

  void AbortIfSomebodyLeft(uint64_t number);
  void WakeHelpers(int rank);

  InprocMembers members_;

  // Constant after construction.
  const Clock* const clock_;
  EmulatedLink* const link_;
  const int num_helpers_;  // Members to wake for a large transfer.
  const uint64_t num_slots_;

  const std::unique_ptr<InprocSlot[]> slots_;
  std::vector<std::atomic<uint64_t>> num_posted_;  // Collectives, by rank.

  InprocPeers peers_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_INPROC_COMM_H_
