// Models of tests.
#ifndef COMMSCHED_TEST_ENGINE_MODEL_HANDLE_H_
#define COMMSCHED_TEST_ENGINE_MODEL_HANDLE_H_

#include <cstdint>
#include <memory>

#include "commsched/model.h"
#include "test/engine/messages.h"

namespace commsched::engine {

struct ModelDelete {
  void operator()(commsched_model_t* model) const {
    commsched_model_destroy(model);
  }
};
using ModelHandle = std::unique_ptr<commsched_model_t, ModelDelete>;

inline ModelHandle NewModel() {
  commsched_model_t* model = nullptr;
  Require(commsched_model_create(&model));
  return ModelHandle(model);
}

// With all else at its default.
inline commsched_status_t AddParameter(commsched_model_t* model,
                                       uint32_t module, const char* name,
                                       const uint64_t* dims, uint32_t num_dims,
                                       uint32_t* out_parameter) {
  commsched_parameter_desc_t desc = commsched_parameter_desc_init();
  desc.module = module;
  desc.name = name;
  desc.dims = dims;
  desc.num_dims = num_dims;
  return commsched_model_add_parameter(model, &desc, out_parameter);
}

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_MODEL_HANDLE_H_
