#ifndef COMMSCHED_TEST_STEP_PLAN_PARAMETER_DESC_H_
#define COMMSCHED_TEST_STEP_PLAN_PARAMETER_DESC_H_

#include <cstdint>
#include <vector>

#include "commsched/model.h"

namespace commsched::engine {

// With all else at its default; as long as `name` and `dims` live.
inline commsched_parameter_desc_t ParameterDesc(
    uint32_t module, const char* name, const std::vector<uint64_t>& dims) {
  commsched_parameter_desc_t desc = commsched_parameter_desc_init();
  desc.module = module;
  desc.name = name;
  desc.dims = dims.data();
  desc.num_dims = static_cast<uint32_t>(dims.size());
  return desc;
}

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_STEP_PLAN_PARAMETER_DESC_H_
