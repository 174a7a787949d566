// The trainer's step as a careful author writes it without a scheduler.
#ifndef COMMSCHED_BENCH_TRAINER_BY_HAND_H_
#define COMMSCHED_BENCH_TRAINER_BY_HAND_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/world.h"
#include "engine/step_plan/layout.h"
#include "examples/trainer/data.h"
#include "examples/trainer/model.h"
#include "examples/trainer/options.h"
#include "test/support/comm_driver.h"

namespace commsched::bench {

// One rank of ZeRO-1 by direct calls of the backend, each waited for before the
// next computation: reduce-scatter of a bucket when its last gradient is there,
// AdamW and all-gather bucket by bucket. Same model, data, buckets, kernels and
// order of calls as trainer::Rank with the serial schedule, without clipping
// and with one micro-batch: the weights are the same bits.
//
// Owned by its rank's thread.
class ByHandRank {
 public:
  static absl::StatusOr<std::unique_ptr<ByHandRank>> Create(
      const trainer::Options& options, const trainer::Sampler& sampler,
      World* world, int rank);

  absl::StatusOr<double> Step(int64_t step);
  absl::StatusOr<std::string> WeightsDigest() const;

 private:
  struct Memory {
    std::vector<float> parameters, gradients;  // of the whole bucket
    std::vector<float> m, v;                   // of this rank's shard
    std::vector<engine::Segment> segments;     // of this rank's shard
    int first_backward = 0;  // module whose backward touches it first
    int last_backward = 0;   // and last
  };

  ByHandRank(const trainer::Options& options, const trainer::Sampler& sampler,
             int rank)
      : options_(options), sampler_(sampler), rank_(rank) {}

  void LayOut();
  void FindBackwards();
  absl::Status Collect(commsched_collective_t kind, std::vector<float>* bucket);
  absl::Status Backward();
  absl::Status Optimize(int64_t step);

  const trainer::Options& options_;
  const trainer::Sampler& sampler_;
  const int rank_;
  std::unique_ptr<trainer::Gpt> gpt_;
  std::vector<engine::Parameter> parameters_;
  engine::Layout layout_;
  std::vector<Memory> memory_;
  std::vector<const float*> values_;  // by parameter
  std::vector<float*> gradients_;
  std::vector<uint8_t> inputs_, targets_;
  CommDriver comm_;
  int64_t steps_ = 0;
};

}  // namespace commsched::bench

#endif  // COMMSCHED_BENCH_TRAINER_BY_HAND_H_
