#ifndef COMMSCHED_SRC_ENGINE_STATE_STATE_VALUES_H_
#define COMMSCHED_SRC_ENGINE_STATE_STATE_VALUES_H_

#include <cstdint>

#include "checkpoint/status.h"
#include "engine/state/offload.h"
#include "engine/state/rank_state.h"
#include "engine/step_plan/step_plan.h"
#include "engine/tables/kernels.h"

namespace commsched::engine {

// The values of a rank's state between steps, from and to fp32 of the host:
// those of parameters, and what the optimizer keeps, be it in memory or in a
// pool. A view: what it is made of outlives it.
//
// Thread-compatible.
class StateValues {
 public:
  // `offload` is null if the optimizer's state is in memory; `rank`: in the
  // group.
  StateValues(const StepPlan& plan, const Kernels& kernels, uint32_t rank,
              RankState* state, Offload* offload)
      : plan_(plan),
        spec_(plan.spec()),
        kernels_(kernels),
        rank_(rank),
        state_(*state),
        offload_(offload) {}

  // Takes, of `count` elements of a bucket from `begin` on, those that this
  // rank keeps.
  Status Store(uint32_t bucket, uint64_t begin, const float* values,
               uint64_t count);

  // `count` values from `at` on in this rank's part of a bucket: the masters,
  // or what there is of those that are not trained; or a moment. They have
  // arrived once Synchronize() returns.
  Status ReadMasters(uint32_t bucket, uint64_t at, float* out, uint64_t count);
  Status ReadMoment(uint32_t bucket, uint64_t moment, uint64_t at, float* out,
                    uint64_t count);
  Status WriteMoment(uint32_t bucket, uint64_t moment, uint64_t at,
                     const float* values, uint64_t count);
  Status Synchronize() const { return kernels_.Synchronize(); }

 private:
  Status StoreMasters(uint32_t bucket, uint64_t in_shard, const float* values,
                      uint64_t count);
  const Bucket& BucketOf(uint32_t bucket) const {
    return plan_.layout().buckets[bucket];
  }

  const StepPlan& plan_;
  const StepSpec& spec_;
  const Kernels& kernels_;
  const uint32_t rank_;
  RankState& state_;
  Offload* const offload_;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STATE_STATE_VALUES_H_
