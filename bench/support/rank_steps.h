// Steps of one plan on the ranks of this process, as a benchmark loop.
#ifndef COMMSCHED_BENCH_SUPPORT_RANK_STEPS_H_
#define COMMSCHED_BENCH_SUPPORT_RANK_STEPS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "comm/world.h"
#include "plan/planner.h"
#include "session/session.h"

namespace commsched::bench {

// A world whose ranks all run sessions of `graph`. Rank 0 is the thread that
// calls; the others are threads that follow it, step by step: they run ahead
// only as far as the collectives let them.
class RankSteps {
 public:
  using Work = std::function<void(OpId op)>;

  // `work` is what a compute op does, on every rank; may be empty.
  RankSteps(WorldSpec world, const Graph& graph, const PlanOptions& options,
            Work work = {});
  ~RankSteps();
  RankSteps(const RankSteps&) = delete;
  RankSteps& operator=(const RankSteps&) = delete;

  // Runs `num_steps` steps on all ranks, to the end of the last collective.
  bool Run(uint64_t num_steps);

  const Plan& plan() const { return *plan_; }

 private:
  struct Rank;

  void Follow(Rank* rank);

  const Work work_;
  std::shared_ptr<World> world_;
  std::shared_ptr<const Plan> plan_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace commsched::bench

#endif  // COMMSCHED_BENCH_SUPPORT_RANK_STEPS_H_
