#ifndef COMMSCHED_SRC_ENGINE_STATE_RANK_STATE_H_
#define COMMSCHED_SRC_ENGINE_STATE_RANK_STATE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/status.h"
#include "commsched/engine_kernels.h"
#include "commsched/session.h"
#include "engine/model/model.h"
#include "engine/state/memory.h"
#include "engine/step_plan/bucket_buffers.h"
#include "engine/step_plan/layout.h"
#include "engine/step_plan/step_plan.h"
#include "engine/tables/kernels.h"

namespace commsched::engine {

// Memory of one bucket; what the step does not need is empty.
struct BucketMemory {
  std::array<Bytes, kNumBufferKinds> buffers;  // What is bound.
  std::vector<Segment> segments;               // Of this rank's shard.

  // Every parameter; null while a gathered bucket is not whole.
  std::byte* all_parameters = nullptr;
  // Every gradient; null while short-lived ones have no memory.
  std::byte* all_gradients = nullptr;
  // Reduced, of this rank's shard; what is offloaded is there for the squares
  // and the optimizer only.
  std::byte* my_gradients = nullptr;
  // Where the reductions of later micro-batches leave what is added to it; of
  // offloaded gradients by micro-batch, null where nothing is added.
  const std::byte* my_summand = nullptr;
  std::vector<std::byte*> my_summands;
  const std::byte* summand_of(uint32_t micro_batch) const {
    return my_summands.empty() ? my_summand : my_summands[micro_batch];
  }
  // These are of this rank's shard. What is offloaded is there for the
  // optimizer only; frozen parameters of 16 bits have no masters.
  float* my_masters = nullptr;
  float* my_state = nullptr;
  // What the model reads of the shard; null if that is the masters.
  std::byte* my_copy = nullptr;

  Bytes& of(BufferKind kind) { return buffers[static_cast<size_t>(kind)]; }
  const Bytes& of(BufferKind kind) const {
    return buffers[static_cast<size_t>(kind)];
  }
  float* floats(BufferKind kind) const {
    return reinterpret_cast<float*>(of(kind).data());
  }
};

// What a norm is computed from, the learning rates that travel with it or by
// themselves, and flags; empty where the step has none.
struct NormMemory {
  Array<double> local_sums;
  Array<double> all_sums;     // Of all ranks: gathers_block_sums().
  Array<double> total;        // reduces_norm().
  Array<double> part_sums;    // One per parameter.
  Array<double> part, parts;  // gathers_parts().
  Array<double> sent_rates;   // In rank order: gathers_block_sums().
  Array<double> rates;        // gathers_rates().
  Array<double> part_rates;   // gathers_part_rates().
  Array<double> flags;        // has_flags().
  Array<double> more;         // One, of uneven evaluations.

  // Bytes of what the ranks exchange.
  uint64_t bytes() const {
    return local_sums.bytes() + all_sums.bytes() + total.bytes();
  }
};

// Every byte that a rank keeps from step to step, but for the optimizer's state
// in a pool, and where the parts of its buckets are.
//
// Thread-compatible.
class RankState {
 public:
  // `memory` and `kernels` outlive it; `rank`: in the group.
  RankState(const Memory* memory, const Kernels* kernels, uint32_t rank,
            bool on_device)
      : memory_(*memory),
        kernels_(*kernels),
        rank_(rank),
        on_device_(on_device) {}
  ~RankState();

  // More than the machine has is refused rather than left to overcommit: the
  // first touch of such memory would kill the process. Each of the ranks on
  // this host takes about as much, also where other groups share the model
  // among themselves.
  static Status CheckFits(const StepSpec& spec, const Layout& layout,
                          uint64_t arena_bytes, uint64_t ranks_here);

  // All of it, zeroed.
  Status Allocate(const StepPlan& plan,
                  const std::vector<Parameter>& parameters);
  // For another plan with the same buckets, whose passes need other memory of
  // gradients: what it has beside, zeroed, and then, once the sessions of the
  // plan before are gone, nothing of what it does not have.
  Status AllocateMissing(const StepPlan& plan);
  void ReleaseUnused(const StepPlan& plan);

  // `count` zeros of a plain type, and at least one, for a class that holds no
  // memory of its own. They live as long as this.
  template <typename T>
  Status Keep(uint64_t count, T** out) {
    ENGINE_RETURN_IF_ERROR(Bytes::Create(
        memory_, kernels_, std::max(count, uint64_t{1}) * sizeof(T),
        &kept_.emplace_back()));
    *out = reinterpret_cast<T*>(kept_.back().data());
    return Status();
  }
  // The same in memory of the host that a device can write to. Once.
  Status KeepHost(uint64_t count, double** out);

  // The addresses that a step uses, but for those in the arena.
  void Bind(const StepPlan& plan);
  // What is in memory for one pass of `module` only is no longer there.
  void HideBuckets(const StepPlan& plan, uint32_t module);
  // What a session of the plan is bound to.
  std::vector<commsched_binding_t> Bindings(const StepPlan& plan) const;

  BucketMemory& bucket(uint32_t bucket) { return buckets_[bucket]; }
  const BucketMemory& bucket(uint32_t bucket) const { return buckets_[bucket]; }
  const std::vector<BucketMemory>& buckets() const { return buckets_; }
  NormMemory& norm() { return norm_; }
  const NormMemory& norm() const { return norm_; }
  commsched_step_state_t* control() const { return control_.data(); }
  Status SetControl(const commsched_step_state_t& state);

  // Elements of `dtype` of this state, from and to fp32 of the host.
  Status WriteValues(std::byte* into, commsched_dtype_t dtype,
                     const float* values, uint64_t count);
  Status ReadValues(const std::byte* from, commsched_dtype_t dtype,
                    float* out_values, uint64_t count);
  // Bytes of this state, as the host reads them: where they are, or in
  // `scratch`.
  Status OnHost(const void* bytes, uint64_t count,
                std::vector<std::byte>* scratch, const void** out_bytes) const;

 private:
  template <typename T>
  Status AllocateZeros(const std::string& what, uint64_t count, Array<T>* out);
  Status AllocateBucket(const StepPlan& plan, uint32_t bucket);
  Status AllocateNorm(const StepPlan& plan, uint64_t num_parameters);
  void ReleaseKept();
  void BindBucket(const StepSpec& spec, const Bucket& bucket,
                  BucketMemory* out) const;

  const Memory& memory_;
  const Kernels& kernels_;
  const uint32_t rank_;
  const bool on_device_;
  std::vector<BucketMemory> buckets_;
  NormMemory norm_;
  Array<commsched_step_state_t> control_;  // One.
  Array<float> staging_;                   // Between the host and a device.
  std::vector<Bytes> kept_;                // Of Keep().
  double* kept_on_host_ = nullptr;         // Of KeepHost().
  uint64_t kept_on_host_bytes_ = 0;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STATE_RANK_STATE_H_
