#ifndef COMMSCHED_SRC_ENGINE_UPDATE_NORM_SUMS_H_
#define COMMSCHED_SRC_ENGINE_UPDATE_NORM_SUMS_H_

#include <cstdint>
#include <vector>

#include "checkpoint/status.h"
#include "commsched/engine_kernels.h"
#include "engine/state/rank_state.h"
#include "engine/tables/kernels.h"

namespace commsched::engine {

// Adds sums of blocks in an order that neither bucketing nor sharding changes:
// those of a parameter in groups of 256, and then the groups; each one after
// the other. So a device adds the groups side by side, and every machine and
// layout gives the same bits.
//
// Thread-compatible.
class NormSums {
 public:
  // `parts`: of each part, such as a parameter, where its blocks are, in order.
  // What it needs to know is kept in `state`, which outlives it.
  Status Init(RankState* state, const Kernels& kernels,
              const std::vector<std::vector<commsched_run_t>>& parts);

  // Enqueues: out[i] is the sum of part i, of the sums of blocks at `sums`.
  Status Add(const Kernels& kernels, const double* sums, double* out) const;

 private:
  struct Level {
    commsched_run_t* runs = nullptr;
    uint64_t* first_run = nullptr;
    uint64_t count = 0;  // Of sums.
  };

  static Status MakeLevel(RankState* state, const Kernels& kernels,
                          const std::vector<std::vector<commsched_run_t>>& sums,
                          Level* out);

  Level groups_;
  Level parts_;
  double* group_sums_ = nullptr;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_UPDATE_NORM_SUMS_H_
