#ifndef COMMSCHED_TEST_ENGINE_UPDATE_CALL_H_
#define COMMSCHED_TEST_ENGINE_UPDATE_CALL_H_

#include <string>

#include "commsched/engine.h"
#include "test/engine/messages.h"

namespace commsched::engine {

// An update with a learning rate and nothing else.
inline commsched_engine_update_args_t UpdateArgs(float lr) {
  commsched_engine_update_args_t args = commsched_engine_update_args_init();
  args.lr = lr;
  return args;
}

inline commsched_status_t UpdateWith(commsched_engine_t* engine, float lr) {
  const commsched_engine_update_args_t args = UpdateArgs(lr);
  return commsched_engine_update(engine, &args);
}

// Leaves a step wherever it is, with zeros of this rank, and drains: "" or a
// message.
inline std::string LeaveStep(commsched_engine_t* engine) {
  RETURN_MESSAGE_IF_ERROR(
      commsched_engine_step_cancel(engine, COMMSCHED_CANCEL_LOCAL));
  RETURN_MESSAGE_IF_ERROR(UpdateWith(engine, 0.1f));
  RETURN_MESSAGE_IF_ERROR(commsched_engine_step_end(engine));
  return Message(commsched_engine_drain(engine));
}

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_UPDATE_CALL_H_
