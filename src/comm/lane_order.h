// In which order launches go out on a lane of a device, as all ranks have to
// agree on.
#ifndef COMMSCHED_SRC_COMM_LANE_ORDER_H_
#define COMMSCHED_SRC_COMM_LANE_ORDER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "comm/order_board.h"

namespace commsched {

class LaneOrder;

// What is launched on a lane by one session or channel on one group, in one
// order on all ranks. Two queues that share a lane and two ranks need one order
// between them, too: the first launch that is behind another on one rank, and
// before it on another one, never ends.
struct LaneQueueSpec {
  std::string id;    // Equal on all members, and no other queue's.
  std::string name;  // For messages: "'tp' of session 1".
  // Queues of one owner are not compared: it has one order for all.
  const void* owner = nullptr;
  // Ranks as the board knows them, this one among them.
  std::vector<int> members;
  int rank = 0;
  std::shared_ptr<OrderBoard> board;  // Of one board are what is compared.
};

// Launches are noted by who has the lane's turn.
class alignas(64) LaneQueue {
 public:
  ~LaneQueue();
  LaneQueue(const LaneQueue&) = delete;
  LaneQueue& operator=(const LaneQueue&) = delete;

  // One more launch goes out. With the lane's turn.
  inline void Note();

 private:
  friend class LaneOrder;
  LaneQueue(std::shared_ptr<LaneOrder> order, uint16_t slot)
      : order_(std::move(order)), slot_(slot) {}

  const std::shared_ptr<LaneOrder> order_;
  const uint16_t slot_;
  // Written with the turn. Released in Note(), acquired in LaneOrder::Skip().
  std::atomic<uint64_t> num_launched_{0};
};

// The order of the launches of all queues of a lane: a ring, which who launches
// writes, and who looks on from outside reads, if there is anything to compare:
// two queues of one board, and of other owners, that have two ranks in common.
// Of each such pair ranks say what they have launched after each
// OrderSlice::kBlock launches, and in between now and then.
//
// Sends and receives have no queue: how many of them a rank launches is its own
// affair.
//
// Thread-safe, but for LaneQueue::Note().
class LaneOrder : public std::enable_shared_from_this<LaneOrder> {
 public:
  // What may be launched between two looks, or those after it are not compared
  // up to where the next look begins.
  static constexpr uint64_t kRing = 1024;

  explicit LaneOrder(int lane) : lane_(lane) {}
  LaneOrder(const LaneOrder&) = delete;
  LaneOrder& operator=(const LaneOrder&) = delete;

  // A queue more, until its handle goes.
  std::unique_ptr<LaneQueue> Add(LaneQueueSpec spec);

  // Reads what was launched, says it where that is due, and what has been said
  // less than `every_ns` ago is not; logs what differs from other ranks. Never
  // blocks: nothing, if another thread is at it.
  void Look(int64_t now_ns, int64_t every_ns);

  // "on lane 3 of its device the job's rank 0 has ...": the first that was
  // found; empty: none.
  std::string Difference();

 private:
  friend class LaneQueue;

  struct Queue {
    LaneQueueSpec spec;
    LaneQueue* handle = nullptr;
    // As far as the ring was read.
    uint64_t num = 0;
    bool is_known = true;  // Whether `num` is right.
  };
  struct Pair {
    uint16_t a = 0;  // Slots; the id of `a` is the lesser one.
    uint16_t b = 0;
    OrderSlice slice;  // What is not of a block that is over.
    uint64_t said_next = 1, said_then = 0;
    int64_t said_ns = 0;
    bool is_open = false;  // Whether `slice` has a beginning.
    bool differs = false;
  };

  void Note(uint16_t slot, uint64_t number);
  void Remove(uint16_t slot);
  static uint64_t Entry(uint64_t at, uint16_t slot, uint64_t number);

  bool IsCompared(const Queue& one, const Queue& other) const;
  void AddPairs(uint16_t slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Read() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Skip() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Launched(uint16_t slot, uint64_t number)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Begin(Pair* pair) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Say(Pair* pair, int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SayDue(int64_t now_ns, int64_t every_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<std::string> FindDifferences() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int lane_;

  // Written by who has the lane's turn. What a reader sees of a ring's entry
  // says which one it is, so that one that was overtaken is known.
  std::array<std::atomic<uint64_t>, kRing> ring_ = {};
  std::atomic<uint64_t> num_noted_{0};  // Released in Note().

  std::atomic<bool> has_pairs_{false};

  Mutex mu_;
  absl::flat_hash_map<uint16_t, Queue> queues_ ABSL_GUARDED_BY(mu_);
  std::vector<Pair> pairs_ ABSL_GUARDED_BY(mu_);
  uint16_t next_slot_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t num_read_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t now_ns_ ABSL_GUARDED_BY(mu_) = 0;  // Of the look under way.
  std::string difference_ ABSL_GUARDED_BY(mu_);
};

inline uint64_t LaneOrder::Entry(uint64_t at, uint16_t slot, uint64_t number) {
  return at / kRing << 56 | uint64_t{slot} << 40 |
         (number & ((uint64_t{1} << 40) - 1));
}

inline void LaneOrder::Note(uint16_t slot, uint64_t number) {
  const uint64_t at = num_noted_.load(std::memory_order_relaxed);
  ring_[at % kRing].store(Entry(at, slot, number), std::memory_order_relaxed);
  num_noted_.store(at + 1, std::memory_order_release);
}

inline void LaneQueue::Note() {
  const uint64_t number = num_launched_.load(std::memory_order_relaxed) + 1;
  num_launched_.store(number, std::memory_order_release);
  order_->Note(slot_, number);
}

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_LANE_ORDER_H_
