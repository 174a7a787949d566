#ifndef COMMSCHED_SRC_ENGINE_STEP_PLAN_STEP_PLAN_H_
#define COMMSCHED_SRC_ENGINE_STEP_PLAN_STEP_PLAN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "checkpoint/status.h"
#include "commsched/plan.h"
#include "engine/model/model.h"
#include "engine/model/passes.h"
#include "engine/step_plan/bucket_buffers.h"
#include "engine/step_plan/forward_graph.h"
#include "engine/step_plan/layout.h"
#include "engine/step_plan/search/arena_search.h"
#include "engine/step_plan/spec.h"
#include "engine/step_plan/step_graph.h"

namespace commsched::engine {

struct PlanDelete {
  void operator()(commsched_plan_t* plan) const {
    commsched_plan_destroy(plan);
  }
};
using PlanHandle = std::unique_ptr<commsched_plan_t, PlanDelete>;

// What the ranks that train a model do in a step: its buckets, its graph and
// the plan for it. Pure: without memory of parameters, context or session.
//
// Immutable.
class StepPlan {
 public:
  struct Options {
    LayoutOptions layout;
    uint64_t accumulate_bytes = 0;        // 0: no limit.
    uint64_t offload_staging_bytes = 0;   // 0: of two buckets.
    uint64_t gradient_staging_bytes = 0;  // The same.
    uint64_t max_live_bytes = 0;          // 0: what passes need.
    uint64_t prefetch_bytes = 0;          // 0: no limit.
    // What its names point to outlives the call.
    commsched_plan_options_t plan = commsched_plan_options_init();
    commsched_cost_profile_t profile = commsched_cost_profile_init();

    ArenaLimits limits() const {
      return {.arena_bytes = plan.arena_bytes,
              .max_live_bytes = max_live_bytes,
              .prefetch_bytes = prefetch_bytes};
    }
  };

  // The buckets of `model`, which has parameters.
  static Status LayOut(const StepSpec& spec, const Model& model,
                       const Options& options, Layout* out_layout);

  // Plans a step whose forward is in the order `sequence`, unless `model` has
  // passes of its own. Fails as the planner does.
  static Status Build(const StepSpec& spec, const Model& model,
                      const Options& options, Layout layout, Sequence sequence,
                      std::unique_ptr<const StepPlan>* out_plan);

  // One of several roles that exchange; all that it points to outlives the
  // call.
  struct Role {
    const StepSpec* spec = nullptr;
    const Model* model = nullptr;
    const Options* options = nullptr;
    // Roles of the model's groups and of that of the norm, as in
    // commsched_step_plan_role_t.
    const uint32_t* const* role_of_member = nullptr;
    uint32_t num_groups = 0;
    const uint32_t* role_of_norm_member = nullptr;
  };
  // Plans all of them together, so that what they exchange has one order. The
  // arena and what stays in it are those that each needs by itself, as far as
  // what it waits for allows, and never more than a limit that was given. Fails
  // as the planner does.
  static Status BuildTogether(
      const std::vector<Role>& roles,
      std::vector<std::unique_ptr<const StepPlan>>* out_plans);

  const StepSpec& spec() const { return spec_; }
  const Layout& layout() const { return layout_; }
  const Sequence& sequence() const { return sequence_; }
  // Indices of those of its passes that an evaluation runs.
  const std::vector<uint32_t>& one_forward() const { return one_forward_; }
  const StepGraph& graph() const { return graph_; }
  commsched_plan_t* plan() const { return plan_.get(); }
  // The graph of an evaluation. Without a plan it has nothing to exchange, and
  // its passes only keep to the order of calls.
  const ForwardGraph& forward() const { return forward_; }
  commsched_plan_t* forward_plan() const { return forward_plan_.get(); }
  uint64_t num_ops() const { return num_ops_; }
  uint64_t arena_bytes() const { return arena_bytes_; }
  std::vector<BucketBuffer> BuffersOf(uint32_t bucket) const {
    return BuffersOfBucket(spec_, layout_.buckets[bucket]);
  }
  bool gathers(uint32_t bucket) const {
    return spec_.gathers(layout_.buckets[bucket]);
  }
  bool short_lived_gradients(uint32_t bucket) const {
    return spec_.short_lived_gradients(layout_.buckets[bucket]);
  }
  uint64_t ShardCount(uint32_t bucket) const {
    return layout_.buckets[bucket].count / spec_.num_shards();
  }
  // Where the values of moment `moment` begin in the state of `bucket`.
  uint64_t MomentBegin(uint32_t bucket, uint64_t moment) const {
    return spec_.moment_begin(layout_.buckets[bucket], moment);
  }

 private:
  StepPlan(const StepSpec& spec, Layout layout, Sequence sequence)
      : spec_(spec),
        layout_(std::move(layout)),
        sequence_(std::move(sequence)) {}
  // `modules`: those of `model`, or of them what exchanges with no other role.
  Status PlanStep(const Model& model, const std::vector<Module>& modules,
                  const Options& options);
  // Decides by a plan of the role alone what stays when, and builds the graph
  // with all exchanges.
  Status BuildStepOf(const Role& role);
  Status ReadPlan();
  static bool ForwardExchanges(const StepSpec& spec, const Model& model) {
    return spec.zero_stage == 3 || !model.ops().empty() ||
           !model.exchanges().empty();
  }
  Status BuildForward(const Model& model);
  Status PlanEvaluation(const Model& model, const Options& options);

  const StepSpec spec_;
  const Layout layout_;
  const Sequence sequence_;
  std::vector<uint32_t> one_forward_;
  StepGraph graph_;
  PlanHandle plan_;
  ForwardGraph forward_;
  PlanHandle forward_plan_;
  uint64_t num_ops_ = 0;
  uint64_t arena_bytes_ = 0;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STEP_PLAN_STEP_PLAN_H_
