#ifndef COMMSCHED_SRC_ENGINE_RUN_BOUND_STEP_H_
#define COMMSCHED_SRC_ENGINE_RUN_BOUND_STEP_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/status.h"
#include "commsched/engine.h"
#include "commsched/session.h"
#include "engine/model/model.h"
#include "engine/model/passes.h"
#include "engine/run/agreement.h"
#include "engine/run/order_recording.h"
#include "engine/state/memory.h"
#include "engine/state/offload.h"
#include "engine/state/rank_state.h"
#include "engine/step_plan/step_graph.h"
#include "engine/step_plan/step_plan.h"
#include "engine/tables/kernels.h"
#include "engine/update/step_ops.h"

namespace commsched::engine {

// A step plan in sessions with the other ranks: one for its steps, and one for
// evaluations if these need any. The addresses of buckets in a pass are found
// when the sessions are made, and stay as they are until Drop().
//
// While the order of modules is recorded there are no sessions, and the
// recording stands in for them.
//
// Thread-compatible, but for Abort() and FailureOfSessions().
class BoundStep final : public StepOps {
 public:
  // All that it points to outlives it.
  struct Spec {
    const commsched_engine_desc_t* desc = nullptr;  // With its defaults.
    const char* observers = nullptr;                // Null: none.
    const char* flight_path = nullptr;              // Null: none.
    const Kernels* kernels = nullptr;
    const Memory* memory = nullptr;
    const Model* model = nullptr;
    const std::vector<commsched_group_t*>* groups = nullptr;  // Of the model.
    RankState* state = nullptr;
    Agreement* agreement = nullptr;
  };

  explicit BoundStep(const Spec& spec) : spec_(spec), desc_(*spec.desc) {}
  BoundStep(const BoundStep&) = delete;
  BoundStep& operator=(const BoundStep&) = delete;

  // Makes the sessions, with all ranks of the world. `offload` is null if the
  // optimizer's state is in memory; `steps_done` is what came before. `plan`
  // and `offload` outlive the sessions.
  Status Connect(const StepPlan* plan, Offload* offload, uint64_t steps_done);
  // Drained: no rank waits for another, and no copy is under way.
  void Drop();

  // Stands in for the sessions that were dropped, until TakeRecording().
  void Record(std::unique_ptr<OrderRecording> recording);
  OrderRecording* recording() const { return recording_.get(); }
  std::unique_ptr<OrderRecording> TakeRecording();

  // Steps and evaluations, and their ops. `step` counts from 1.
  Status BeginStep(uint64_t step);
  Status EndStep();
  Status Drain();
  // What evaluations need is in step_passes.cc, up to EndForward().
  Status BeginEvaluation();
  Status EndEvaluation();
  // For uneven evaluations. NextForward() comes between two forwards of this
  // rank; EndForward() after the last, or an empty one: whether another rank
  // has one to come.
  Status NextForward();
  Status EndForward(bool* out_more);
  // Whether evaluations have a session.
  bool evaluation_meets() const { return plan_->forward_plan() != nullptr; }
  Status Before(commsched_op_id_t op) override;
  Status After(commsched_op_id_t op) override;
  void Measure(commsched_op_id_t op) override;
  int64_t* CostOf(commsched_op_id_t op) override {
    return measures_ ? &op_cost_ns_[op] : nullptr;
  }
  // The least of each op in the steps that were measured; of a collective, the
  // mean. Of `steps_done`, this session has done what came after Connect().
  Status OpCosts(uint64_t steps_done, int64_t* out_ns, uint64_t num_ops) const;

  // Gathered buckets are whole while an op that uses them runs, and so are
  // short-lived gradients: until RankState::HideBuckets(). The passes of an
  // evaluation find them where those of StepPlan::one_forward() do.
  void ShowBuckets(bool evaluating, uint64_t pass, uint32_t module);
  // Where each of PassOps::conversions reads from, and writes into.
  using Conversions = std::vector<std::pair<std::byte*, std::byte*>>;
  struct PassAddresses {
    // Where each of its module's buckets is whole; null for those that always
    // are.
    std::vector<std::byte*> values;
    std::vector<std::byte*> gradients;  // Short-lived ones; of a backward.
    Conversions conversions;
  };
  // The addresses in each pass of the step.
  const std::vector<PassAddresses>& addresses() const { return addresses_; }
  const Conversions& conversions(uint64_t pass) const {
    return addresses_[pass].conversions;
  }
  // I12: after the `before` of a pass the parameters must be those of the last
  // step, and what is gathered must have been so in this step. A stream has
  // that before it by the plan's proof, of which the host hears later.
  Status CheckVersions(const Pass& pass, const PassOps& ops,
                       uint64_t steps_done) const;

  Status FailureOfSessions() const;         // From any thread.
  void Abort(const char* reason) override;  // From any thread.

  commsched_session_t* session() const { return session_.get(); }

 private:
  struct SessionDelete {
    void operator()(commsched_session_t* s) const {
      commsched_session_destroy(s);
    }
  };
  using SessionHandle = std::unique_ptr<commsched_session_t, SessionDelete>;

  const StepGraph& graph() const { return plan_->graph(); }
  Status CreateSession(commsched_plan_t* plan,
                       const std::vector<commsched_binding_t>& bindings,
                       SessionHandle* out_session);
  std::vector<commsched_binding_t> Bindings() const;
  Status DrainEvaluation();
  Status SayMore(double more);
  Status BindOffload();
  Status BindPasses();
  Status BindPass(const Pass& pass, const PassOps& ops, PassAddresses* out);
  Status ArenaAddress(commsched_op_id_t op, commsched_buffer_id_t buffer,
                      std::byte** out_address) const;
  Status BindEvaluation(std::vector<commsched_binding_t>* out_bindings);
  void BindActivations(commsched_buffer_id_t first,
                       std::vector<commsched_binding_t>* bindings) const;
  Status CheckVersion(const Pass& pass, uint32_t bucket,
                      commsched_buffer_id_t buffer, uint64_t expected) const;
  // The outcome of a call to the session: the pool's, if that has failed.
  Status FromSession(commsched_status_t code, const char* context) const;

  const Spec spec_;
  const commsched_engine_desc_t& desc_;

  // Constant from Connect() to Drop().
  const StepPlan* plan_ = nullptr;
  Offload* offload_ = nullptr;
  uint64_t first_step_ = 0;               // Steps that were done before.
  std::vector<PassAddresses> addresses_;  // By pass of the step.
  SessionHandle session_;
  SessionHandle forward_session_;
  std::unique_ptr<OrderRecording> recording_;

  // Sessions come and go under it, for Abort(), which comes from any thread.
  std::mutex abort_mutex_;
  bool aborted_ = false;
  std::string abort_reason_;

  commsched_session_t* running_ = nullptr;  // The session whose step has begun.

  // Costs by op id, empty unless asked for.
  std::vector<int64_t> op_cost_ns_;
  bool measures_ = false;
  int64_t op_begin_ns_ = 0;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_RUN_BOUND_STEP_H_
