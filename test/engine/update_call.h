#ifndef COMMSCHED_TEST_ENGINE_UPDATE_CALL_H_
#define COMMSCHED_TEST_ENGINE_UPDATE_CALL_H_

#include "commsched/engine.h"

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

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_UPDATE_CALL_H_
