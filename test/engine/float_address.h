#ifndef COMMSCHED_TEST_ENGINE_FLOAT_ADDRESS_H_
#define COMMSCHED_TEST_ENGINE_FLOAT_ADDRESS_H_

#include "commsched/engine.h"

namespace commsched::engine {

// commsched_engine_parameter_address() of an engine whose parameters and
// gradients are fp32.
inline commsched_status_t FloatAddress(commsched_engine_t* engine,
                                       commsched_parameter_id_t parameter,
                                       const float** out_values,
                                       float** out_gradient) {
  const void* values = nullptr;
  void* gradient = nullptr;
  const commsched_status_t status =
      commsched_engine_parameter_address(engine, parameter, &values, &gradient);
  if (status != COMMSCHED_OK) return status;
  *out_values = static_cast<const float*>(values);
  *out_gradient = static_cast<float*>(gradient);
  return status;
}

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_FLOAT_ADDRESS_H_
