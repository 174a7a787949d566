#ifndef COMMSCHED_SRC_ENGINE_STEP_PLAN_BUILDER_BUILDER_H_
#define COMMSCHED_SRC_ENGINE_STEP_PLAN_BUILDER_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/status.h"
#include "engine/model/graph_writer.h"
#include "engine/step_plan/accumulation.h"
#include "engine/step_plan/builder/norm.h"
#include "engine/step_plan/builder/part.h"
#include "engine/step_plan/builder/staging.h"
#include "engine/step_plan/layout.h"
#include "engine/step_plan/search/residency.h"
#include "engine/step_plan/step_graph.h"

namespace commsched::engine {

// What BuildStepGraph() makes a graph with, once.
//
// Thread-compatible.
class StepBuilder : private BuilderPart {
 public:
  StepBuilder(const StepSpec& spec, const std::vector<Module>& modules,
              const Exchanges& exchanges, const Layout& layout,
              const std::vector<Pass>& passes, const std::vector<Stay>& stays,
              GraphWriter* writer, StepGraph* out)
      : BuilderPart(spec, layout, writer, out),
        modules_(modules),
        exchanges_(exchanges),
        passes_(passes),
        stays_(stays),
        staging_(*this),
        norm_(*this),
        windows_(FindWindows(spec, layout, passes)),
        num_ended_(layout.buckets.size(), 0) {}

  Status Build();

 private:
  void FindFirstUses();
  Status AddBuffers();
  Status AddBucketBuffers(uint32_t bucket);
  Status AddPasses();
  Status AddPass(const Pass& pass, PassOps& ops);
  Status AddInnerOps(const std::string& prefix, const Pass& pass, PassOps& ops);
  void AddParameterAccesses(const ModuleStep& step, uint32_t micro_batch,
                            std::vector<commsched_access_t>* accesses) const;
  Status AddReady(const Pass& pass, PassOps& ops);
  Status AddGathers(uint32_t launch);
  double FlopsOf(const Pass& pass) const;
  std::vector<commsched_access_t> PassAccesses(const Pass& pass, PassOps& ops);
  void AddBackwardAccesses(uint32_t bucket, const Pass& pass, PassOps& ops,
                           std::vector<commsched_access_t>& accesses);
  // Windows are counted in the order in which they end. Unless the micro-batch
  // ends, only of buckets with offloaded gradients.
  Status AddReductions(bool ends_micro_batch);
  Status AddReduction(uint32_t bucket, uint32_t window);
  // Turns that add to offloaded gradients, and have come.
  Status AddTurns();
  Status AddAccumulations(const Pass& pass, PassOps& ops);
  Status AddAccumulation(uint32_t bucket, uint32_t window,
                         commsched_op_id_t* out_op);
  Status AddLastAccumulation(uint32_t bucket);
  Status AddConversions(const Pass& pass, PassOps& ops);
  Status AddConversionsOf(uint32_t bucket, uint32_t micro_batch, PassOps& ops);
  Status AddConversion(const std::string& name, Conversion conversion,
                       PassOps& ops);
  Status AddNorm();
  Status AddOptimizer();
  Status AddStep(uint32_t bucket);

  // What the reduction after a window leaves.
  commsched_access_t Reduced(uint32_t bucket, uint32_t window,
                             commsched_access_mode_t mode) const {
    const BucketIds& ids = out_.buckets[bucket];
    if (!IsAdded(bucket, window)) return ReducedGradients(bucket, mode);
    const commsched_buffer_id_t summand =
        ids.of(BufferKind::kSummand, WindowsOf(bucket)[window].micro_batch);
    return summand != kNoId ? Access(summand, mode)
                            : Part(ids.of(BufferKind::kGradients), mode);
  }
  bool at_once(uint32_t bucket) const {
    return layout_.buckets[bucket].reduced_at_once;
  }
  const std::vector<Window>& WindowsOf(uint32_t bucket) const {
    return windows_[bucket].all();
  }
  // What is added to gradients that stay in memory.
  bool adds_in_memory(uint32_t bucket) const {
    return at_once(bucket) &&
           !spec_.offloads_gradients_of(layout_.buckets[bucket]);
  }
  // Whether what the reduction of a window leaves is added to a sum, or makes
  // one; else it is what is stepped with, or the sum so far.
  bool IsAdded(uint32_t bucket, uint32_t window) const {
    return at_once(bucket) &&
           (window > 0 || spec_.adds_first(layout_.buckets[bucket]));
  }
  // Whether a window is followed by a reduction.
  bool IsReduced(uint32_t bucket, uint32_t window) const {
    return at_once(bucket) || window + 1 == WindowsOf(bucket).size();
  }
  // The pass that is added now.
  uint32_t position() const {
    return static_cast<uint32_t>(out_.pass_ops.size());
  }

  const std::vector<Module>& modules_;
  const Exchanges& exchanges_;
  const std::vector<Pass>& passes_;
  const std::vector<Stay>& stays_;
  StagingBuilder staging_;
  NormBuilder norm_;
  const std::vector<Windows> windows_;  // By bucket.
  std::vector<uint32_t> num_ended_;     // Of them, those that were reduced.
  // The buffer that holds each bucket's parameters for the next pass.
  std::vector<commsched_buffer_id_t> current_;
  // Index in out_.gathered, which is in order of launches and of first uses.
  size_t next_gather_ = 0;
  size_t next_used_ = 0;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STEP_PLAN_BUILDER_BUILDER_H_
