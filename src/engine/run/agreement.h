#ifndef COMMSCHED_SRC_ENGINE_RUN_AGREEMENT_H_
#define COMMSCHED_SRC_ENGINE_RUN_AGREEMENT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "checkpoint/status.h"
#include "commsched/agree.h"
#include "commsched/engine.h"
#include "commsched/world.h"
#include "engine/model/model.h"
#include "engine/state/rank_state.h"
#include "engine/step_plan/options.h"
#include "engine/step_plan/step_plan.h"
#include "engine/tables/optimizer_table.h"

namespace commsched::engine {

// Instead of Agreement::OnCreation(): tells the other ranks that this one
// cannot create its engine, and why.
void DeclineToCreate(commsched_context_t* context, const Status& why);

// What the ranks of an engine must have in common, beside the plan: model and
// options, compared when it is created; and the values that several of them
// store, compared in the first step after these may have changed.
//
// It keeps the context in which the ranks meet, and the group, as long as it
// lives: what is bound to them is destroyed first.
//
// Thread-compatible, but for DeclineValues().
class Agreement {
 public:
  // What ranks compare when values may have changed.
  struct Values {
    const Model* model = nullptr;
    const StepPlan* plan = nullptr;
    const RankState* state = nullptr;  // Drained.
    uint64_t steps = 0;                // That are done.
    const commsched_step_state_t* loss_scale = nullptr;
  };

  // `desc`, with its defaults, outlives the agreement.
  explicit Agreement(const commsched_engine_desc_t* desc) : desc_(*desc) {}
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;

  // First.
  Status KeepContext();
  commsched_context_t* context() const { return context_.get(); }
  commsched_group_t* group() const { return group_.get(); }

  // All ranks of the world come, as they do to the session, so that a
  // difference within one group keeps no other group waiting.
  Status OnCreation(const StepOptions& options, const Optimizer& optimizer,
                    const Model& model);
  // Returns `ready` if it has failed. The session of the evaluation keeps the
  // others waiting for a rank that never comes to it, so that ranks first say
  // whether they will.
  Status OnEvaluation(const Status& ready);

  // Waits for the ranks of the group. `failure`: of the sessions; if it fails
  // meanwhile, on a thread of its own, so does the comparison.
  Status OnValues(const Values& values, const std::function<Status()>& failure);
  bool values_may_differ() const {
    return unchecked_.load(std::memory_order_relaxed);
  }
  void NoteChangedValues() { unchecked_ = true; }
  // Any thread may say that no comparison that is due will come about.
  void DeclineValues(const char* reason);

 private:
  struct ContextDelete {
    void operator()(commsched_context_t* c) const {
      commsched_context_destroy(c);
    }
  };
  struct GroupDelete {
    void operator()(commsched_group_t* g) const { commsched_group_destroy(g); }
  };

  // How ranks compare values_name_.
  commsched_agree_desc_t ComparisonOfValues() const;

  const commsched_engine_desc_t& desc_;
  std::unique_ptr<commsched_context_t, ContextDelete> context_;
  std::unique_ptr<commsched_group_t, GroupDelete> group_;
  std::string values_name_;  // Of the comparison of values; empty before.

  // What several ranks store may have changed since it was last compared. Set
  // and cleared by the caller's thread; read in DeclineValues(), too.
  std::atomic<bool> unchecked_{true};
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_RUN_AGREEMENT_H_
