#ifndef COMMSCHED_SRC_ENGINE_STEP_PLAN_BUCKET_BUFFERS_H_
#define COMMSCHED_SRC_ENGINE_STEP_PLAN_BUCKET_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "commsched/graph.h"
#include "engine/step_plan/layout.h"
#include "engine/step_plan/spec.h"

namespace commsched::engine {

// What a bucket has memory for.
enum class BufferKind : uint8_t {
  // What the model reads: all elements; of a bucket that is gathered, this
  // rank's shard. The masters, if these are fp32.
  kParameters,
  kMasters,      // Of this rank's shard; offloaded with the state.
  kGradients,    // What backward adds to: all elements.
  kAccumulated,  // Their sum over micro-batches, if it is of another type.
  kSent,         // What travels, if it is of another type.
  kShard,        // The reduced gradients, if they have memory of their own.
  kSummand,      // What the reduction of a micro-batch adds to those.
  kState,        // Moment after moment of this rank's shard: m, then v.
};
inline constexpr size_t kNumBufferKinds = 8;

// One row of the table of a bucket's memory, from which follow the buffers of
// the graph, the memory of a rank and its size, and what is bound.
struct BucketBuffer {
  BufferKind kind = BufferKind::kParameters;
  const char* name = "";  // In the graph, before the number of the bucket.
  commsched_dtype_t dtype = COMMSCHED_F32;
  uint64_t count = 0;  // Elements.
  // BOUND: memory of the rank, from step to step. OWNED: in the arena, while an
  // op of the step needs it.
  commsched_ownership_t ownership = COMMSCHED_BOUND;
  // Whether the arena has one for each micro-batch, alive in that only.
  bool by_micro_batch = false;

  uint64_t bytes() const { return count * SizeOf(dtype); }
};

// The rows of a bucket, in the order of their kinds: of one that is not trained
// the parameters alone. A pure function.
std::vector<BucketBuffer> BuffersOfBucket(const StepSpec& spec,
                                          const Bucket& bucket);

// The row of `kind`; null if there is none.
const BucketBuffer* FindBuffer(const std::vector<BucketBuffer>& buffers,
                               BufferKind kind);

// Bytes of those that a rank keeps from step to step.
uint64_t BoundBytes(const std::vector<BucketBuffer>& buffers);

// Bytes of those that a stage has by its definition: parameters, gradients and
// the optimizer's state, each whole or a shard.
uint64_t DueBytes(const StepSpec& spec,
                  const std::vector<BucketBuffer>& buffers);

// Bytes of those in the arena, each counted once.
uint64_t ArenaBytes(const std::vector<BucketBuffer>& buffers);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STEP_PLAN_BUCKET_BUFFERS_H_
