#ifndef COMMSCHED_SRC_ENGINE_STATE_OFFLOAD_H_
#define COMMSCHED_SRC_ENGINE_STATE_OFFLOAD_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/status.h"
#include "commsched/pool.h"
#include "commsched/session.h"
#include "engine/state/memory.h"
#include "engine/step_plan/layout.h"
#include "engine/step_plan/spec.h"
#include "engine/step_plan/step_graph.h"

namespace commsched::engine {

// The optimizer's state in a pool, bucket after bucket as it lies in memory
// otherwise: masters if there are any, then moment after moment; and in another
// pool reduced gradients, from their reduction to the optimizer. Copies of a
// step are ops on a lane of their own, which is a worker's stream.
//
// A copy that fails makes the rank fail: the session is aborted, which all
// ranks see, and failure() says why. So does a write between steps, since
// nobody knows what it has left.
//
// Thread-compatible, but for failure().
class Offload {
 public:
  struct Spec {
    commsched_context_t* context = nullptr;
    commsched_pool_t pool = commsched_pool_init();           // Of state.
    commsched_pool_t gradient_pool = commsched_pool_init();  // If it has any.
    uint32_t rank = 0;                                       // For messages.
    StepSpec step;
    const Memory* memory = nullptr;  // Both outlive it.
    const Kernels* kernels = nullptr;
  };

  // Reserves the pools.
  static Status Create(const Spec& spec, const Layout& layout,
                       std::unique_ptr<Offload>* out_offload);
  // Comes after Settle(), and after the session.
  ~Offload();
  Offload(const Offload&) = delete;
  Offload& operator=(const Offload&) = delete;

  // Steps are of `graph` in `session`, until the next call or, before the
  // session goes, Settle(). No copy is under way.
  void Bind(const StepGraph& graph, commsched_session_t* session);
  // Waits for the copies.
  void Settle();

  // The ops of a step. `cost_ns`: receives the least CPU time of the op; null:
  // not measured.
  Status Fetch(uint32_t bucket, int64_t* cost_ns);
  Status Store(uint32_t bucket, int64_t* cost_ns);
  // The same of gradients: of a turn, by index in StepGraph::gradient_turns,
  // and of a bucket for the squares and for the optimizer.
  Status StoreTurn(size_t turn, int64_t* cost_ns);
  Status FetchTurn(size_t turn, int64_t* cost_ns);
  Status FetchSquares(uint32_t bucket, int64_t* cost_ns);
  Status FetchGradients(uint32_t bucket, int64_t* cost_ns);
  int64_t Now() const;
  // What reads `bucket`, or what `turn` adds to, got to it at `asked_ns`, and
  // now has what it reads.
  void NoteArrival(uint32_t bucket, int64_t asked_ns);
  void NoteTurn(size_t turn, int64_t asked_ns);

  // Copy `count` values from `first` on of the state of `bucket`, between
  // steps.
  Status Read(uint32_t bucket, uint64_t first, float* out, uint64_t count);
  Status Write(uint32_t bucket, uint64_t first, const float* from,
               uint64_t count);

  commsched_stream_t stream() const { return stream_; }
  const Array<float>& slot(uint32_t index) const { return slots_[index]; }
  std::byte* gradient_slot(uint32_t index) const {
    return gradient_slots_[index].data();
  }
  uint64_t bytes() const { return state_.bytes; }
  uint64_t gradient_bytes() const { return gradients_.bytes; }
  uint64_t staging_bytes() const;
  uint64_t gradient_staging_bytes() const;
  uint64_t copied_bytes() const { return copied_bytes_; }
  int64_t copy_ns() const { return copy_ns_; }
  int64_t exposed_ns() const { return exposed_ns_; }
  // Any thread.
  Status failure() const;

 private:
  struct Pool {
    commsched_pool_t table;
    const char* what;    // "the optimizer's state"
    uint64_t bytes = 0;  // Of all buckets.
  };
  // The place of a bucket in a pool, in bytes.
  struct Range {
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  // A copy of a step.
  struct Copy {
    Offload* offload = nullptr;
    const Pool* pool = nullptr;
    Range range;
    uint32_t bucket = 0;
    commsched_op_id_t op = kNoId;
    bool stores = false;
    void* memory = nullptr;
    int64_t* cost_ns = nullptr;
    int64_t end_ns = 0;  // Of the worker until the op is complete.
  };
  struct BucketCopies {
    Range state, gradients;
    Copy fetch, store;
    Copy fetch_squares, fetch_gradients;
  };
  struct TurnCopies {
    Copy fetch, store;
  };

  explicit Offload(const Spec& spec)
      : rank_(spec.rank),
        state_({spec.pool, "the optimizer's state"}),
        gradients_({spec.gradient_pool, "the gradients"}) {}
  Status Init(const Spec& spec, const Layout& layout);
  void BindTurns(const StepGraph& graph);
  Status MakeSlots(const Spec& spec, const Layout& layout);
  Status Reserve(const Pool& pool);
  Status Enqueue(Copy* copy, int64_t* cost_ns);
  static void Run(void* copy);
  void RunCopy(Copy& copy);
  commsched_status_t Transfer(const Copy& copy);
  Status PoolError(const Pool& pool, const std::string& doing,
                   commsched_status_t code) const;
  void Fail(Status failure);

  // Constant after Create.
  const uint32_t rank_;
  Pool state_, gradients_;
  std::vector<Array<float>> slots_;
  std::vector<Bytes> gradient_slots_;
  commsched_stream_t stream_ = {};

  std::vector<BucketCopies> buckets_;
  std::vector<TurnCopies> turns_;
  commsched_session_t* session_ = nullptr;  // Set while no copy is under way.

  std::atomic<uint64_t> copied_bytes_{0};
  std::atomic<int64_t> copy_ns_{0};
  int64_t exposed_ns_ = 0;  // The caller's.

  // Set once; released in Fail(), acquired in failure().
  std::atomic<bool> failed_{false};
  Status failure_;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STATE_OFFLOAD_H_
