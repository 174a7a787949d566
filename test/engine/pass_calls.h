// Passes as tests begin and end them.
#ifndef COMMSCHED_TEST_ENGINE_PASS_CALLS_H_
#define COMMSCHED_TEST_ENGINE_PASS_CALLS_H_

#include <cstdint>

#include "commsched/engine.h"

namespace commsched::engine {

inline commsched_status_t PassBegin(commsched_engine_t* engine,
                                    commsched_pass_kind_t kind, uint32_t module,
                                    uint32_t micro_batch) {
  const commsched_pass_t pass = {kind, module, micro_batch, 0};
  return commsched_engine_pass_begin(engine, &pass);
}

inline commsched_status_t PassEnd(commsched_engine_t* engine,
                                  commsched_pass_kind_t kind, uint32_t module,
                                  uint32_t micro_batch) {
  const commsched_pass_t pass = {kind, module, micro_batch, 0};
  return commsched_engine_pass_end(engine, &pass);
}

inline commsched_status_t ForwardBegin(commsched_engine_t* engine,
                                       uint32_t module, uint32_t micro_batch) {
  return PassBegin(engine, COMMSCHED_FORWARD, module, micro_batch);
}

inline commsched_status_t ForwardEnd(commsched_engine_t* engine,
                                     uint32_t module, uint32_t micro_batch) {
  return PassEnd(engine, COMMSCHED_FORWARD, module, micro_batch);
}

inline commsched_status_t BackwardBegin(commsched_engine_t* engine,
                                        uint32_t module, uint32_t micro_batch) {
  return PassBegin(engine, COMMSCHED_BACKWARD, module, micro_batch);
}

inline commsched_status_t BackwardEnd(commsched_engine_t* engine,
                                      uint32_t module, uint32_t micro_batch) {
  return PassEnd(engine, COMMSCHED_BACKWARD, module, micro_batch);
}

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_PASS_CALLS_H_
