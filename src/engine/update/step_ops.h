#ifndef COMMSCHED_SRC_ENGINE_UPDATE_STEP_OPS_H_
#define COMMSCHED_SRC_ENGINE_UPDATE_STEP_OPS_H_

#include <cstdint>
#include <utility>

#include "checkpoint/status.h"
#include "commsched/types.h"

namespace commsched::engine {

// Runs the ops of a step where the other ranks see it: in a session.
//
// Thread-compatible.
class StepOps {
 public:
  virtual Status Before(commsched_op_id_t op) = 0;
  virtual Status After(commsched_op_id_t op) = 0;
  // Takes the time since Before().
  virtual void Measure(commsched_op_id_t op) = 0;
  // Returns where a copy on its lane puts what it takes; null: not measured.
  virtual int64_t* CostOf(commsched_op_id_t op) = 0;
  virtual void Abort(const char* reason) = 0;

  template <typename Body>
  Status Run(commsched_op_id_t op, Body&& body) {
    ENGINE_RETURN_IF_ERROR(Before(op));
    return Finish(op, std::forward<Body>(body));
  }

  // Does the work of an op that has had its Before(), and ends it.
  template <typename Body>
  Status Finish(commsched_op_id_t op, Body&& body) {
    const Status done = body();
    if (!done.ok()) {
      // Others wait for what this op does not make due.
      Abort(done.message().c_str());
      return done;
    }
    Measure(op);
    return After(op);
  }

 protected:
  ~StepOps() = default;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_UPDATE_STEP_OPS_H_
