#ifndef COMMSCHED_SRC_ENGINE_RUN_POISON_H_
#define COMMSCHED_SRC_ENGINE_RUN_POISON_H_

#include <cstdint>
#include <string>

#include "checkpoint/status.h"
#include "commsched/session.h"
#include "engine/step_plan/bucket_buffers.h"
#include "engine/step_plan/step_plan.h"

namespace commsched::engine {

// What a failed step has left in buffers, so that nobody may use them: a call
// that would is refused with the failure, and names the buffer.
struct Poison {
  const StepPlan* plan = nullptr;
  commsched_session_t* session = nullptr;
  Status failure;    // The session's, or why the session has ended.
  std::string call;  // "update"

  // Refuses the buffer of `bucket` and `kind`, if there is one.
  Status Refuse(uint32_t bucket, BufferKind kind) const;
  // Refuses every buffer that the optimizer reads or writes, those of offloaded
  // state and gradients among them.
  Status RefuseAll() const;

 private:
  Status RefuseBuffer(const std::string& name,
                      commsched_buffer_id_t buffer) const;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_RUN_POISON_H_
