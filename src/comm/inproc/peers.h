#ifndef COMMSCHED_SRC_COMM_INPROC_PEERS_H_
#define COMMSCHED_SRC_COMM_INPROC_PEERS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "comm/inproc/emulated_link.h"
#include "comm/inproc/members.h"
#include "commsched/plugin.h"

namespace commsched {

// One send or receive in flight. Used again by its rank once its launch is
// done; the memory stays, so a thread that comes late with a pointer to one
// finds it used for something else, and nothing worse.
struct PeerMessage {
  enum State : uint32_t { kPosted, kMatched, kDone };

  // Written by its rank before it is posted.
  bool is_send = false;
  int rank = 0;
  int peer = 0;
  std::byte* address = nullptr;  // A send only reads.
  uint64_t count = 0;
  uint64_t bytes = 0;
  commsched_dtype_t dtype = 0;
  bool is_tagged = false;
  uint64_t tag = 0;     // Of one that is tagged.
  uint64_t launch = 0;  // Number of its launch at its rank, for messages.

  PeerMessage* next = nullptr;  // Guarded by the mailbox it lies in.

  // Written by who matched it, released with kMatched or kDone.
  PeerMessage* partner = nullptr;
  uint32_t match = 0;  // Which one of the receiver's it is.
  int64_t started_ns = 0;
  int64_t link_end_ns = 0;
  std::atomic<uint32_t> state{kPosted};

  // Of a receive: which block of the copy is next, below the number of the
  // match. Who claims a block by comparing that cannot claim one of a later
  // match.
  std::atomic<uint64_t> next_block{0};
  std::atomic<uint64_t> num_blocks_done{0};
};

// Sends and receives between the members of one communicator.
//
// The k-th send from p to q meets the k-th receive at q from p, each counted in
// the order of launches and, within one, of its list, among those of the same
// tag, or those without one. Each pair of them gets on by itself: whoever comes
// second compares both, books the link and copies a small message at once; of a
// large one, both sides claim blocks when they are polled. Nobody waits in
// here.
//
// Thread-safe; each rank's calls come from one thread at a time.
class InprocPeers {
 public:
  InprocPeers(InprocMembers* members, const Clock* clock, EmulatedLink* link);
  InprocPeers(const InprocPeers&) = delete;
  InprocPeers& operator=(const InprocPeers&) = delete;

  // Takes the memory for launches of `max_members`, which is the same in all
  // calls of a rank: kResourceExhausted. Otherwise the first Post() does.
  absl::Status Reserve(int rank, uint32_t max_members);

  // Posts the members of `launch`, number `number` of this rank, under
  // `request` which is free. Adds the thread-CPU time spent to `cpu_ns`.
  absl::Status Post(int rank, uint32_t request, uint32_t max_members,
                    uint64_t number, const commsched_launch_t& launch,
                    int64_t* cpu_ns);

  // Copies what there is to copy for `request`, then fills in all of
  // `out_result` but `cpu_ns`.
  absl::Status Advance(int rank, uint32_t request,
                       commsched_launch_result_t* out_result, int64_t* cpu_ns);

  // As comm_missing of the table.
  uint32_t Missing(int rank, uint32_t request, int32_t* out_ranks,
                   uint32_t capacity) const;

 private:
  // Messages to one receiver that have not met theirs yet, in order of posting.
  struct Queue {
    PeerMessage* first = nullptr;
    PeerMessage* last = nullptr;
  };
  struct Mailbox {
    // Held for some loads and stores: launches must not block.
    std::atomic_flag busy = ATOMIC_FLAG_INIT;
    Queue sends, receives;
    uint32_t last_match = 0;
  };
  // Owned by the rank's thread, but for the messages.
  struct Sender {
    std::unique_ptr<PeerMessage[]> messages;  // max_members for each request
    std::vector<uint32_t> num_messages;       // by request
    uint32_t max_members = 0;
  };

  absl::Status PostOne(PeerMessage* message, int64_t* cpu_ns);
  PeerMessage* MatchOrQueue(PeerMessage* message);
  absl::Status Open(PeerMessage* message, PeerMessage* partner,
                    int64_t* cpu_ns);
  absl::Status CheckAgreement(const PeerMessage& send,
                              const PeerMessage& receive) const;
  void Work(PeerMessage* message, int64_t* cpu_ns);
  uint64_t RunClaimed(PeerMessage* receive, uint32_t match,
                      uint64_t num_blocks);
  void Complete(PeerMessage* receive, int rank);
  void AbortIfPeerLeft(const PeerMessage& message);

  InprocMembers* const members_;
  const Clock* const clock_;
  EmulatedLink* const link_;
  const std::unique_ptr<Mailbox[]> mailboxes_;  // by receiver
  std::vector<Sender> senders_;                 // by rank
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_INPROC_PEERS_H_
